"""``sg.side_effects.stable_batches``: the records of a batch are stored before a side effect (SEMANTICS X7)."""
