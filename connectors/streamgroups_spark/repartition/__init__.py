"""Topics that are partitioned by other keys than those of their producers."""
