"""Stable input: the records of a range of offsets are stored before a side effect, and used again by a replay."""
