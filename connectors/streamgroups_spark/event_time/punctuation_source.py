"""The data source ``streamgroups-time``: punctuations, by which Spark's watermark follows ours.

Hidden behind ``event_time.with_event_time``, registered by ``sg.register``. A row is a point in time: all before it has come. Before each batch Spark
asks for what is new; this source asks the one that reads the records (``rpc``) how far its time has come. Where it has come to stands in Spark's
offset, so a query that is started again goes on there. Its rows are made on the driver: they cost no task in Python.
Source: SEMANTICS W10, W14; Spark's ``SimpleDataSourceStreamReader`` and ``EventTimeWatermark``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType, TimestampType

from streamgroups.event_time.encoding import decode_watermark, encode_watermark
from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest, oldest
from streamgroups_spark.event_time.messages import StreamTime, TimeRequest
from streamgroups_spark.internals.rpc import ask
from streamgroups_spark.internals.shipping import Shipped

#: Spark takes a record *at* its watermark for late, we do not: what Spark is told is so much earlier.
SPARK_LATE_MS = 1
#: Spark asks every 10 ms when there is nothing to do.
_ASK_EVERY_S = 0.04
_KIND = "streamgroups-time"


def options_of(
    group_ids: Sequence[str], given: Mapping[str, str], *, reported_as: str, read_column: str | None
) -> dict[str, str]:
    """The options of the time source. They are in the query's plan, so the plan alone says how its time is made.

    Args:
        group_ids: the group whose time it asserts, the one it is imported from, and so on.
        given: the options of its time.
        reported_as: see :class:`StreamTime`.
        read_column: see :class:`StreamTime`.

    >>> options_of(["trades"], {"watermarkDelay": "5s"}, reported_as="5f2c", read_column="timestamp")
    {'groups': '["trades"]', 'time': '{"watermarkDelay": "5s"}', 'reported_as': '5f2c', 'read_column': 'timestamp'}
    """
    options = {"groups": json.dumps(list(group_ids)), "time": json.dumps(dict(given)), "reported_as": reported_as}
    return options if read_column is None else {**options, "read_column": read_column}


def stream_time(options: Mapping[str, str]) -> StreamTime:
    """How the time of a stream is made, by the options of its time source.

    >>> stream_time(options_of(["trades"], {"watermarkDelay": "5s"}, reported_as="5f2c", read_column=None)).settings.generation.delay_ms
    5000
    """
    settings = time_settings({}, json.loads(options["time"]))
    return StreamTime(json.loads(options["groups"])[0], settings, options["reported_as"], options.get("read_column"))


def delay_in_spark_ms(settings: TimeSettings) -> int:
    """How far Spark's watermark is behind the times that it sees. Its dropDuplicatesWithinWatermark remembers a record for so long.

    Spark subtracts the delay from the latest time, and ours is subtracted already: punctuations are ahead of our watermark by it.

    >>> from streamgroups.event_time.strategy import Generation
    >>> delay_in_spark_ms(TimeSettings(Generation(delay_ms=5_000))), delay_in_spark_ms(TimeSettings(Generation(delay_ms=-1)))
    (5000, 0)
    """
    return max(0, settings.generation.delay_ms) if settings.generation is not None else 0


class TimeDataSource(DataSource):
    """``format("streamgroups-time")``: one column, ``time``."""

    #: How the processes of a session find each other; ``sg.register`` sets it.
    session: ClassVar[str] = "alone"

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _KIND

    def schema(self) -> StructType:
        """A point in time. Nullable: Spark would else leave out the filter that keeps punctuations from users."""
        return StructType([StructField("time", TimestampType(), nullable=True)])

    def simpleStreamReader(self, schema: StructType) -> TimeReader:
        """Made in several processes: it does nothing until it is called."""
        groups = tuple(json.loads(self.options["groups"]))
        return TimeReader(self.session, groups, time_settings({}, json.loads(self.options["time"])))


class TimeReader(Shipped, SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks how far time has come.

    Args:
        session: where to ask.
        group_ids: the group whose time is asserted, the one it is imported from, and so on.
        settings: how the first one's time is made.
        clock_s: seconds that go on.
    """

    def __init__(
        self,
        session: str,
        group_ids: tuple[str, ...],
        settings: TimeSettings,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._group_ids, self._settings, self._clock_s = session, group_ids, settings, clock_s
        self._in_vain_s: float | None = None
        self._until_now = False

    def initialOffset(self) -> dict[str, Any]:
        """Nothing is asserted."""
        return self._offset(NOT_YET)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on it is asked each time: an ``availableNow`` ends when it is told once that there is nothing."""
        self._until_now = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        """What is new since ``start``: at most one punctuation."""
        before = decode_watermark(start["watermark"])
        if not self._until_now and self._in_vain_s is not None and self._clock_s() - self._in_vain_s < _ASK_EVERY_S:
            return iter(()), start
        now = self._asserted(before)
        if now == before or not isinstance(now, At):
            self._in_vain_s = self._clock_s()
            return iter(()), start
        self._in_vain_s = None
        return self._rows(now), self._offset(now)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """The same again, after a restart."""
        return self._rows(decode_watermark(end["watermark"]))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was asserted stands in the offset."""

    def _rows(self, watermark: Watermark) -> Iterator[pa.RecordBatch]:
        """What makes Spark's watermark ours: see :func:`delay_in_spark_ms` and :data:`SPARK_LATE_MS`."""
        if not isinstance(watermark, At):
            return iter(())
        time_ms = watermark.time_ms + delay_in_spark_ms(self._settings) - SPARK_LATE_MS
        times = pa.array([time_ms * 1_000], pa.timestamp("us", "UTC"))
        # Spark copies the iterator, to read it again: a generator could not be.
        return iter([pa.record_batch([times], names=["time"])])

    def _offset(self, watermark: Watermark) -> dict[str, Any]:
        return {"version": 1, "kind": _KIND, "group": self._group_ids[0], "watermark": encode_watermark(watermark)}

    def _asserted(self, before: Watermark) -> Watermark:
        """What the stream and those it imports from assert together; never less than before."""
        imported = [self._told(group_id, TimeRequest(group_id, NOT_YET)) for group_id in self._group_ids[1:]]
        asserted = latest(before, *imported)
        own = self._told(self._group_ids[0], TimeRequest(self._group_ids[0], asserted, self._settings))
        return latest(asserted, own)

    def _told(self, group_id: str, question: TimeRequest) -> Watermark:
        # Several queries of this session may share the group; and one that ends is there for a moment longer.
        return oldest(*(told.state.watermark for told in ask(self._session, question)))


def group_in(offset: Any) -> str | None:
    """The group whose time a source asserts, by one of its offsets; ``None`` if the offset is another source's.

    >>> group_in({"version": 1, "n": 7, "ranges": {}}) is None
    True
    """
    return str(offset["group"]) if isinstance(offset, dict) and offset.get("kind") == _KIND else None
