"""Per-partition watermarks in Spark."""
