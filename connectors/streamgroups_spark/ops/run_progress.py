"""Whether the current run of a supervised query has finished a batch with records.

Used by ``ops.supervise``. Spark keeps the progress of the last batches, as many as a setting permits. With a small number these
can all be batches without records, and with 1 Spark keeps none. Then the committed offsets of the query are compared with
those at the beginning of the run.
"""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.supervision.progress import has_read
from streamgroups_spark.internals.kept_progress import DEFAULT_RETENTION
from streamgroups_spark.internals.private_spark import committed_offsets, progress_retention

logger = logging.getLogger(__name__)


class RunProgress:
    """The progress of the consecutive runs of one query."""

    def __init__(self) -> None:
        self._query: StreamingQuery | None = None
        #: The committed offsets at the beginning of the run. A run begins at the end of the one before. Empty if it is unknown.
        self._before: list[str | None] = []
        self._needs_offsets = False

    def begin(self, query: StreamingQuery) -> None:
        """Begins a run, whose query has started."""
        self._query, self._needs_offsets = query, False
        try:
            retention = progress_retention(query)
        except (Py4JError, PySparkException) as e:
            logger.debug("The settings of a query cannot be determined: %s", e)
            return
        self._needs_offsets = retention is not None and retention < DEFAULT_RETENTION

    def poll(self) -> None:
        """Reads the offsets at the beginning of the first run, which Spark reads from the checkpoint after the start. With a new
        checkpoint these are the offsets after the first batch: a failure of the second one counts as one without progress.
        """
        if not self._before:
            self._before = self._committed()

    def has_finished_batch(self) -> bool:
        """Returns whether the run, which has failed, has finished a batch with records."""
        if self._query is None:
            return False
        # A batch that only warms up workers, or only advances the watermark, can finish although no other batch does.
        finished = any(batch.numInputRows > 0 for batch in self._query.recentProgress)
        after = self._committed()
        if after:
            finished |= bool(self._before) and has_read(self._before, after)
            self._before = after
        return finished

    def _committed(self) -> list[str | None]:
        if not self._needs_offsets or self._query is None:
            return []
        try:
            return committed_offsets(self._query)
        except (Py4JError, PySparkException) as e:
            logger.debug("The committed offsets of a query cannot be determined: %s", e)
            return []
