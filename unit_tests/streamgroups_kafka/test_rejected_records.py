"""X2: records that cannot be written are rejected before any output; errors name the row, or the column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups_kafka.write.compression import Compression
from streamgroups_kafka.write.encoder import ProducerIdentity
from streamgroups_kafka.write.record_batches import BatchSettings, encode
from unit_tests.records import (
    NAMELESS,
    NO_ENTRY,
    NOT_UTF8,
    TOO_MANY,
    decoded,
    one_column,
)


def test_the_error_names_the_row_of_a_record_over_the_topics_limit(using: str) -> None:
    rows = one_column(["a", "b", "x" * 2_000])
    limits = BatchSettings(batch_bytes=500, max_message_bytes=1_000)
    with pytest.raises(
        RecordRejected, match=r"Row 2, for flights-0, makes a record batch of 2,\d+ bytes; the maximum is 1,000"
    ):
        encode(rows, limits, topic="flights", now_ms=0)
    # What counts is what is sent.
    compressed = BatchSettings(500, 1_000, Compression("zstd"))
    assert len(encode(rows, compressed, topic="flights", now_ms=0)) == 2


def test_the_topics_limit_holds_for_batches_of_many_records_too(using: str) -> None:
    made = encode(one_column(["x" * 100] * 50), BatchSettings(max_message_bytes=1_000), topic="t", now_ms=0)
    assert all(len(batch.data) <= 1_000 for batch in made)
    assert sum(batch.n_records for batch in made) == 50


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"partition": pa.array([0, None], pa.int32())}, "Row 1 for topic 'flights' has no partition"),
        ({"partition": pa.array([3, -4], pa.int32())}, "Row 1 for topic 'flights' has partition -4"),
        ({"partition": pa.array([2**40, 0])}, "Row 0 for topic 'flights' has partition 1099511627776"),
        ({"timestamp": pa.array([5, -1], pa.timestamp("us"))}, "Row 1, for flights-0, has a timestamp before 1970"),
        ({"headers": NAMELESS}, "Row 1, for flights-0, has a header without a name"),
        ({"headers": NO_ENTRY}, "Row 1, for flights-0, has a header without a name"),
        ({"headers": NOT_UTF8}, "Row 1, for flights-0, has a header whose name is not UTF-8"),
        ({"headers": TOO_MANY}, "Row 1, for flights-0, has more than 100000 headers"),
    ],
)
def test_the_error_names_the_row_of_an_invalid_record(using: str, columns: dict[str, Any], match: str) -> None:
    rows = pa.record_batch({"partition": pa.array([0, 0], pa.int32()), "value": ["a", "b"]} | columns)
    with pytest.raises(RecordRejected, match=match):
        encode(rows, BatchSettings(), topic="flights", now_ms=0)


def test_a_header_without_a_name_outside_the_slice_is_ignored(using: str) -> None:
    rows = one_column(["a", "b"], headers=NAMELESS).slice(0, 1)
    (made,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert decoded(made) == [(0, 0, None, b"a", [("a", b"")])]


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([1])},
        {"key": pa.array([1.5])},
        {"key": pa.array(["a"]).dictionary_encode()},
        {"value": pa.array(["a"], pa.string_view())},
        {"headers": pa.array([["a"]])},
        {"headers": pa.array([[{"key": b"a", "value": b"b"}]])},
        {"headers": pa.array([[{"key": "a"}]])},
        {"timestamp": pa.array([1])},
        {"partition": pa.array(["0"])},
        {"partition": pa.array([0]).dictionary_encode()},
    ],
)
def test_a_column_of_another_type_is_rejected(using: str, columns: dict[str, Any]) -> None:
    rows = pa.record_batch({"partition": pa.array([0])} | columns)
    with pytest.raises(InvalidOption, match=f"Column '{next(iter(columns))}' is "):
        encode(rows, BatchSettings(), topic="t", now_ms=0)


def test_records_without_partitions_are_rejected(using: str) -> None:
    with pytest.raises(InvalidOption, match="The column 'partition' is missing"):
        encode(pa.record_batch({"value": ["a"]}), BatchSettings(), topic="t", now_ms=0)


@pytest.mark.parametrize("wrong", [{"batch_bytes": 0}, {"max_message_bytes": -1}, {"batch_bytes": 2**31}])
def test_sizes_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        BatchSettings(**wrong)


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (0, 2**15), (2**63, 0)])
def test_identities_that_cannot_be(wrong: tuple[int, int]) -> None:
    with pytest.raises(InvalidOption, match="Producer id"):
        ProducerIdentity(*wrong)
