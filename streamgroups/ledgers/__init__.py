"""Decisions about writing exactly once: what a ledger's positions allow, where reading goes on, what is replayed."""
