"""Checkpoints of any Spark query: their files, and copies of one batch. Source: SEMANTICS C5."""
