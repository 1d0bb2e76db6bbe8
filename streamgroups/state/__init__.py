"""State of operators, stored per source partition and addressed by offset (SEMANTICS S10)."""
