"""Decisions about micro-batches: how much to read, in which tasks, how to write it down, how to resume."""
