"""Windows as an operator with state: their definition, the time of a partition, and a run for each kind of shape."""
