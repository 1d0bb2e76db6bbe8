"""Reads exact ranges of offsets into Arrow.

Called in Spark's Python workers, one call per task (``streamgroups_spark.source.readers``). One client reads
several ranges at once, each to its end. Source: Spark's ``DataSourceReader.read``; librdkafka's partition EOF event. A
range ends with a record or the partition EOF event at or past its end. A timeout never ends it, because offsets have
gaps (SEMANTICS G13).

The native fetcher (``native_fetcher``) is used where it is available, else confluent-kafka's message objects
(``plain_fetcher``). This module handles errors and timeouts for both, ``gone_offsets`` missing offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from streamgroups.errors import ReadTimedOut, StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.free_memory import return_free_memory
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON
from streamgroups_kafka.client.login_rejections import LoginRejections
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.native import uses_native
from streamgroups_kafka.read.arrow_columns import to_batches
from streamgroups_kafka.read.fetcher import Fetcher, NewFetcher, PartitionError, ReadSettings
from streamgroups_kafka.read.gone_offsets import GoneOffsets
from streamgroups_kafka.read.native_fetcher import NativeFetcher
from streamgroups_kafka.read.plain_fetcher import PlainFetcher

#: After this time without progress, or after half of the timeout, the next batches are read without librdkafka.
_STALLED_S = 10.0
#: How long missing offsets of several partitions are collected before they are handled.
_DRAIN_S = 1.0
#: The errors of a partition whose next offset its broker does not have.
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


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
        self._gone = GoneOffsets(settings)
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
                progressed, errors = self._filled(fetcher)
                passed = self._on_errors(fetcher, errors)
                # Only records, ends of ranges and passed gaps count as progress; repeated errors of a broker do not.
                if progressed:
                    self._log.succeeded()
                if progressed or passed:
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
            self._gone.record_gaps()
            if is_large:
                return_free_memory()

    def _filled(self, fetcher: Fetcher) -> tuple[bool, list[PartitionError]]:
        """As :meth:`Fetcher.fill`, but collects missing offsets: the native fetcher returns one error per call."""
        progressed, found = fetcher.fill()
        errors = list(found)
        failed = {tp for tp, _ in found}
        until_s = time.monotonic() + _DRAIN_S
        # The last call waits for records, so it is left out if all open ranges have an error.
        while (
            any(_is_gone(error) for _, error in found)
            and len(failed) < fetcher.n_open()
            and not fetcher.full()
            and time.monotonic() < until_s
        ):
            is_more, found = fetcher.fill()
            progressed |= is_more
            errors += found
            failed.update(tp for tp, _ in found)
        return progressed, errors

    def _on_errors(self, fetcher: Fetcher, errors: Sequence[PartitionError]) -> bool:
        """Handles errors. Returns whether a range has passed missing offsets."""
        gone = dict.fromkeys(
            tp for tp, error in errors if tp is not None and _is_gone(error) and fetcher.find(tp) is not None
        )
        # Missing offsets are first, so that their gaps are recorded if another partition has a permanent error.
        passed = bool(gone) and self._gone.pass_over(fetcher, gone)
        for topic_partition, error in errors:
            if topic_partition is None:
                self._on_client_error(error)
            elif not _is_gone(error) and (required := fetcher.find(topic_partition)) is not None:
                self._on_error(required, error)
        return passed

    def _on_error(self, required: OffsetRange, error: KafkaError) -> None:
        if error.retriable() and not error.fatal():
            return
        tp = required.topic_partition
        translated = self._translated(error, f"Reading {tp} at offset {required.next_offset}", tp.topic)
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
            waiting = listed(f"{r.topic_partition} (to {r.end_offset})" for r in sorted(fetcher.remaining()))
            raise ReadTimedOut(
                (
                    f"No record and no end of partition within {self._settings.timeout_ms / 1000:.0f} s from "
                    f"{waiting}. {self._last_error}"
                ).strip(),
                remedy=(
                    "Check that the leaders of these partitions are up. kafkaConsumer.pollTimeoutMs sets the timeout."
                ),
            )


def _is_gone(error: KafkaError) -> bool:
    return error.code() in _GONE
