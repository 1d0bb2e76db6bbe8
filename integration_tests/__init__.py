"""Promises, tested on a real broker with real Spark: one file each."""
