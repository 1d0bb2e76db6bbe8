"""Coordination of the members and tools of one group through metadata groups."""
