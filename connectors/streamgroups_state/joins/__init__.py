"""Joins of two topics whose partitions belong together (SEMANTICS W18, S10)."""
