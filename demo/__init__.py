"""The demo: two Spark queries share a topic of real flights, one is killed, and no flight is lost.

It runs from a clone as ``python -m demo`` (``make demo``) with the extra ``demo`` installed; not part of the installed
library.
"""
