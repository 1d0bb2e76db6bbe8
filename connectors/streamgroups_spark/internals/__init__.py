"""Access to Spark's checkpoints, plans and Python processes."""
