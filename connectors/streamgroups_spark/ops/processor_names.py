"""The processors of the queries of this application, for the label ``processor`` of their metrics.

``processors.building`` adds a query when it starts, and ``ops.metrics_listener`` reads them. Spark's events contain
the name of a query, and nothing else that its program sets. Source: SEMANTICS O3, P1; Spark's ``QueryStartedEvent``.
"""

from __future__ import annotations

#: The processor, as ``<instance>.<name>``, by the name of the query. The replicas of a processor have queries of different names.
PROCESSORS: dict[str, str] = {}
