"""The state of windows in Spark's state store, with one key for each bucket.

Created by ``windows.windows`` on the driver and run by Spark's workers. Spark calls ``handleInputRows`` for each bucket of
a batch with records, and ``handleExpiredTimer`` when time advances. A timer one tick after the current time wakes every
bucket in the next batch with a later time. All buckets therefore have the time of the previous batch. Source:
``StatefulProcessor`` of Spark 4.2. Processing-time timers run a batch per trigger, with or without records. Event-time
timers run one when the watermark advances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from streamgroups.errors import InvalidOption
from streamgroups.event_time.windows import EventTime
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.windows.bucket_columns import WindowPlan, from_bytes, to_bytes
from streamgroups_spark.windows.bucket_state import BucketBatch, BucketState, decode, encode, process

EVENT_TIME, PROCESSING_TIME = "EventTime", "ProcessingTime"


def time_mode(plan: WindowPlan) -> str:
    """Returns the time mode of the timers. In both modes Spark provides the watermark and the clock."""
    boundary = plan.operator.windowing.boundary
    return EVENT_TIME if isinstance(boundary, EventTime) and boundary.idle_timeout_ms is None else PROCESSING_TIME


class WindowProcessor(Shipped, StatefulProcessor):
    """Applies ``windows.bucket_state`` to the buckets of a query.

    Args:
        plan: the definition of the query.
    """

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        prepare_python_worker()
        self._handle = handle
        self._bucket = handle.getValueState("bucket", "json STRING, timer_ms BIGINT, form STRING")
        self._segments = _StoredSegments(handle.getMapState("segments", "number BIGINT", "rows BINARY"))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N803
        records: list[pa.Table] = []
        starts: set[int] = set()
        for row in rows:
            starts.update(row.starts or ())
            if row.records is not None:
                records.append(from_bytes(bytes(row.records)))
        yield from self._process(timerValues, records, frozenset(starts), has_records=True)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        yield from self._process(timerValues, [], frozenset(), has_records=False)

    def close(self) -> None:
        """Does nothing: no resources are open."""

    def _process(
        self, timer: TimerValues, records: list[pa.Table], starts_ms: frozenset[int], *, has_records: bool
    ) -> Iterator[Row]:
        now_ms, watermark_ms = timer.getCurrentProcessingTimeInMs(), timer.getCurrentWatermarkInMs()
        found = self._bucket.get()
        if found is not None and found[2] != self._plan.form:
            raise InvalidOption(
                f"The checkpoint contains windows {found[2]}, but the query defines {self._plan.form}.",
                remedy="Revert the change, or start with a new checkpoint.",
            )
        state = BucketState() if found is None else decode(found[0])
        # Before its first record, Spark's watermark is 1970.
        batch = BucketBatch(watermark_ms if watermark_ms > 0 else None, now_ms, has_records, starts_ms)
        state, output = process(self._plan.operator, self._segments, state, batch, records)
        wake_ms = 1 + (max(watermark_ms, 0) if time_mode(self._plan) == EVENT_TIME else now_ms)
        if found is None or found[1] != wake_ms:
            self._handle.registerTimer(wake_ms)
        self._bucket.update((encode(state), wake_ms, self._plan.form))
        for table in output:
            yield Row(rows=to_bytes(table))


class _StoredSegments:
    """The segments in Spark's state store."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, number: int) -> pa.Table:
        found = self._state.getValue((number,))
        assert found is not None, "the state of the bucket names it"
        return from_bytes(bytes(found[0]))

    def put(self, number: int, rows: pa.Table) -> None:
        self._state.updateValue((number,), (to_bytes(rows),))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))
