"""The query engine: plans the batches of one streaming query in its group."""
