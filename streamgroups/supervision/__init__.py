"""Supervision: when a failed query is restarted."""
