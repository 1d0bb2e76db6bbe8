"""The demo: two Spark queries share a topic of real flights and windows of delays, one is killed, and the windows are
exactly those of pandas.

It runs from a clone as ``python -m demo`` (``make demo``) with the extra ``demo`` installed; not part of the installed
library.
"""
