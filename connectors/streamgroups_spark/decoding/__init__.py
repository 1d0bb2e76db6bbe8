"""Decoding and encoding of values in a DataFrame."""
