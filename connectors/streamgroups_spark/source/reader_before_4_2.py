"""The reader of a streaming query in Spark 4.0 and 4.1, which call it without the start of a batch and without limits.

Created by ``source.readers``. ``streamgroups.query.implied_start`` finds the start of each batch, and the limits of the
user apply here instead of in Spark.

With the trigger ``availableNow`` Spark calls ``latestOffset`` once, while it still plans the query and before it reads the
checkpoint. All batches of the run end there. So the reader reads the checkpoint itself. It returns the end of an unfinished
batch, which Spark then runs again, or one batch with all available records. Source: PySpark's
``python_streaming_source_runner`` and Spark's ``AvailableNowMicroBatchStreamWrapper`` (4.0, 4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamgroups.query.implied_start import ImpliedStart
from streamgroups_spark.bridge.stage_name import StageName
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.source.readers import RangesPartition, StreamReader

if TYPE_CHECKING:
    from streamgroups_spark.source.running_query import RunningQuery

logger = logging.getLogger(__name__)


class ReaderBefore42(StreamReader):
    """Reads micro-batches as a member of the group, for Spark before 4.2."""

    _implied: ImpliedStart | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Excludes what stays on the driver."""
        return {**super().__getstate__(), "_implied": None}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Plans the next batch after the last one that Spark has run.

        Raises:
            InvalidOption: for the trigger ``availableNow`` if the query needs several batches.
        """
        batches = self._running()
        assert self._query is not None
        trigger = None if self._query.facts is None else self._query.facts.trigger
        if trigger == "AvailableNowTrigger":
            return self._all_available(self._query)
        # The trigger ``once`` has a single batch, without limits.
        limited = trigger != "OneTimeTrigger"
        return self._start().next(lambda start: batches.latest_offset(start, limited=limited))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """See :meth:`StreamReader.partitions`."""
        self._start().requested(start, end)
        return super().partitions(start, end)

    def _all_available(self, query: RunningQuery) -> dict[str, Any]:
        what = None if query.facts is None else needs_more_batches(query.facts)
        if what is not None:
            raise FEATURES.needs(f"The trigger availableNow with {what}", "4.2", otherwise="use another trigger")
        limits = self._options.limits
        if limits.max_offsets is not None or limits.target_batch_ms is not None:
            logger.warning(
                "PySpark %s reads all records in one batch: the trigger availableNow has no limits before 4.2",
                FEATURES.version,
            )
        query.micro_batches.run_until_now()
        start, last = self._start(), query.last_logged()
        if last is not None:
            start.requested(last.end, last.end)
            if not last.is_finished:
                return last.end
        return start.next(lambda it: query.micro_batches.latest_offset(it, limited=False))

    def _start(self) -> ImpliedStart:
        if self._implied is None:
            batches = self._running()
            assert self._query is not None
            self._implied = ImpliedStart(batches.initial_offset, self._query.last_batch, self._group_id)
        return self._implied


def needs_more_batches(facts: QueryFacts) -> str | None:
    """Returns the part of a query for which a single batch is not sufficient. ``None`` without such a part.

    >>> needs_more_batches(QueryFacts(None, frozenset(), stages=frozenset({("windows:flushes",)})))
    'flush=True'
    >>> needs_more_batches(QueryFacts(None, frozenset(), stages=frozenset({("dedup",)}))) is None
    True
    """
    stages = [StageName.parse(it) for branch in facts.stages for it in branch]
    if facts.time is not None:
        return "sg.with_event_time"
    if any(stage.topics is not None for stage in stages):
        return "sg.join"
    return "flush=True" if any(stage.flushes for stage in stages) else None
