"""X2: record batches made of Arrow: the same bytes natively and by kafka-python, and read back as they were."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.errors import RecordRejected
from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity
from streamgroups_kafka.write.first_cut import FirstCut
from streamgroups_kafka.write.record_batches import BatchSettings, encode
from unit_tests.examples import sequences
from unit_tests.records import (
    IDENTITIES,
    SEQUENCES,
    Row,
    batches,
    decoded,
    encoded,
    expected,
    kafka_batches,
    one_column,
)


@settings(deadline=None, max_examples=sequences(60))
@given(
    given_=batches(),
    batch_bytes=st.integers(1, 600) | st.just(1 << 20),
    who=IDENTITIES,
    sequences=SEQUENCES,
    cut=st.none() | st.builds(FirstCut, st.integers(0, 2**31 - 1), st.booleans()),
)
def test_both_encoders_make_the_same_and_kafka_python_reads_it(
    extension: Any,
    given_: tuple[pa.RecordBatch, list[Row]],
    batch_bytes: int,
    who: ProducerIdentity | None,
    sequences: Mapping[int, int],
    cut: FirstCut | None,
) -> None:
    """Byte for byte, any types, nulls, slices, order of partitions, limits, identities and cuts."""
    batch, rows = given_
    how = {"producer": who, "next_sequences": sequences, "cut": cut}
    made = encoded("native", batch, BatchSettings(batch_bytes), **how)
    assert made == encoded("plain", batch, BatchSettings(batch_bytes), **how)
    assert [record for one in made for record in decoded(one)] == expected(rows)
    next_sequences: dict[int, int] = {partition: sequences.get(partition, 0) for partition in range(4)}
    for one in made:
        (header,) = kafka_batches(one.data)
        assert len(one.data) <= batch_bytes or one.n_records == 1
        assert header.last_offset_delta + 1 == one.n_records
        assert rows[one.first_row]["partition"] == one.partition
        if who is None:
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
            assert one.base_sequence is one.next_sequence is None
            continue
        sequence = next_sequences.get(one.partition, 0)
        assert (header.producer_id, header.producer_epoch) == (who.producer_id, who.epoch)
        assert header.is_transactional == who.transactional
        assert header.base_sequence == one.base_sequence == sequence
        next_sequences[one.partition] = (sequence + one.n_records) % 2**31


@pytest.mark.parametrize("count", [64, 65, 8_192, 8_193])
def test_a_batch_of_many_records_has_room_for_their_offsets(using: str, count: int) -> None:
    """From the 65th record on an offset in a batch takes two bytes, from the 8,193rd on three; its size is planned before."""
    rows = one_column(["x"] * count)
    (made,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert [value for _, _, _, value, _ in decoded(made)] == [b"x"] * count
    most = BatchSettings(len(made.data))
    assert [one.n_records for one in encode(rows, most, topic="t", now_ms=0)] == [count]
    assert len(encode(rows, BatchSettings(len(made.data) - 1), topic="t", now_ms=0)) == 2


def test_X2_sequences_of_the_next_batches_begin_again_at_zero(using: str) -> None:
    """Kafka's sequence numbers are 31 bits; the last one before 0 is 2^31 - 1."""
    rows = one_column(["x"] * 4)
    most = len(encode(rows.slice(0, 1), BatchSettings(), topic="t", now_ms=0)[0].data)
    who = ProducerIdentity(7, 0, transactional=True)
    made = encode(rows, BatchSettings(most), topic="t", now_ms=0, producer=who, next_sequences={0: 2**31 - 2})
    assert [one.base_sequence for one in made] == [2**31 - 2, 2**31 - 1, 0, 1]
    assert [header.base_sequence for one in made for header in kafka_batches(one.data)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_the_latest_time_of_a_batch_is_in_its_header(using: str) -> None:
    times = pa.array([5, 9, 7], pa.timestamp("ms"))
    (made,) = encode(one_column(["a", "b", "c"], timestamp=times), BatchSettings(), topic="t", now_ms=0)
    (header,) = kafka_batches(made.data)
    assert (header.first_timestamp, header.max_timestamp) == (5, 9)


def test_partitions_of_any_number_are_sorted(using: str) -> None:
    """By all four bytes: the first of these come last by one byte, the next by two, or three."""
    partitions = [255, 256, 65_535, 65_536, 2**24 - 1, 2**24, 2**31 - 1, 0]
    rows = pa.record_batch({"partition": pa.array(partitions, pa.int32()), "value": [str(p) for p in partitions]})
    made = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert [(b.partition, value) for b in made for _, _, _, value, _ in decoded(b)] == [
        (p, str(p).encode()) for p in sorted(partitions)
    ]


def test_many_records_in_one_batch(using: str) -> None:
    """From 64 on the number of a record in its batch takes two bytes, from 8,192 on three."""
    (made,) = encode(one_column([str(i) for i in range(8_200)]), BatchSettings(), topic="t", now_ms=0)
    assert [value for _, _, _, value, _ in decoded(made)] == [str(i).encode() for i in range(8_200)]


@pytest.mark.parametrize("size", [2**31 - 60, 2**31])
def test_a_record_of_gigabytes_is_rejected(
    extension: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    """Kafka's lengths are 31 bits. The value is a hole in a file: planning reads no byte of it."""
    monkeypatch.setenv(ENCODER_VARIABLE, "native")
    with (tmp_path / "hole").open("w+b") as hole:
        hole.truncate(size)
        contents = pa.py_buffer(mmap.mmap(hole.fileno(), size, access=mmap.ACCESS_READ))
    value = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(struct.pack("=qq", 0, size)), contents])
    with pytest.raises(RecordRejected, match="too large for Kafka's format"):
        encode(one_column(value), BatchSettings(), topic="t", now_ms=0)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit(using: str, unit: str) -> None:
    times = pa.array([3, None], pa.timestamp("s")).cast(pa.timestamp(unit))
    (made,) = encode(one_column(["a", "b"], timestamp=times), BatchSettings(), topic="t", now_ms=7)
    assert [time for _, time, *_ in decoded(made)] == [3_000, 7]


def test_what_is_finer_than_a_millisecond_is_cut_off(using: str) -> None:
    times = pa.array([1_999], pa.timestamp("us", "UTC"))
    (made,) = encode(one_column(["a"], timestamp=times), BatchSettings(), topic="t", now_ms=0)
    assert decoded(made)[0][1] == 1


def test_columns_without_a_type_and_other_columns(using: str) -> None:
    rows = one_column(pa.nulls(2), key=pa.nulls(2), headers=pa.nulls(2), timestamp=pa.nulls(2), entry=[1, 2])
    (made,) = encode(rows, BatchSettings(), topic="t", now_ms=9)
    assert decoded(made) == [(0, 9, None, None, [])] * 2


def test_no_rows(using: str) -> None:
    assert not encode(one_column(pa.array([], pa.string())), BatchSettings(), topic="t", now_ms=0)


def test_a_batch_is_filled_to_the_last_byte(using: str) -> None:
    """A limit that fits exactly is kept; one byte less makes another batch."""
    rows = one_column(["x" * 50] * 10)
    (whole,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    size = len(whole.data)
    assert len(encode(rows, BatchSettings(size), topic="t", now_ms=0)) == 1
    first, second = encode(rows, BatchSettings(size - 1), topic="t", now_ms=0)
    assert (first.n_records, second.n_records) == (9, 1)
    assert second.first_row == 9


def test_a_record_beyond_the_limit_of_a_batch_is_alone(using: str) -> None:
    made = encode(one_column(["a", "x" * 500, "b", "c"]), BatchSettings(100), topic="t", now_ms=0)
    assert [b.n_records for b in made] == [1, 1, 2]


def test_headers_in_slices_of_slices(using: str) -> None:
    """Lists of entries that do not begin where their arrays begin."""
    names = pa.array(["-", "-", "a", "b", "c"]).slice(1)
    values = pa.array([b"-", b"-", b"1", None, b"3"]).slice(1)
    entries = pa.StructArray.from_arrays([names, values], ["key", "value"]).slice(1)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), entries)
    (made,) = encode(one_column(["x"] * 3, headers=headers).slice(1), BatchSettings(), topic="t", now_ms=0)
    assert _headers_of(made) == [[], [("b", None), ("c", b"3")]]


def test_what_lies_behind_a_null_is_not_written(using: str) -> None:
    """Arrow lets a null have contents: also a header that is null itself, or has no name."""
    of_header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    entries = pa.array([None, {"key": None}, None, {"key": "a", "value": b"1"}], of_header).slice(1)
    headers = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), entries, mask=pa.array([True, False]))
    bits = pa.array([False, True]).buffers()[1]
    values = pa.Array.from_buffers(pa.string(), 2, [bits, *pa.array(["gone", "b"]).buffers()[1:]])
    (made,) = encode(one_column(values, headers=headers), BatchSettings(), topic="t", now_ms=0)
    assert [value for *_, value, _ in decoded(made)] == [None, b"b"]
    assert _headers_of(made) == [[], [("a", b"1")]]


def _headers_of(batch: EncodedBatch) -> list[list[tuple[str, bytes | None]]]:
    return [headers for *_, headers in decoded(batch)]


@pytest.mark.parametrize("name", ["native", "plain"])
def test_X2_the_first_batch_of_a_partition_is_cut_unless_it_is_the_only_one(extension: Any, name: str) -> None:
    """Partition 0 has several batches, partition 1 has one, and partition 2 has been written before."""
    rows = pa.record_batch({"partition": [0] * 50 + [1] * 3 + [2] * 50, "value": ["x" * 20] * 103})
    how = {"producer": ProducerIdentity(5, 1), "next_sequences": {2: 9}}

    def counts(cut: FirstCut | None) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for batch in encoded(name, rows, BatchSettings(600), cut=cut, **how):
            found.setdefault(batch.partition, []).append(batch.n_records)
        return found

    assert counts(None) == {0: [19, 19, 12], 1: [3], 2: [19, 19, 12]}
    assert counts(FirstCut(19 * 9 + 4, is_last=True)) == {0: [5, 19, 19, 7], 1: [3], 2: [19, 19, 12]}
    assert counts(FirstCut(19 * 9 + 4, is_last=False)) == {0: [5, 19, 19, 7], 1: [2, 1], 2: [19, 19, 12]}
