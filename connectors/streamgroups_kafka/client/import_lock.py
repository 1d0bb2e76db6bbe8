"""The lock for imports of kafka-python during a query.

Used by modules of the process of a query that import kafka-python at its first use (``admin.cluster``,
``admin.group_limit``, ``cursors.reader``, ``read.range_reader``), and by ``streamgroups_spark.source.background``, which
imports it in a thread of its own. The modules of kafka-python import each other. So two threads that import different
modules at the same time can wait for each other, and Python ends one of the imports with an error. Source: the module locks of Python's ``importlib``.
"""

from __future__ import annotations

import threading

#: Held during such an import. Reentrant, because one of these modules imports another one.
KAFKA_PYTHON = threading.RLock()
