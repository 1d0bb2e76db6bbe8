"""Topics, groups and committed offsets of a cluster."""
