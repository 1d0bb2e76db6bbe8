"""Integration tests: one file for each promise, on a real broker with real Spark. ``make integration`` runs them."""
