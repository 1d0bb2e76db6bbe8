"""Reads ranges of offsets into Arrow."""
