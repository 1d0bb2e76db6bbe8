"""Decisions about event time: the watermark, the partitions that hold it back, windows and late records."""
