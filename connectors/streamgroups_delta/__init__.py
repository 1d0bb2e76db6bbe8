"""Delta Lake: a sink with its ledger in the log of the table. Only this package imports ``deltalake``."""
