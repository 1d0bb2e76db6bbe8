"""P4: the rows that a sink rejects are isolated, and all others are written once, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import RecordRejected, SinkUnreachable
from streamgroups_spark.sinks.letters import bad_record_search as isolating
from streamgroups_spark.sinks.letters.bad_record_search import write_isolated
from unit_tests.extreme_times import extreme_columns


class Sink:
    """Rejects a call with a negative number, and names no row."""

    def __init__(self) -> None:
        self.staged: dict[int, list[int]] = {}

    def write(self, records: Iterator[pa.RecordBatch], attempt: int) -> int:
        rows = [n for batch in records for n in batch["n"].to_pylist()]
        if any(n < 0 for n in rows):
            raise RecordRejected("The value of column 'n' in row 1 of a task is negative.", remedy="Correct it.")
        assert attempt not in self.staged
        self.staged[attempt] = rows
        return attempt


@given(st.lists(st.lists(st.integers(-3, 3), max_size=6), max_size=5))
def test_each_good_row_is_written_once_in_order(batches: list[list[int]]) -> None:
    sink, rejected = Sink(), list[Any]()
    given_batches = iter([pa.record_batch({"n": pa.array(rows, pa.int64())}) for rows in batches])
    written = write_isolated(sink.write, given_batches, 7, rejected.append)
    rows = [n for batch in batches for n in batch]
    assert [n for it in written for n in sink.staged[it]] == [n for n in rows if n >= 0]
    assert len(rejected) == sum(n < 0 for n in rows)


def test_a_rejected_row_is_in_its_letter() -> None:
    rejected: list[pa.Array] = []
    row = {"topic": ["t"], "partition": pa.array([1], pa.int32()), "offset": [7], "n": [-1], "raw": [b"\xff"]}
    assert write_isolated(Sink().write, iter([pa.record_batch(row)]), 0, rejected.append) == []
    (letter,) = rejected[0].to_pylist()
    assert (letter["step"], letter["error_class"]) == ("sink", "RecordRejected")
    assert letter["error"] == "The value of column 'n' is negative."
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("t", 1, 7)
    record = '{"topic": "t", "partition": 1, "offset": 7, "n": -1, "raw": "\\\\xff"}'
    assert letter["details"] == [("record", record), ("missing", "key, value")]


def test_large_tasks_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolating, "PIECE_BYTES", 16)
    sink = Sink()
    batches = iter([pa.record_batch({"n": [n, n]}) for n in range(3)])
    assert write_isolated(sink.write, batches, 1, lambda _: None) == [1 << 20, (1 << 20) + 1, (1 << 20) + 2]


def test_an_outage_of_the_sink_is_no_letter() -> None:
    def write(records: Iterator[pa.RecordBatch], attempt: int) -> None:
        raise SinkUnreachable("No answer.")

    with pytest.raises(SinkUnreachable):
        write_isolated(write, iter([pa.record_batch({"n": [1]})]), 0, lambda _: None)


@pytest.mark.parametrize("values", extreme_columns().values(), ids=extreme_columns())
def test_a_rejected_row_can_have_any_time_and_any_bytes(values: pa.Array) -> None:
    rejected: list[pa.Array] = []
    text = pa.array([b"\xff"] * len(values), pa.binary()).view(pa.string())
    rows = pa.record_batch({"n": pa.array([-1] * len(values)), "at": values, "text": text})
    write_isolated(Sink().write, iter([rows]), 0, rejected.append)
    found = [json.loads(dict(it.to_pylist()[0]["details"])["record"]) for it in rejected]
    assert len(found) == len(values)
    assert {it["text"] for it in found} == {"\\xff"}
