"""W15: watermarks in a header are reported before their batch is returned, and markers are no rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.event_time.producer_watermarks import ProducerWatermarks, watermark_header
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client import messages
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_spark.source.watermark_header import Report, observed, with_needed_columns, without_markers

NAME = "w"
SCHEMA = with_needed_columns(pa.schema([("offset", pa.int64()), ("value", pa.binary())]))
Headers = list[tuple[str, bytes | None]] | None


@dataclass(frozen=True)
class Row:
    topic: str = "flights"
    partition: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = None

    @property
    def last_header(self) -> bytes | None:
        """The value that counts."""
        return [value for name, value in self.headers or [] if name == NAME][-1]

    @property
    def is_marker(self) -> bool:
        has_header = any(name == NAME for name, _ in self.headers or [])
        return has_header and self.key is None and self.value is None

    @property
    def watermark_ms(self) -> int | None:
        if not any(name == NAME for name, _ in self.headers or []) or self.last_header is None:
            return None
        digits = self.last_header.removeprefix(b"-")
        return int(self.last_header) if digits.isdigit() and len(digits) <= 15 else None


def into(reported: list[ProducerWatermarks]) -> Report:
    """Collects the watermarks that are reported."""
    return lambda watermarks, _: reported.extend(watermarks)


def batch(rows: Sequence[Row], first: int) -> pa.RecordBatch:
    columns = {
        "offset": range(first, first + len(rows)),
        "value": [row.value for row in rows],
        "topic": [row.topic for row in rows],
        "partition": [row.partition for row in rows],
        "key": [row.key for row in rows],
        "headers": [row.headers for row in rows],
    }
    return pa.record_batch([pa.array(columns[it.name], it.type) for it in SCHEMA], schema=SCHEMA)


_VALUES = st.none() | st.binary(max_size=3) | st.integers(-100, 10_000).map(lambda ms: str(ms).encode())
ROWS = st.builds(
    Row,
    st.sampled_from(["flights", "orders"]),
    st.integers(0, 2),
    st.sampled_from([None, None, b"", b"k"]),
    st.sampled_from([None, None, b"", b"v"]),
    st.none() | st.lists(st.tuples(st.sampled_from([NAME, NAME, "other"]), _VALUES), max_size=3),
)


@given(st.lists(ROWS, max_size=40), st.integers(1, 9))
def test_W15_watermarks_and_rows_are_those_of_each_record(rows: list[Row], size: int) -> None:
    reported: list[ProducerWatermarks] = []
    returned: list[int] = []
    cuts = range(0, len(rows), size)
    batches = (batch(rows[at : at + size], at) for at in cuts)
    for it in without_markers(batches, ["value", "offset"], NAME, into(reported)):
        assert it.schema.names == ["value", "offset"]
        assert it.num_rows > 0
        returned += it["offset"].to_pylist()
        # The watermarks of the batch are there, also those after its last row.
        last = it["offset"][-1].as_py()
        before, found = _watermarks(rows[: last + 1]), _reported(reported)
        assert all(found[place] >= time_ms for place, time_ms in before.items())
    assert returned == [offset for offset, row in enumerate(rows) if not row.is_marker]
    assert _reported(reported) == _watermarks(rows)


def _watermarks(rows: Sequence[Row]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for row in rows:
        if row.watermark_ms is not None:
            place = TopicPartition(row.topic, row.partition)
            found[place] = max(row.watermark_ms, found.get(place, row.watermark_ms))
    return found


def _reported(reported: Sequence[ProducerWatermarks]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for it in reported:
        assert list(it.offsets) == sorted(set(it.offsets))
        assert list(it.times_ms) == sorted(set(it.times_ms))
        found[it.topic_partition] = max(it.times_ms[-1], found.get(it.topic_partition, it.times_ms[-1]))
    return found


def test_W15_each_watermark_has_the_offset_of_its_record() -> None:
    rows = [
        Row(key=b"k", headers=[watermark_header(100, name=NAME)]),
        Row(headers=[watermark_header(90, name=NAME)]),
        Row(value=b"v"),
        Row(partition=1, headers=[watermark_header(50, name=NAME)]),
        Row(headers=[(NAME, b"soon"), watermark_header(200, name=NAME)]),
    ]
    reported: list[ProducerWatermarks] = []
    [returned] = without_markers(iter([batch(rows, 7)]), ["offset"], NAME, into(reported))
    assert returned["offset"].to_pylist() == [7, 9]
    assert sorted(reported, key=lambda it: it.topic_partition) == [
        ProducerWatermarks(TopicPartition("flights", 0), (7, 11), (100, 200)),
        ProducerWatermarks(TopicPartition("flights", 1), (10,), (50,)),
    ]
    assert {it.topic_partition.partition: it.producer_ms for it in observed(reported)} == {0: 200, 1: 50}


def test_W15_a_batch_of_markers_is_reported_and_not_returned() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch([Row(headers=[watermark_header(5, name=NAME)])], 0)
        assert [it.times_ms for it in reported] == [(5,)]
        yield batch([Row(value=b"v")], 1)

    reported: list[ProducerWatermarks] = []
    returned = [it["offset"].to_pylist() for it in without_markers(batches(), ["offset"], NAME, into(reported))]
    assert returned == [[1]]


def test_W15_an_unreadable_watermark_is_logged_counted_and_ignored(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_next_warning_s", {})
    rows = [Row(value=b"v", headers=[(NAME, it)]) for it in (b"2013-01-01", None, b"1732334879123000")]
    rows.append(Row(partition=1, value=b"v", headers=[(NAME, b"soon")]))
    reported: list[tuple[Sequence[ProducerWatermarks], Mapping[TopicPartition, int]]] = []
    with caplog.at_level(logging.WARNING):
        [returned] = without_markers(iter([batch(rows, 3)]), ["offset"], NAME, lambda *found: reported.append(found))
    assert (returned.num_rows, reported) == (
        4,
        [([], {TopicPartition("flights", 0): 3, TopicPartition("flights", 1): 1})],
    )
    [message, _] = caplog.messages
    assert "flights-0@3: its producer watermark is not in decimal milliseconds" in message


def test_W15_the_columns_that_it_needs_are_read_once() -> None:
    whole = pa.schema([(name, of) for name, of in COLUMNS.items()])
    assert with_needed_columns(whole) == whole
