"""Sinks with their own ledger: PostgreSQL and Delta Lake. Each folder imports the client of its system."""
