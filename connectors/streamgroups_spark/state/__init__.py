"""Operators with state in the stage that reads (SEMANTICS S9, S10)."""
