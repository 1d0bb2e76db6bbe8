"""Windows over per-partition watermarks."""
