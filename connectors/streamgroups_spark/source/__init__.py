"""The data source, from its options to the running query."""
