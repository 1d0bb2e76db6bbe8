"""Decisions about ledgers: whether and how a batch is committed together with its positions."""
