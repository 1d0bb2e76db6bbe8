"""Benchmarks against Spark's own source, in one run on one machine: ``python -m benchmarks``. Only ratios are worth quoting."""
