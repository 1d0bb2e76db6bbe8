"""Encodes records as record batches."""
