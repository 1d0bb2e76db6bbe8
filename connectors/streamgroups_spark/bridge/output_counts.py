"""Counts of the output of the queries of an application: dead letters by step, and statements of divided batches.

Spark commits the output of a query in a process of its own. This process reports each batch that has them to the user's
process (``sg.register``), where ``ops.metrics_listener`` reads the counts. Source: SEMANTICS P4, X2.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from streamgroups_spark.messages.batch import OutputWritten

#: Counts by query id and name.
Counts = Mapping[str, Mapping[str, int]]


class OutputCounter:
    """The counts of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: dict[str, Counter[str]] = {}
        self._statements: dict[str, Counter[str]] = {}

    def add(self, written: OutputWritten) -> None:
        """Adds the counts of a batch."""
        with self._lock:
            self._letters.setdefault(written.query_id, Counter()).update(written.letters)
            self._statements.setdefault(written.query_id, Counter()).update(written.statements)

    def letters(self) -> Counts:
        """Returns the number of dead letters by query id and step, of all runs since the start of the process."""
        return self._copy(self._letters)

    def statements(self) -> Counts:
        """Returns the number of statements of divided batches by query id and way, likewise."""
        return self._copy(self._statements)

    def _copy(self, counts: Mapping[str, Counter[str]]) -> Counts:
        with self._lock:
            return {query_id: dict(of_query) for query_id, of_query in counts.items()}


OUTPUT = OutputCounter()
