"""Finds the start of the next batch for Spark before 4.2, which does not pass it to ``latestOffset``.

Used by ``streamgroups_spark.source.reader_before_4_2``, between Spark and ``micro_batches``. An unfinished batch must
never count as finished: the group would commit records that no sink has written. ``MicroBatchExecution`` of Spark 4.0 and
4.1 makes these calls::

    a new query   latestOffset() ─▶ initialOffset() ─▶ partitions(initial, end)
    next batches  latestOffset() ─▶ partitions(last end, end)
    a restart     partitions(last, last) ─▶ [partitions(start, last), if the last batch is unfinished] ─▶ latestOffset()

A batch that fails ends the query and this process. So at ``latestOffset`` the batch of the last ``partitions`` is
finished. Spark requests no partitions of a batch only if it has removed the source from the plan of this batch. Such a
batch counts as planned, until Spark's memory or its commit log contains its end. Source: SEMANTICS S1-S3; Spark's
``AcceptsLatestSeenOffset``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.query.query_ports import CommitLog


class ImpliedStart:
    """The start of the next batch of one run of a query.

    Args:
        initial: returns the offset before the first batch.
        commit_log: Spark's memory and commit log, which show whether a batch is finished.
        group_id: the group, for errors.

    >>> from types import SimpleNamespace
    >>> implied = ImpliedStart(lambda: {"n": 0}, SimpleNamespace(has_finished=lambda end: False), "board")
    >>> def plan(start):
    ...     return {"n": start["n"] + 1}
    >>> implied.next(plan), implied.next(plan)
    ({'n': 1}, {'n': 1})
    >>> implied.requested({"n": 0}, {"n": 1})
    >>> implied.next(plan)
    {'n': 2}
    """

    def __init__(self, initial: Callable[[], dict[str, Any]], commit_log: CommitLog, group_id: str) -> None:
        self._initial, self._commit_log, self._group_id = initial, commit_log, group_id
        self._has_planned = False
        #: The end of the last batch whose partitions Spark has requested, or of the last batch of the checkpoint.
        self._begun: dict[str, Any] | None = None
        #: The end of a batch whose partitions Spark has not requested yet.
        self._planned: dict[str, Any] | None = None

    def next(self, plan: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Returns the end of the next batch.

        Args:
            plan: plans the batch after an offset. It returns the offset itself if there is nothing to read.
        """
        if self._planned is not None:
            if not self._commit_log.has_finished(self._planned):
                return self._planned
            self._begun = self._planned
        start = self._initial() if self._begun is None else self._begun
        end = plan(start)
        self._has_planned, self._begun, self._planned = True, start, None if end == start else end
        return end

    def requested(self, start: Mapping[str, Any], end: dict[str, Any]) -> None:
        """Records that Spark requests the partitions of a batch, or names the last batch of the checkpoint.

        Raises:
            InvalidOption: if Spark names another batch than this run has planned. It has then read the checkpoint later.
        """
        if end == self._planned or not self._has_planned:
            self._begun, self._planned = end, None
        elif end != self._begun:
            raise InvalidOption(
                f"Spark has planned a batch of group '{self._group_id}' before it has read the checkpoint.",
                remedy="The trigger availableNow does that before Spark 4.2. Use PySpark 4.2 or newer, or another trigger.",
                group=self._group_id,
            )
