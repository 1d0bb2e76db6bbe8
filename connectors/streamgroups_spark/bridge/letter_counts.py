"""The number of dead letters that the queries of an application have written, by step.

Spark commits the output of a query in a process of its own. This process reports each batch with dead letters to the
user's process (``sg.register``), where ``ops.metrics_listener`` reads the counts. Source: SEMANTICS P4.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from streamgroups_spark.messages.batch import LettersWritten


class LetterCounter:
    """The counts of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, written: LettersWritten) -> None:
        """Adds the dead letters of a batch."""
        with self._lock:
            self._counts.setdefault(written.query_id, Counter()).update(written.by_step)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the number of dead letters by query id and step, of all runs since the start of the process."""
        with self._lock:
            return {query_id: dict(of_query) for query_id, of_query in self._counts.items()}


LETTERS = LetterCounter()
