"""S10: an operator receives its records directly from the reader of its task, and Spark has rows without them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroups.errors import StreamGroupsError
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge import handoff
from streamgroups_spark.bridge.direct import Conversion, DirectColumn, DirectRecords, kept_rows, pass_on
from streamgroups_spark.bridge.rpc import task_directory_of
from streamgroups_spark.bridge.stage_name import DirectColumns
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.session import new_session
from streamgroups_spark.source.query_checks import direct_columns
from streamgroups_spark.state import stage, stage_task
from streamgroups_spark.state.stage import StateStage
from unit_tests.streamgroups_spark.test_state_stage import APPLICATION, COUNT, P0, P1, Reported, plan, run

#: The columns of a source.
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
DIRECT = DirectRecords(
    (
        DirectColumn("partition", "partition"),
        DirectColumn("offset", "offset"),
        DirectColumn("time", "timestamp", Conversion.MILLISECONDS),
        DirectColumn("k0", "key"),
    ),
    "partition",
    frozenset({"timestamp"}),
)
READ = ("key", "partition", "offset", "timestamp")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for module in (handoff, stage):
        monkeypatch.setattr(module, "attempt_id", lambda: 42)
    # These readers run when the operator takes their rows, so it is useless to wait for them.
    monkeypatch.setattr(stage_task, "_WAIT_S", 0)
    return new_session()


def read(place: TopicPartition, first: int, *times_ms: int) -> pa.RecordBatch:
    """An Arrow batch of the reader, with the columns that it passes on."""
    count = len(times_ms)
    columns = {
        "key": pa.array([b"a"] * count, pa.binary()),
        "partition": pa.array([place.partition] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([it * 1_000 for it in times_ms], pa.timestamp("us", "UTC")),
    }
    return pa.record_batch(columns)


def by_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that Spark passes to the operator."""
    return computed(batch.filter(batch["partition"].is_valid()))


def computed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that the plan between reader and operator makes."""
    times_ms = pc.divide(batch["timestamp"].cast(pa.int64()), 1_000)
    return pa.record_batch(
        [times_ms if it.conversion is Conversion.MILLISECONDS else batch[it.source] for it in DIRECT.columns],
        [it.name for it in DIRECT.columns],
    )


def processed(
    session: str, batches: list[pa.RecordBatch], direct: DirectRecords | None = DIRECT, *, has_read: bool = False
) -> tuple[list[dict[str, Any]], Reported]:
    """Passes batches through a reader and an operator, one after the other, as Spark does.

    Args:
        session: the session.
        batches: the batches.
        direct: the records of the operator.
        has_read: whether the reader ends before the operator starts. Otherwise nothing is read ahead.
    """
    assert direct is not None
    channel = Reported()
    operator = replace(COUNT, schema=pa.schema([("k0", pa.binary()), *list(COUNT.schema)[1:]]))
    output = pa.schema([field.with_type(pa.binary()) if field.name == "k0" else field for field in COUNT.output])
    rows = pass_on(batches, direct.direct_columns, ROWS, session, APPLICATION)
    rows = iter(list(rows)) if has_read else rows
    own = StateStage(replace(operator, output=output), session, APPLICATION, channel, direct=direct)  # type: ignore[arg-type]
    found = [row for batch in own(by_spark(it) for it in rows) for row in batch.to_pylist()]
    return found, channel


def left(session: str) -> list[str]:
    return sorted(it.name for it in task_directory_of(session).iterdir())


@pytest.mark.parametrize("has_read", [False, True])
def test_S10_records_pass_by_spark_which_counts_them(tmp_path: Path, session: str, has_read: bool) -> None:
    handoff.write_plan(
        session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 9), OffsetRange(P1, 0, 2)), is_direct=True)
    )
    rows, channel = processed(session, [read(P0, 5, 1, 2, 15), read(P0, 8, 21), read(P1, 0, 3, 14)], has_read=has_read)
    assert [(row["start"], row["k0"], row["r0"]) for row in rows] == [(0, b"a", 2), (10, b"a", 1), (0, b"a", 1)]
    assert [str(it.range) for it in channel.reports] == ["flights-0[5,9)", "flights-1[0,2)"]
    # Both reports contain the work of the same task.
    assert [it.work.direct_records for it in channel.reports] == [6, 6]
    assert left(session) == []


def test_S10_spark_receives_the_event_time_and_no_other_column(session: str) -> None:
    batch = read(P0, 5, 1, 2)
    rows = next(pass_on([batch], DIRECT.direct_columns, ROWS, session, APPLICATION))
    assert rows.schema == ROWS
    assert rows["timestamp"] == batch["timestamp"]
    assert all(rows[it].null_count == 2 for it in ROWS.names if it not in ("timestamp", "partition"))
    with closing(handoff.Handoff(session, APPLICATION, 42)) as operator:
        assert list(operator.take_records()) == [batch]
    assert left(session) == []


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1_000, 65_536])
def test_S10_each_record_is_one_row(session: str, size: int) -> None:
    [rows] = pass_on([read(P0, 0, *range(size))], DIRECT.direct_columns, ROWS, session, APPLICATION)
    assert rows.num_rows == size
    rows.validate(full=True)
    [records] = handoff.Handoff(session, APPLICATION, 42).take_records()
    assert records.num_rows == size
    assert kept_rows(records) == size - rows["partition"].null_count


def test_S10_spark_keeps_few_rows_with_the_earliest_and_the_latest_event_time(session: str) -> None:
    times_ms = [50 + i % 7 for i in range(20_000)]
    times_ms[501], times_ms[777] = 1, 999
    [rows] = pass_on([read(P0, 0, *times_ms)], DIRECT.direct_columns, ROWS, session, APPLICATION)
    kept = rows.filter(rows["partition"].is_valid())
    assert kept.num_rows <= 2_502
    found_ms = pc.divide(kept["timestamp"].cast(pa.int64()), 1_000)
    assert (pc.min(found_ms).as_py(), pc.max(found_ms).as_py()) == (1, 999)


def test_S10_spark_keeps_rows_by_the_size_of_the_records(session: str) -> None:
    def count(size_bytes: int) -> int:
        batch = read(P0, 0, *[1] * 8_000)
        keys = pa.array([b"k" * size_bytes] * 8_000, pa.binary())
        batch = batch.set_column(batch.schema.get_field_index("key"), "key", keys)
        [rows] = pass_on([batch], DIRECT.direct_columns, ROWS, session, APPLICATION)
        return rows.num_rows - int(rows["partition"].null_count)

    assert [count(it) for it in (1, 90, 300, 2_000)] == [1_000, 1_000, 2_667, 8_000]


@pytest.mark.parametrize("has_read", [False, True])
def test_S10_a_lost_record_fails_the_task(tmp_path: Path, session: str, has_read: bool) -> None:
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 8)), is_direct=True))
    channel = Reported()
    own = StateStage(COUNT, session, APPLICATION, channel, direct=DIRECT)  # type: ignore[arg-type]
    rows = pass_on([read(P0, 5, 1, 2, 15)], DIRECT.direct_columns, ROWS, session, APPLICATION)
    rows = iter(list(rows)) if has_read else rows
    with pytest.raises(
        StreamGroupsError, match="has received 1 rows from Spark, but the reader of its task has passed 2"
    ):
        list(own(by_spark(it).slice(1) for it in rows))
    assert left(session) == []
    assert channel.reports == [], "no position can name the state"


def passed_by_spark(batches: Iterable[pa.RecordBatch], begin: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The rows that Spark passes to an operator. ``begin`` is called when it takes the first batch."""
    begin()
    yield from map(by_spark, batches)


def written(tmp_path: Path) -> bool:
    return any(it.is_file() for it in (tmp_path / "state").rglob("*.state"))


def test_S10_a_small_batch_does_not_wait_for_the_rows_of_spark(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_task, "_WAIT_S", 60)
    found: list[pa.RecordBatch] = []

    def read_later() -> None:
        handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 9)), is_direct=True))
        found.extend(
            pass_on([read(P0, 5, 1, 2, 15), read(P0, 8, 31)], DIRECT.direct_columns, ROWS, session, APPLICATION)
        )

    channel, states = Reported(), list[bool]()
    own = StateStage(COUNT, session, APPLICATION, channel, direct=DIRECT)  # type: ignore[arg-type]
    reader = threading.Thread(target=read_later)
    reader.start()
    rows = [
        row for it in own(passed_by_spark(found, lambda: states.append(written(tmp_path)))) for row in it.to_pylist()
    ]
    reader.join()
    assert states == [True], "the states are written before the first row of Spark"
    assert [(row["start"], row["r0"]) for row in rows] == [(0, 2), (10, 1)]
    assert [str(it.range) for it in channel.reports] == ["flights-0[5,9)"]
    assert left(session) == []


def test_S10_a_large_batch_takes_its_records_with_the_rows_of_spark(
    tmp_path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_task, "_WAIT_S", 60)
    monkeypatch.setattr(stage_task, "_SMALL_OFFSETS", 3)
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 9)), is_direct=True))
    found = list(pass_on([read(P0, 5, 1, 2, 15), read(P0, 8, 31)], DIRECT.direct_columns, ROWS, session, APPLICATION))
    states = list[bool]()
    own = StateStage(COUNT, session, APPLICATION, Reported(), direct=DIRECT)  # type: ignore[arg-type]
    rows = [
        row for it in own(passed_by_spark(found, lambda: states.append(written(tmp_path)))) for row in it.to_pylist()
    ]
    assert states == [False]
    assert [(row["start"], row["r0"]) for row in rows] == [(0, 2), (10, 1)]


def test_S10_the_operator_of_a_warm_up_does_not_wait_for_a_plan(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_task, "_WAIT_S", 60)
    assert list(pass_on([], DIRECT.direct_columns, ROWS, session, APPLICATION)) == []
    own = StateStage(COUNT, session, APPLICATION, Reported(), direct=DIRECT)  # type: ignore[arg-type]
    began_s = time.monotonic()
    assert list(own(())) == []
    assert time.monotonic() - began_s < 30
    assert left(session) == []


def test_S10_the_records_of_a_failed_operator_are_removed(tmp_path: Path, session: str) -> None:
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 6)), is_direct=True))
    with pytest.raises(StreamGroupsError, match="not in the ranges"):
        processed(session, [read(P0, 5, 1), read(P0, 6, 2)])
    assert left(session) == []


def test_W15_a_watermark_precedes_the_records_after_it(tmp_path: Path, session: str) -> None:
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, OffsetRange(P0, 5, 8)), is_direct=True))

    def batches() -> Iterator[pa.RecordBatch]:
        yield read(P0, 5, 1, 2)
        # The reader is ahead of the operator, which sees the watermark before it processes the first batch.
        handoff.write_watermarks(session, APPLICATION, [ProducerWatermarks(P0, (6,), (10,))])
        yield read(P0, 7, 3)

    channel = Reported()
    own = StateStage(COUNT, session, APPLICATION, channel, direct=DIRECT)  # type: ignore[arg-type]
    rows = [by_spark(it) for it in pass_on(batches(), DIRECT.direct_columns, ROWS, session, APPLICATION)]
    found = [row for batch in own(rows) for row in batch.to_pylist()]
    # The third record is late: its window has ended with the watermark.
    assert [(row["start"], row["r0"], row["pane"]) for row in found] == [
        (0, 2, "on time"),
        (0, None, "dead letter"),
    ]


def test_S10_rows_without_event_time_hide_no_other_row(session: str) -> None:
    times = pa.array([None if i % 2 else 5_000 + i for i in range(20_000)], pa.timestamp("us", "UTC"))
    batch = read(P0, 0, *range(20_000))
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times)
    [rows] = pass_on([batch], DIRECT.direct_columns, ROWS, session, APPLICATION)
    kept = rows.filter(rows["partition"].is_valid())["timestamp"].cast(pa.int64())
    assert (pc.min(kept).as_py(), pc.max(kept).as_py()) == (5_000, 24_998)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), max_size=6), st.booleans())
def test_S10_direct_records_have_the_results_of_those_of_spark(
    tmp_path: Path, session: str, times_ms: list[list[int]], has_read: bool
) -> None:
    firsts = [sum(map(len, times_ms[:i])) for i in range(len(times_ms))]
    ranges = [OffsetRange(P0, 0, sum(map(len, times_ms)))]
    batches = [read(P0, first, *times) for first, times in zip(firsts, times_ms, strict=True)]
    handoff.write_plan(session, APPLICATION, plan(tmp_path, *ranges))
    as_text = [computed(it) for it in batches]
    expected, reports = run(session, [it.set_column(3, "k0", it["k0"].cast(pa.string())) for it in as_text])
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, *ranges), is_direct=True))
    rows, channel = processed(session, batches, has_read=has_read)
    assert [row | {"k0": row["k0"].decode()} for row in rows] == expected
    assert [(it.range, it.time) for it in channel.reports] == [(it.range, it.time) for it in reports]


@pytest.mark.parametrize("time_us", [-1, 0, 999, 1_000, -1_000, -1_001, None])
def test_S10_milliseconds_are_those_of_spark(time_us: int | None) -> None:
    """Spark's ``unix_millis`` rounds down."""
    batch = pa.record_batch({"timestamp": pa.array([time_us, 5_000], pa.timestamp("us", "UTC"))})
    records = DirectRecords((DirectColumn("time", "timestamp", Conversion.MILLISECONDS),), "partition").of(batch)
    assert records["time"].to_pylist() == [None if time_us is None else time_us // 1_000, 5]
    assert records["time"].type == pa.int64()


def test_S10_a_key_as_text_has_the_same_bytes() -> None:
    keys = pa.array([b"AA", None, b"", b"\xff\xfe"], pa.binary())
    direct = DirectRecords((DirectColumn("k0", "key", Conversion.TEXT),), "partition")
    records = direct.of(pa.record_batch({"key": keys}))
    assert records["k0"].type == pa.string()
    assert records["k0"].view(pa.binary()) == keys


def test_S10_a_stream_with_another_branch_passes_its_records_through_spark() -> None:
    stages = frozenset({("windows:flushes+direct=key,offset/timestamp",)})
    once = QueryFacts(None, frozenset(), stages=stages, is_read_once=True)
    found = direct_columns(once)
    assert found == DirectColumns(frozenset({"key", "offset"}), frozenset({"timestamp"}))
    assert direct_columns(replace(once, is_read_once=False)) is None
    assert direct_columns(replace(once, stages=frozenset())) is None
    assert direct_columns(replace(once, stages=frozenset({("windows:flushes",)}))) is None
    assert direct_columns(None) is None
