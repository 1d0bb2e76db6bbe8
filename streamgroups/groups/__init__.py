"""Decisions about groups: ownership of partitions, commits, offset resets, lag and history."""
