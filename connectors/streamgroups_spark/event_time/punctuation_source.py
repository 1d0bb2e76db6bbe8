"""The data source ``streamgroups-time``: punctuations, which advance Spark's watermark to that of this library.

Used by ``event_time.with_event_time`` and registered by ``register``. A punctuation is a row with the event time up to
which the input is complete. Before each batch Spark requests new rows, and this source requests the watermark from the
source of the records by driver RPC. Spark's offset contains the watermark, so a restarted query continues from it. The
rows are created on the driver and need no Python task. Source: SEMANTICS W10, W14; Spark's
``SimpleDataSourceStreamReader`` and ``EventTimeWatermark``.

A stream that imports a watermark follows the running queries of this application at once. Each reply names the group that
its stream imports from. So only streams that run now count, with their current settings. A process that does not respond can
read for the group too, so the watermark does not advance without its reply.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructField, StructType, TimestampType

from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.event_time.imported_watermark import check_imports
from streamgroups.event_time.reported_watermarks import reported_watermark, unknown_sources
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, decode_watermark, encode_watermark, latest
from streamgroups_spark.bridge.punctuation_options import SPARK_LATE_MS, delay_in_spark_ms, stream_time
from streamgroups_spark.bridge.rpc import USER, request_each
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.spark_api import SupportsTriggerAvailableNow
from streamgroups_spark.messages.time import ClusterRequest, StreamTime, TimeReply, TimeRequest

logger = logging.getLogger(__name__)

#: Spark polls an idle source every 10 ms.
_POLL_INTERVAL_S = 0.04


class TimeDataSource(DataSource):
    """The format ``streamgroups-time``, with one column ``time``."""

    #: The id by which the processes of a session connect to each other. ``sg.register`` sets it.
    session: ClassVar[str] = "alone"

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return PUNCTUATIONS

    def schema(self) -> StructType:
        """Returns the column of the time.

        It is nullable, or Spark would remove the filter that hides punctuations from users.
        """
        return StructType([StructField("time", TimestampType(), nullable=True)])

    def simpleStreamReader(self, schema: StructType) -> TimeReader:
        """Returns the reader. Spark creates it in several processes, so its constructor connects to nothing."""
        return TimeReader(self.session, stream_time(self.options))


@dataclass(frozen=True, slots=True)
class _GroupReplies:
    """The replies about a group.

    Args:
        by_address: the reply of each source that reads for it.
        unknown: the processes without a reply that can read for it.
    """

    by_address: dict[str, TimeReply]
    unknown: frozenset[str]

    def watermark(self, own: frozenset[str] | None = None) -> Watermark:
        """See :func:`reported_watermark`."""
        watermarks = {address: reply.state.watermark for address, reply in self.by_address.items()}
        return reported_watermark(watermarks, self.unknown, own)

    @property
    def settings(self) -> TimeSettings:
        """The settings of the group. All its queries in a session have the same ones."""
        return next(iter(self.by_address.values())).settings


class TimeReader(Shipped, SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Requests the watermark and returns it as punctuations.

    Args:
        session: the session of the sources.
        stream: the stream whose watermark is emitted.
        clock_s: a monotonic clock, in seconds.
    """

    def __init__(self, session: str, stream: StreamTime, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._session, self._stream, self._clock_s = session, stream, clock_s
        self._cluster_id: str | None = None
        #: The processes that have replied for the stream. One of them is its source. The others run the same DataFrame.
        self._own: frozenset[str] = frozenset()
        #: The processes that do not read for a group, and those without a reply after their warning.
        self._others: dict[str, set[str]] = {}
        self._warned: dict[str, frozenset[str]] = {}
        self._in_vain_s: float | None = None
        self._until_now = False

    def initialOffset(self) -> dict[str, Any]:
        """Returns an offset without a watermark."""
        return self._offset(NOT_YET)

    def prepareForTriggerAvailableNow(self) -> None:
        """Disables the rate limit of requests: an ``availableNow`` query ends at the first reply without new rows."""
        self._until_now = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        """Returns the rows after ``start``: at most one punctuation."""
        before = decode_watermark(start["watermark"])
        if not self._until_now and self._in_vain_s is not None and self._clock_s() - self._in_vain_s < _POLL_INTERVAL_S:
            return iter(()), start
        now = self._asserted(before)
        if now == before or not isinstance(now, At):
            self._in_vain_s = self._clock_s()
            return iter(()), start
        self._in_vain_s = None
        return self._rows(now), self._offset(now)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Returns the same rows again, after a restart."""
        return self._rows(decode_watermark(end["watermark"]))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the offset contains the emitted watermark."""

    def _rows(self, watermark: Watermark) -> Iterator[pa.RecordBatch]:
        """Creates the punctuation for a watermark: see :func:`delay_in_spark_ms` and :data:`SPARK_LATE_MS`."""
        if not isinstance(watermark, At):
            return iter(())
        time_ms = watermark.time_ms + delay_in_spark_ms(self._stream.settings) - SPARK_LATE_MS
        times = pa.array([time_ms * 1_000], pa.timestamp("us", "UTC"))
        # Spark copies the iterator to read it again, which is impossible for a generator.
        return iter([pa.record_batch([times], names=["time"])])

    def _offset(self, watermark: Watermark) -> dict[str, Any]:
        return {
            "version": 1,
            "kind": PUNCTUATIONS,
            "group": self._stream.group_id,
            "watermark": encode_watermark(watermark),
        }

    def _asserted(self, before: Watermark) -> Watermark:
        """The watermark of the stream and of the streams that it follows. It never decreases."""
        if self._cluster_id is None:
            # It is the same for the whole run. Without it, a group of the same name in another cluster would reply too.
            found = request_each(self._session, ClusterRequest(self._stream.reported_as))
            replies = {address: reply for address, reply in found.by_address.items() if reply is not None}
            if not replies or found.missing - {USER}:
                # The source of the records has not started, or does not respond.
                return before
            self._own, self._cluster_id = frozenset(replies), next(iter(replies.values()))
        asserted = latest(before, *(it.watermark() for it in self._followed().values()))
        own = self._request(self._stream.group_id, asserted, self._stream.settings)
        if own.by_address.keys().isdisjoint(self._own):
            # The source has ended. The source of its next run has another address.
            self._cluster_id = None
        return latest(asserted, own.watermark(self._own))

    def _followed(self) -> dict[str, _GroupReplies]:
        """The replies of the group that the stream imports from, of the group that this one imports from, and so on.

        A group without a running query in this session ends the chain.

        Raises:
            InvalidOption: see :func:`check_imports`.
        """
        stream, found = self._stream, dict[str, _GroupReplies]()
        group_id = stream.settings.import_from
        while group_id is not None and group_id not in (stream.group_id, *found):
            replies = self._request(group_id, NOT_YET)
            if not replies.by_address:
                break
            found[group_id] = replies
            group_id = replies.settings.import_from
        check_imports(
            stream.group_id,
            {stream.group_id: stream.settings, **{name: replies.settings for name, replies in found.items()}},
        )
        return found

    def _request(self, group_id: str, asserted: Watermark, settings: TimeSettings | None = None) -> _GroupReplies:
        found = request_each(self._session, TimeRequest(group_id, asserted, settings, self._cluster_id))
        others = self._others.setdefault(group_id, set())
        others |= {address for address, reply in found.by_address.items() if reply is None}
        # The user's process reads for no group.
        unknown = unknown_sources(found.missing - {USER}, others)
        if unknown - self._warned.get(group_id, frozenset()):
            logger.warning(
                "The watermark of group '%s' does not advance until the processes %s of this Spark session respond: they can "
                "read for the group. If they are stopped, continue or end them",
                group_id,
                ", ".join(sorted(unknown)),
            )
        self._warned[group_id] = unknown
        return _GroupReplies({at: it for at, it in found.by_address.items() if it is not None}, unknown)
