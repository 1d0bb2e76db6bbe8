"""What a query's checkpoint holds, and what a restart does with it."""
