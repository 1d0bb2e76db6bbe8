"""P4: tasks return dead letters to the driver, which writes them as records or as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.dlq.letter import LETTER, DeadLetter, Origin
from streamgroups.dlq.letter_chunks import in_chunks
from streamgroups.dlq.record_headers import parse_headers
from streamgroups.errors import RecordRejected, TooManyDeadLetters
from streamgroups.partitions import TopicPartition
from streamgroups_spark.sinks.letters import good_rows as splitting
from streamgroups_spark.sinks.letters import of_batch
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE, GoodRows, failures_in, query_of
from streamgroups_spark.sinks.letters.of_batch import as_records, as_rows, letter_schema, staged
from unit_tests.extreme_times import EXTREME_TIMES_MS, EXTREME_TIMES_US, extreme_timestamps

FAILURE = pa.struct(
    [("step", pa.string()), ("details", pa.map_(pa.string(), pa.string())), ("timestamp", pa.timestamp("us", "UTC"))]
)
LETTER_ONE = DeadLetter(
    id="g/t/0/7/s", group_id="g", query="q", failed_at_ms=2_000, attempt=1, step="s", error_class="E", error="no",
    details={"why": "late"}, origin=Origin(TopicPartition("t", 0), 7, 1_001), key=b"k", value=b"\xffvalue",
    headers=(("trace", b"1"), ("empty", None)),
)  # fmt: skip


def rows(*steps: str | None) -> pa.RecordBatch:
    letters = [None if it is None else {"step": it, "details": [("a", "b")], "timestamp": 1_500_000} for it in steps]
    return pa.record_batch({"value": list(range(len(steps))), "dead_letter": pa.array(letters, FAILURE)})


def test_rows_of_a_task_are_split() -> None:
    split = GoodRows(iter([rows(None, "a", None), rows(None), rows("b", "c")]))
    assert [batch.to_pydict() for batch in split] == [{"value": [0, 2]}, {"value": [0]}, {"value": []}]
    found = split.letters(3, "board")
    assert found is not None
    other = GoodRows(iter([rows("d")]))
    list(other)
    first = other.letters(1, "board")
    assert first is not None
    assert [(it["step"], it["timestamp"]) for it in failures_in([found, first])] == [
        ("d", 1_500),
        ("a", 1_500),
        ("b", 1_500),
        ("c", 1_500),
    ]


def test_a_task_without_letters_returns_none() -> None:
    split = GoodRows(iter([rows(None)]))
    assert len(list(split)) == 1
    assert split.letters(0, "board") is None


def test_the_letters_of_a_task_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "MAX_TASK_BYTES", 1 << 20)

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield rows(*["a" * 1_000] * 100)

    with pytest.raises(TooManyDeadLetters, match="larger than 1 MiB"):
        list(GoodRows(endless()))


def test_letters_become_records() -> None:
    records = as_records([LETTER_ONE], 1_000_000)
    (record,) = records.to_pylist()
    headers = [(it["key"], it["value"]) for it in record["headers"]]
    assert parse_headers(headers, key=record["key"], value=record["value"]) == LETTER_ONE
    assert record["timestamp"].timestamp() == 2


def test_a_letter_that_does_not_fit_has_no_value() -> None:
    large = replace(LETTER_ONE, value=b"x" * 10_000)
    (record,) = as_records([large], 8_000).to_pylist()
    headers = [(it["key"], it["value"]) for it in record["headers"]]
    found = parse_headers(headers, key=record["key"], value=record["value"])
    assert found == replace(large, value=None, details={"why": "late", "value_bytes": "10000"})


def test_letters_become_rows() -> None:
    without = replace(LETTER_ONE, origin=None, key=None, value=None, headers=())
    batch = as_rows([LETTER_ONE, without])
    assert batch.schema == letter_schema()
    assert batch.schema.names == list(LETTER)
    first, second = batch.to_pylist()
    assert (first["timestamp"].timestamp(), first["failed_at"].timestamp()) == (1.001, 2)
    assert (first["details"], first["headers"][0]) == ([("why", "late")], {"key": "trace", "value": b"1"})
    absent: list[Any] = [second[name] for name in ("topic", "partition", "offset", "timestamp", "key", "value")]
    assert absent == [None] * 6


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("departures<br/>\nid = 5f2c<br/>\nrunId = 7<br/>\nbatch = 3", "departures"),
        ("departures<br/>id = 5f2c<br/>runId = 7<br/>batch = 3", "departures"),
        ("\nid = 5f2c<br/>\nrunId = 7<br/>\nbatch = 3", "5f2c"),
        (None, "5f2c"),
        ("of the user", "5f2c"),
    ],
)
def test_a_letter_names_its_query(description: str | None, query: str) -> None:
    assert query_of(description, "5f2c") == query


def test_a_letter_can_have_any_time() -> None:
    split = GoodRows(iter(()))
    steps = pa.array(["s"] * len(EXTREME_TIMES_US))
    details = pa.array([[]] * len(steps), FAILURE.field("details").type)
    split.add(pa.StructArray.from_arrays([steps, details, extreme_timestamps()], fields=list(FAILURE)))
    letters = split.letters(0, "q")
    assert letters is not None
    assert [it["timestamp"] for it in failures_in([letters])] == list(EXTREME_TIMES_MS.values())


def test_a_letter_can_have_texts_of_any_bytes() -> None:
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    details = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), text, text)
    of_details = pa.map_(pa.string(), pa.string())
    headers = pa.array([[{"key": "h", "value": b"\xff"}]], FAILURE_TYPE.field("headers").type)
    column = pa.StructArray.from_arrays(
        [
            {"details": details.cast(of_details), "headers": headers}.get(it.name, text)
            if it.name in ("step", "error", "topic", "details", "headers")
            else pa.nulls(1, it.type)
            for it in FAILURE_TYPE
        ],
        fields=list(FAILURE_TYPE),
    )
    split = GoodRows(iter(()))
    split.add(column)
    letters = split.letters(0, "q")
    assert letters is not None
    [failure] = failures_in([letters])
    assert failure["step"] == failure["error"] == failure["topic"] == "\\xff"
    assert failure["details"] == [("\\xff", "\\xff")]
    assert failure["headers"] == [{"key": "h", "value": b"\xff"}]


class PickySink:
    """A table that rejects values of some columns."""

    def __init__(self, rejects: Callable[[dict[str, Any]], bool]) -> None:
        self._rejects = rejects
        self.stages: dict[int, list[dict[str, Any]]] = {}

    def begin(self, schema: pa.Schema, stage: str) -> str:
        assert schema == letter_schema()
        return stage

    def write(self, stage: str, records: Iterator[pa.RecordBatch], attempt: int) -> list[dict[str, Any]]:
        assert attempt not in self.stages, "a rejected call can have staged a part of its rows"
        rows = [row for batch in records for row in batch.to_pylist()]
        self.stages[attempt] = rows
        if any(map(self._rejects, rows)):
            raise RecordRejected("The value of a column is too long.", remedy="Correct it.")
        return rows

    def discard(self, stage: str) -> None:
        self.stages.clear()


def test_a_letter_that_a_table_rejects_is_written_without_the_rejected_field() -> None:
    letters = [replace(LETTER_ONE, id=str(n), key=b"long" if n % 3 == 0 else b"k") for n in range(7)]
    with staged(PickySink(lambda row: row["key"] == b"long"), letters) as parts:
        rows = [row for part in parts for row in part]
    assert [row["id"] for row in rows] == [str(n) for n in range(7)]
    assert [row["key"] for row in rows] == [None, b"k", b"k", None, b"k", b"k", None]
    assert all(row["value"] == LETTER_ONE.value for row in rows)
    details = dict(rows[0]["details"])
    assert details == {"why": "late", "key_bytes": "4", "rejected": "key: The value of a column is too long."}


def test_P4_a_table_receives_letters_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One array of Arrow contains at most 2 GiB."""
    monkeypatch.setattr(of_batch, "in_chunks", lambda letters: in_chunks(letters, 10_000))
    sizes: list[int] = []

    class Sink(PickySink):
        def write(self, stage: str, records: Iterator[pa.RecordBatch], attempt: int) -> list[dict[str, Any]]:
            batches = list(records)
            sizes.extend(batch.num_rows for batch in batches)
            return super().write(stage, iter(batches), attempt)

    letters = [replace(LETTER_ONE, id=str(n), value=b"v" * 4_000) for n in range(7)]
    with staged(Sink(lambda _: False), letters) as parts:
        rows = [row for part in parts for row in part]
    assert [row["id"] for row in rows] == [str(n) for n in range(7)]
    assert sizes == [2, 2, 2, 1]


def test_a_table_that_rejects_every_letter_ends_the_query() -> None:
    sink = PickySink(lambda _: True)
    with pytest.raises(RecordRejected, match="too long"), staged(sink, [LETTER_ONE]):
        pass
    assert not sink.stages, "the stage is discarded"


def test_a_table_receives_letters_with_any_time() -> None:
    names = EXTREME_TIMES_MS.items()
    letters = [replace(LETTER_ONE, id=name, origin=Origin(TopicPartition("t", 0), 7, ms)) for name, ms in names]
    times = dict(zip(EXTREME_TIMES_MS, as_rows(letters)["timestamp"].cast(pa.int64()).to_pylist(), strict=True))
    assert times["the year 294,000"] == EXTREME_TIMES_US["the year 294,000"]
    assert times["-2^63"] is None
