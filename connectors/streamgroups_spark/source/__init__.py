"""The data source: from options to a running query."""
