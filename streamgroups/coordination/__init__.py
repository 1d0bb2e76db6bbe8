"""How members and tools of one group coordinate through metadata groups."""
