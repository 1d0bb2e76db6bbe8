"""The records that an independent reader has found in the outputs, as events. Called by campaigns at their end.

A record of an output is known by its value. :class:`Inputs` has the partition and the offset of the acknowledged record with this
value, so a history contains offsets only.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from confluent_kafka import Message

from integration_tests.campaign.computed import ComputedRow, parse_row
from integration_tests.campaign.windows import plain_count
from integration_tests.history.events import (
    Acknowledged,
    Event,
    ExpectedRow,
    UnknownWritten,
    Written,
    WrittenRow,
)
from streamgroups.partitions import TopicPartition

#: The place of a record of the input: its partition and its offset.
TopicOffset: TypeAlias = tuple[TopicPartition, int]
#: The records of one event.
_MAX_RECORDS = 1_000
#: How many acknowledged records wait for their event.
_MAX_PENDING = 400


def now_ms() -> int:
    """The current time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Inputs:
    """The acknowledged records of the input. One thread produces, and others read :attr:`places`.

    Args:
        record: stores events.
    """

    def __init__(self, record: Callable[..., None]) -> None:
        self._record, self._lock = record, threading.Lock()
        self._pending: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._n_pending, self._since_ms = 0, 0
        #: The partition and offset of each record, by its value.
        self.places: dict[str, TopicOffset] = {}

    def acknowledged(self, message: Message, prefix: str = "") -> None:
        """Stores an acknowledged record. One event has many records.

        Args:
            message: the record.
            prefix: the beginning of its name in :attr:`places`, if several topics have the same values.
        """
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert value is not None
        tp = TopicPartition(topic, partition)
        with self._lock:
            self.places[prefix + text_of(value)] = tp, offset
            # An event has the time of its first record: a record was never acknowledged before it.
            self._since_ms = self._since_ms if self._pending else now_ms()
            self._pending.setdefault(tp, []).append((offset, message.timestamp()[1]))
            self._n_pending += 1
            is_full = self._n_pending >= _MAX_PENDING
        if is_full:
            self.flush()

    def flush(self) -> None:
        """Appends the stored records to the history."""
        with self._lock:
            pending, self._pending, self._n_pending = self._pending, {}, 0
        events = [
            Acknowledged(self._since_ms, "producer", tp, tuple(n for n, _ in found), tuple(t for _, t in found))
            for tp, found in sorted(pending.items())
        ]
        if events:
            self._record(*events)


def text_of(value: bytes | str) -> str:
    """The value of a record without its padding."""
    return (value.decode() if isinstance(value, bytes) else value).rstrip(".")


def written(sink: str, values: Iterable[str], places: dict[str, TopicOffset]) -> Iterator[Event]:
    """The records of an output.

    Args:
        sink: ``output`` or ``letters``.
        values: the values, in the order of their commits within a partition.
        places: the places of all acknowledged records, by value.
    """
    by_partition: dict[TopicPartition, list[int]] = {}
    for value in values:
        if value in places:
            tp, offset = places[value]
            by_partition.setdefault(tp, []).append(offset)
        else:
            yield UnknownWritten(now_ms(), "reader", sink, value)
    for tp, offsets in sorted(by_partition.items()):
        for i in range(0, len(offsets), _MAX_RECORDS):
            yield Written(now_ms(), "reader", sink, tp, tuple(offsets[i : i + _MAX_RECORDS]))


#: The place of a record that was not produced. No group has a position there.
_NOT_PRODUCED = TopicPartition("", 0)


def expected_computed(rows: Iterable[ComputedRow], places: Mapping[str, TopicOffset]) -> Iterator[Event]:
    """The rows of a plain program.

    Args:
        rows: the rows.
        places: the places of all acknowledged records, by value.
    """
    for it in rows:
        # A campaign that does not settle has no records that close windows. Its rows can be in the output, and need not.
        place = places.get(str(it.number)) or (_NOT_PRODUCED, 0)
        yield ExpectedRow(now_ms(), "plain program", *place, it.row, it.result, is_last=place[0] != _NOT_PRODUCED)


def written_computed(values: Iterable[str]) -> Iterator[Event]:
    """The computed rows of an output, which are JSON."""
    for value in values:
        yield WrittenRow(now_ms(), "reader", *parse_row(value))


def written_rows(values: Iterable[str]) -> Iterator[Event]:
    """The rows of the windows of an output, which are JSON."""
    for row in map(json.loads, values):
        yield WrittenRow(now_ms(), "reader", _row(row["place"], row["start"], row["revision"]), _result(row))


def expected_rows(topic: str, count: int) -> Iterator[Event]:
    """The rows that pandas computes from the records.

    Args:
        topic: the topic of the input.
        count: the number of records, without those that close the windows.
    """
    found = plain_count(count)
    for it in found.assign(is_last=~found.duplicated(["start", "place"], keep="last")).to_dict("records"):
        tp = TopicPartition(topic, int(it["partition"]))
        row = _row(it["place"], it["start"], it["revision"])
        yield ExpectedRow(now_ms(), "pandas", tp, int(it["offset"]), row, _result(it), bool(it["is_last"]))


def _row(place: str, start: int, revision: int) -> str:
    return f"{place} at {int(start)}, revision {int(revision)}"


def _result(row: dict[str, int]) -> str:
    return f"n {int(row['n'])}, total {int(row['total'])}"
