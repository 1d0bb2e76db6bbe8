"""Decisions about groups: who owns what, what may be committed, what the history shows."""
