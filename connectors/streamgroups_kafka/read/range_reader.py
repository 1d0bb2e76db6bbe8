"""Reads exact ranges of offsets into Arrow.

Called in Spark's Python workers, one call per task (``streamgroups_spark.source.readers``). One client reads
several ranges at once, each to its end. Source: Spark's ``DataSourceReader.read``; librdkafka's partition EOF event. A
range ends with a record or the partition EOF event at or past its end. A timeout never ends it, because offsets have
gaps (SEMANTICS G13).

The native fetcher (``native_fetcher``) is used where it is available, else confluent-kafka's message objects
(``plain_fetcher``). This module handles errors and timeouts for both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from streamgroups.errors import DataLoss, ReadTimedOut, StreamGroupsError
from streamgroups.groups.gaps import Cause, Gap, PartitionGap
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import OnDataLoss
from streamgroups.retry import retrying
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.free_memory import return_free_memory
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON
from streamgroups_kafka.client.login_rejections import LoginRejections
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.native import uses_native
from streamgroups_kafka.read.arrow_columns import to_batches
from streamgroups_kafka.read.fetcher import Fetcher, NewFetcher, ReadSettings
from streamgroups_kafka.read.native_fetcher import NativeFetcher
from streamgroups_kafka.read.plain_fetcher import PlainFetcher

logger = logging.getLogger(__name__)

#: How long the request for the bounds of a partition is repeated.
_BOUNDS_S = 10.0
#: After this time without progress, or after half of the timeout, the next batches are read without librdkafka.
_STALLED_S = 10.0
#: How long a task waits for the metadata group for the gaps of its group.
_GAPS_S = 10.0


def read_ranges(ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Reads ranges concurrently, each in order.

    Args:
        ranges: the ranges to read. Several ranges of one partition are read one after the other.
        schema: the required columns, a subset of :data:`streamgroups_kafka.read.arrow_columns.COLUMNS`.
        settings: the settings of the reader.

    Yields:
        Arrow record batches of that schema. Records of one partition are in order.

    Raises:
        DataLoss: if offsets of a range are missing and the policy of the partition is to fail.
        ReadTimedOut: if a range yields neither a record nor its end for ``timeout_ms``.
        InvalidOption: if the native reader is required but not available.
        StreamGroupsError: if the broker rejects a request for another reason, or a record batch is damaged.
    """
    new_fetcher: NewFetcher = NativeFetcher if uses_native("reader") else PlainFetcher
    remaining = [r for r in ranges if len(r)]
    while remaining:
        one_each: dict[TopicPartition, OffsetRange] = {}
        for r in sorted(remaining):
            one_each.setdefault(r.topic_partition, r)
        yield from _Reading(one_each, schema, settings, new_fetcher).batches()
        remaining = [r for r in remaining if r != one_each[r.topic_partition]]


class _Reading:
    """The read of at most one range per partition. Not shared between threads."""

    def __init__(
        self,
        ranges: dict[TopicPartition, OffsetRange],
        schema: pa.Schema,
        settings: ReadSettings,
        new_fetcher: NewFetcher,
    ) -> None:
        self._ranges, self._schema, self._settings = ranges, schema, settings
        self._new_fetcher = new_fetcher
        self._last_error = ""
        self._log = client_log(settings.client.get("bootstrap.servers"))
        self._login = LoginRejections()
        self._gaps: list[PartitionGap] = []
        self._deadline_s = self._stalled_s = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            fetcher = self._new_fetcher(list(self._ranges.values()), self._schema, self._settings)
        except KafkaException as e:
            raise self._translated(e.args[0], "Reading") from None
        is_large = False
        try:
            self._progressed()
            while fetcher.n_open():
                progressed, errors = fetcher.fill()
                try:
                    for topic_partition, error in errors:
                        self._on_error(fetcher, topic_partition, error)
                finally:
                    self._record_gaps()
                # Only records and ends of ranges count as progress; repeated errors of a broker do not.
                if progressed:
                    self._log.succeeded()
                    self._progressed()
                else:
                    self._check(fetcher)
                    yield from self._not_parsed(fetcher)
                if fetcher.full():
                    is_large = True
                    yield fetcher.take()
                    # The time that the caller takes for the batch does not count against the broker.
                    self._progressed()
            last = fetcher.take()
            if last.num_rows:
                yield last
        finally:
            fetcher.close()
            if is_large:
                return_free_memory()

    def _on_error(self, fetcher: Fetcher, topic_partition: TopicPartition | None, error: KafkaError) -> None:
        if topic_partition is None:
            self._on_client_error(error)
            return
        required = next((r for r in fetcher.remaining() if r.topic_partition == topic_partition), None)
        if required is None:
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._on_gone(fetcher, topic_partition)
        elif error.fatal() or not error.retriable():
            what = f"Reading {topic_partition} at offset {required.next_offset}"
            translated = self._translated(error, what, topic_partition.topic)
            if not translated.retriable:
                raise translated
            self._last_error = str(translated)

    def _on_client_error(self, error: KafkaError) -> None:
        """Handles a connection error of librdkafka. A rejected login is permanent if no record arrives for the time of an outage: one
        broker of several can reject it.
        """
        translated = self._translated(error, "Reading")
        self._last_error = str(translated)
        self._log.failed(translated.what)
        self._login.seen(translated)

    def _translated(self, error: KafkaError, what: str, topic: str | None = None) -> StreamGroupsError:
        return to_streamgroups_error(error, what, topic=topic, redact=self._settings.client.redact)

    def _on_gone(self, fetcher: Fetcher, topic_partition: TopicPartition) -> None:
        """Handles an offset that the broker no longer has."""
        # Offsets can be out of range because the leader has changed. librdkafka then requests the bounds from the former
        # one, whose error refreshes its metadata.
        earliest, end = retrying(_BOUNDS_S, every_s=0.1)(self._bounds, fetcher, topic_partition)
        (required,) = (r for r in fetcher.remaining() if r.topic_partition == topic_partition)
        if earliest <= required.next_offset < end:
            # The offset exists: the error came from a broker that is not the leader.
            fetcher.seek(topic_partition, required.next_offset)
            return
        group_id = self._settings.group_id
        gone = f"Group '{group_id}': {required} cannot be read, because {topic_partition} now contains [{earliest}, {end})."
        policy = self._settings.on_data_loss.of(topic_partition)
        if policy is OnDataLoss.FAIL:
            raise DataLoss(
                gone,
                remedy="Set onDataLoss=skip or onDataLoss=earliest to continue at an existing offset, or reset "
                "the offsets with streamgroups groups reset.",
            )
        logger.warning("%s The missing records are skipped (onDataLoss=%s).", gone, policy.value)
        is_expired = required.next_offset < earliest
        continues_at = min(earliest, required.end_offset) if is_expired else required.end_offset
        if self._settings.records_gaps:
            cause = Cause.EXPIRED if is_expired else Cause.TRUNCATED
            gap = Gap(required.next_offset, continues_at, cause, now_ms())
            self._gaps.append(PartitionGap(topic_partition, gap))
        if required.next_offset < earliest < required.end_offset:
            fetcher.seek(topic_partition, earliest)
        else:
            fetcher.end(topic_partition)

    def _bounds(self, fetcher: Fetcher, topic_partition: TopicPartition) -> tuple[int, int]:
        try:
            return fetcher.bounds(topic_partition)
        except KafkaException as e:
            raise self._translated(e.args[0], f"The offsets of {topic_partition}", topic_partition.topic) from None

    def _record_gaps(self) -> None:
        """Records the new gaps together: the records of many partitions expire at the same time."""
        gaps, self._gaps = self._gaps, []
        if not gaps:
            return
        # Each worker waits for the imports of this module, and few have a gap to record.
        from streamgroups_kafka.admin.gap_records import GapRecords
        from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore

        settings = self._settings
        records = GapRecords(
            lambda: KafkaMetadataStore(settings.client, retry_timeout_s=_GAPS_S), settings.group_id, now_ms
        )
        records.record(gaps, alone=False)

    def _progressed(self) -> None:
        timeout_s = self._settings.timeout_ms / 1000
        self._login.progressed()
        now_s = time.monotonic()
        self._deadline_s, self._stalled_s = now_s + timeout_s, now_s + min(_STALLED_S, timeout_s / 2)

    def _not_parsed(self, fetcher: Fetcher) -> Iterator[pa.RecordBatch]:
        """Reads the batches that librdkafka cannot parse. It delivers neither their records nor an error."""
        if time.monotonic() < self._stalled_s:
            return
        # Each worker waits for the imports of this module, and few need it.
        with KAFKA_PYTHON:
            from streamgroups_kafka.admin.batch_fetch import fetched_batches
        for required, found in fetched_batches(self._settings.client, fetcher.remaining()):
            # The earlier records of the partition are first.
            earlier = fetcher.take()
            if earlier.num_rows:
                yield earlier
            yield from to_batches(found.records, self._schema)
            if found.next_offset < required.end_offset:
                fetcher.seek(required.topic_partition, found.next_offset)
            else:
                fetcher.end(required.topic_partition)
            self._progressed()
        self._stalled_s = time.monotonic() + _STALLED_S

    def _check(self, fetcher: Fetcher) -> None:
        self._login.check()
        if time.monotonic() > self._deadline_s:
            waiting = ", ".join(f"{r.topic_partition} (to {r.end_offset})" for r in sorted(fetcher.remaining()))
            raise ReadTimedOut(
                (
                    f"No record and no end of partition within {self._settings.timeout_ms / 1000:.0f} s from "
                    f"{waiting}. {self._last_error}"
                ).strip(),
                remedy=(
                    "Check that the leaders of these partitions are up. kafkaConsumer.pollTimeoutMs sets the timeout."
                ),
            )
