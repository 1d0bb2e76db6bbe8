"""Decoding of record values: formats, the wire format of schema registries, and types."""
