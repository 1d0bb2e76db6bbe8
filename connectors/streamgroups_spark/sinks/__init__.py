"""Sinks that write each batch exactly once."""
