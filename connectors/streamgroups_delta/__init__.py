"""Delta Lake: a sink whose ledger lies in the table's own log. The only package here that imports ``deltalake``."""
