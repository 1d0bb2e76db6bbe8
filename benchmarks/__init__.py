"""Benchmarks of this library and of alternative readers, in one run on one machine: ``python -m benchmarks``.

Only ratios are comparable, because they compare runs of the same minute on the same machine. ``docs/benchmarks.rst``
describes how to run and read them.
"""
