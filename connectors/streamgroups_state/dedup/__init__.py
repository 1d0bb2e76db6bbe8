"""The ids that a partition has seen (SEMANTICS X5)."""
