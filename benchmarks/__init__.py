"""Benchmarks against the readers a user would have otherwise, in one run on one machine: ``python -m benchmarks``.

Only ratios are worth quoting: they compare what ran in the same minute on the same machine. How to run and read them is in
``docs/benchmarks.rst``.
"""
