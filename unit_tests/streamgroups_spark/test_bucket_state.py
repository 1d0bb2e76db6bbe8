"""W4-W7: windows in columns give the results of the rules, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from streamgroups.event_time.aggregates import PythonAggregate, SqlAggregate, parse_aggregate
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS, At, reached
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import (
    EventTime,
    Hopping,
    ProcessingTime,
    Session,
    Shape,
    Window,
    Windowing,
    tumbling,
)
from streamgroups_operators.aggregates import in_windows, length_ms
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from streamgroups_spark.windows.bucket_columns import Pack, Unpack, WindowPlan, from_bytes, to_bytes
from streamgroups_spark.windows.bucket_state import BucketBatch, BucketState, decode, encode, process
from unit_tests.extreme_times import EXTREME_TIMES_MS, LIMITS_MS
from unit_tests.window_rules import Drop, Interval, Lift, Missed, WindowStates, advance, count, judge, point, windows_of

AGGREGATES: tuple[SqlAggregate | PythonAggregate, ...] = (
    *(parse_aggregate("x", text) for text in ("count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(v)")),
    PythonAggregate(lambda values: sorted(v for v in values if v is not None), "v", "array<bigint>"),
)
OUTPUT = pa.schema(
    [("start", pa.int64()), ("end", pa.int64()), ("k0", pa.string())]
    + [(f"r{i}", pa.float64() if i == 3 else pa.int64()) for i in range(6)]
    + [("r6", pa.list_(pa.int64())), ("pane", pa.string()), ("revision", pa.int32()), ("why", pa.string())]
    + [("event_time", pa.int64()), ("watermark", pa.int64()), ("record", pa.int64())]
)
SHAPES: st.SearchStrategy[Shape] = st.one_of(
    st.builds(lambda hop, more: Hopping(hop + more, hop), st.integers(1, 10), st.integers(0, 15)),
    st.builds(Session, st.integers(1, 8)),
)


@dataclass(frozen=True)
class Record:
    """A record of the tests: its key, when it happened, a value, and its number."""

    key: str | None
    time_ms: int | None
    value: int | None


RECORDS = st.builds(
    Record,
    st.sampled_from(["a", "b", None]),
    st.one_of(st.integers(0, 60), st.integers(0, 60), st.none()),
    st.one_of(st.integers(0, 9), st.none()),
)
#: Batches: records, how far the watermark moves, how far the clock does.
BATCHES = st.lists(st.tuples(st.lists(RECORDS, max_size=6), st.integers(0, 15), st.integers(0, 5)), max_size=12)
Batches = Sequence[tuple[list[Record], int, int]]


class InMemory:
    """Segments as the state store keeps them."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}

    def get(self, number: int) -> pa.Table:
        return from_bytes(self.kept[number])

    def put(self, number: int, rows: pa.Table) -> None:
        assert number not in self.kept
        self.kept[number] = to_bytes(rows)

    def remove(self, number: int) -> None:
        del self.kept[number]


def handled(policy: OnViolation, time_ms: int, until_ms: int | None, watermark_ms: int) -> str:
    """The handling of a record from one time until another, by the watermark: the time at which it counts."""
    bucket = Bucket(Windowing(tumbling(1), EventTime(allowed_lateness_ms=100)), policy)
    bucket.take([], watermark_ms, 0)
    record = table([Record("a", time_ms, 1)]).append_column("until", pa.array([until_ms], pa.int64()))
    bucket.process([record], watermark_ms, 0, frozenset())
    bucket.take([], 90, 0)
    [row] = bucket.rows
    assert row["why"] in (None, "violation")
    return "too late" if row["why"] else str(row["start"])


@given(st.sampled_from(OnViolation), st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(0, 30))
def test_W9_columns_are_judged_like_single_records(
    policy: OnViolation, time_ms: int, until_ms: int | None, watermark_ms: int
) -> None:
    interval = point(time_ms) if until_ms is None else Interval(time_ms, until_ms)
    judgement = judge(interval, At(watermark_ms), policy)
    expected = str(judgement.interval.start_ms if isinstance(judgement, Lift) else time_ms)
    found = handled(policy, time_ms, until_ms, watermark_ms)
    assert found == ("too late" if isinstance(judgement, Drop) else expected)


def plan_of(windowing: Windowing, buckets: int = 1, policy: OnViolation = OnViolation.KEEP) -> WindowPlan:
    schema = state_schema(windowing.shape, table([]).schema, AGGREGATES)
    operator = WindowOperator("windows", windowing, None, 1, AGGREGATES, schema, OUTPUT, policy, Scope.QUERY)
    return WindowPlan(operator, buckets)


def table(records: Sequence[Record], first: int = 0) -> pa.Table:
    values = pa.array([r.value for r in records], pa.int64())
    return pa.table(
        {
            "time": pa.array([r.time_ms for r in records], pa.int64()),
            "k0": pa.array([r.key for r in records], pa.string()),
            **{f"a{i}": values if i != 3 else values.cast(pa.float64()) for i in range(1, 7)},
            "record": pa.array(range(first, first + len(records)), pa.int64()),
        }
    )


@dataclass
class Bucket:
    """One bucket, batch by batch, restarted from what it keeps after every one."""

    windowing: Windowing
    policy: OnViolation = OnViolation.KEEP
    segments: InMemory = field(default_factory=InMemory)
    kept: str = encode(BucketState())
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan_of(self.windowing, policy=self.policy)

    def take(
        self, records: Sequence[Record], watermark_ms: int | None, now_ms: int, first: int = 0
    ) -> list[dict[str, Any]]:
        tables = [table(records, first)] if records else []
        return self.process(tables, watermark_ms, now_ms, seen(self.windowing.shape, records))

    def process(
        self, tables: list[pa.Table], watermark_ms: int | None, now_ms: int, starts_ms: frozenset[int]
    ) -> list[dict[str, Any]]:
        batch = BucketBatch(watermark_ms, now_ms, bool(tables or starts_ms), starts_ms)
        state, output = process(self.plan.operator, self.segments, decode(self.kept), batch, tables)
        self.kept = encode(state)
        assert set(self.segments.kept) == decode(self.kept).numbers
        streams = pa.record_batch([pa.array([to_bytes(t) for t in output], pa.binary())], names=["rows"])
        rows = [row for out in Unpack(self.plan)([streams]) for row in out.to_pylist()]
        self.rows += rows
        return rows


def seen(shape: Shape, records: Sequence[Record]) -> frozenset[int]:
    if isinstance(shape, Session):
        return frozenset()
    return frozenset(w.start_ms for r in records if r.time_ms is not None for w in windows_of(shape, r.time_ms))


def brief(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(((r["start"], r["end"], r["k0"], r["r0"], r["pane"], r["revision"]) for r in rows), key=str)


# ---- whatever comes -----------------------------------------------------------------------------------------------


@given(SHAPES, st.lists(st.integers(-50, 60)))
def test_many_times_are_put_into_windows_like_one(shape: Shape, times_ms: list[int]) -> None:
    which, starts = in_windows(shape, np.array(times_ms, np.int64))
    found = {(int(i), int(s), int(s) + length_ms(shape)) for i, s in zip(which, starts, strict=True)}
    assert found == {(i, w.start_ms, w.end_ms) for i, t in enumerate(times_ms) for w in windows_of(shape, t)}
    assert [int(s) for s in starts[: len(times_ms)]] == [windows_of(shape, t)[-1].start_ms for t in times_ms]


@settings(deadline=None)
@given(SHAPES, st.integers(0, 15), BATCHES)
def test_the_final_panes_contain_what_was_counted(shape: Shape, lateness_ms: int, batches: Batches) -> None:
    windowing = Windowing(shape, EventTime(lateness_ms))
    bucket, watermark_ms, now_ms, number = Bucket(windowing), 0, 0, 0
    by_key: dict[str | None, WindowStates] = {key: WindowStates() for key in ("a", "b", None)}
    counted: list[tuple[Record, tuple[Window, ...]]] = []
    late = []
    for records, moved_ms, passed_ms in [*batches, ([], 200, 1)]:
        watermark_ms, now_ms = watermark_ms + moved_ms, now_ms + passed_ms
        bucket.take(records, watermark_ms, now_ms, number)
        for i, record in enumerate(records, number):
            if record.time_ms is None:
                late.append((i, "no event time", None))
                continue
            by_key[record.key], outcome = count(windowing, by_key[record.key], record.time_ms)
            if isinstance(outcome, Missed):
                late.append((i, "late", outcome.windows[-1]))
            else:
                counted.append((record, outcome.windows))
        by_key = {key: advance(windowing, states, At(watermark_ms))[0] for key, states in by_key.items()}
        number += len(records)
    assert not bucket.segments.kept, "nothing is kept of what is closed"
    letters = [r for r in bucket.rows if r["pane"] == "dead letter"]
    assert sorted((r["record"], r["why"]) for r in letters) == sorted((i, why) for i, why, _ in late)
    missed = {i: window for i, _, window in late}
    for r in letters:
        window = missed[r["record"]]
        assert (r["start"], r["end"]) == ((window.start_ms, window.end_ms) if window else (None, None))
    _compare(bucket.rows, counted, shape.gap_ms if isinstance(shape, Session) else None)


def _compare(
    rows: Sequence[dict[str, Any]], counted: Sequence[tuple[Record, tuple[Window, ...]]], gap_ms: int | None
) -> None:
    """The last row of each pane holds all its records; no other panes are emitted. With a gap the panes are sessions."""
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["pane"] == "dead letter":
            continue
        pane = row["k0"], row["start"], row["end"]
        if pane not in latest:
            assert row["pane"] != "retraction"
            assert row["revision"] == 0 or row["pane"] == "update" or gap_ms is not None
        else:
            assert row["revision"] > latest[pane]["revision"]
            assert row["pane"] in ("update", "retraction")
        latest[pane] = row
    valid = {pane: row for pane, row in latest.items() if row["pane"] != "retraction"}
    if gap_ms is not None:
        assert sum(row["r0"] for row in valid.values()) == len(counted)
        panes = {
            (key, s, e): [r for r, _ in counted if r.key == key and s <= (t := r.time_ms or 0) and t + gap_ms <= e]
            for key, s, e in valid
        }
        if sum(map(len, panes.values())) > len(counted):
            # A session may begin within one that is closed already: the time of a record does not determine its session.
            return
    else:
        panes = {}
        for record, windows in counted:
            for w in windows:
                panes.setdefault((record.key, w.start_ms, w.end_ms), []).append(record)
    assert set(panes) == set(valid)
    for pane, records in panes.items():
        _holds(valid[pane], records)


def _holds(row: dict[str, Any], records: Sequence[Record]) -> None:
    values = sorted(r.value for r in records if r.value is not None)
    assert row["r0"] == len(records)
    assert row["r1"] == len(values)
    assert row["r6"] == values
    if not values:
        assert [row[f"r{i}"] for i in range(2, 6)] == [None] * 4
        return
    assert [row["r2"], row["r4"], row["r5"]] == [sum(values), values[0], values[-1]]
    assert abs(row["r3"] - sum(values) / len(values)) < 1e-9


@settings(deadline=None)
@given(SHAPES, st.integers(0, 15), BATCHES)
def test_a_window_is_emitted_when_the_watermark_has_reached_it_and_not_before(
    shape: Shape, lateness_ms: int, batches: Batches
) -> None:
    bucket, watermark_ms = Bucket(Windowing(shape, EventTime(lateness_ms))), 0
    for records, moved_ms, now_ms in batches:
        before_ms, watermark_ms = watermark_ms, watermark_ms + moved_ms
        for row in bucket.take(records, watermark_ms, now_ms):
            if row["pane"] in ("on time", "update"):
                assert reached(At(watermark_ms), row["end"])
                assert (row["pane"] == "on time") == (row["end"] > before_ms)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 15), BATCHES)
def test_a_call_more_in_the_same_batch_changes_nothing(shape: Shape, lateness_ms: int, batches: Batches) -> None:
    bucket, watermark_ms, now_ms = Bucket(Windowing(shape, EventTime(lateness_ms, 3))), 0, 0
    for records, moved_ms, passed_ms in batches:
        watermark_ms, now_ms = watermark_ms + moved_ms, now_ms + passed_ms
        bucket.take(records, watermark_ms, now_ms)
        kept, segments = bucket.kept, dict(bucket.segments.kept)
        if records:
            assert bucket.take([], watermark_ms, now_ms) == [], "a timer fires after the rows"
            assert (bucket.kept, bucket.segments.kept) == (kept, segments)


@given(st.lists(st.lists(RECORDS, max_size=5), max_size=4), st.integers(1, 5))
def test_every_record_is_packed_once_and_every_bucket_receives_the_batch(
    batches: list[list[Record]], buckets: int
) -> None:
    shape = tumbling(10)
    given_batches = []
    for i, records in enumerate(batches):
        packed = table(records, 10 * i).append_column(
            "bucket", pa.array([hash(r.key) % buckets for r in records], pa.int32())
        )
        given_batches += packed.combine_chunks().to_batches() or []
    rows = [row for out in Pack(plan_of(Windowing(shape), buckets))(given_batches) for row in out.to_pylist()]
    numbers = [n for row in rows if row["records"] for n in from_bytes(row["records"])["record"].to_pylist()]
    assert sorted(numbers) == [10 * i + n for i, records in enumerate(batches) for n in range(len(records))]
    reported = [row for row in rows if row["records"] is None]
    assert [row["bucket"] for row in reported] == (list(range(buckets)) if numbers else [])
    everything = [r for records in batches for r in records]
    assert all(set(row["starts"]) == seen(shape, everything) for row in reported)


# ---- in the single case -------------------------------------------------------------------------------------------


def at(*times_ms: int, key: str = "a") -> list[Record]:
    return [Record(key, time_ms, None) for time_ms in times_ms]


def test_W4_a_late_record_updates_within_the_allowed_lateness() -> None:
    minutes = Bucket(Windowing(tumbling(5), EventTime(allowed_lateness_ms=2)))
    assert minutes.take(at(0, 2, 1), 3, 0) == []
    assert brief(minutes.take(at(5), 5, 0)) == [(0, 5, "a", 3, "on time", 0)]
    assert brief(minutes.take(at(4), 6, 0)) == [(0, 5, "a", 4, "update", 1)]
    assert brief(minutes.take(at(7, 4), 7, 0)) == [(0, 5, "a", 5, "update", 2)]
    assert brief(minutes.take(at(4), 7, 0)) == [(0, 5, "a", None, "dead letter", None)]


def test_W5_silence_closes_windows_that_the_clock_has_passed() -> None:
    minutes = Bucket(Windowing(tumbling(3), EventTime(idle_timeout_ms=1)))
    minutes.take(at(0), 0, 0)
    for now in (1, 2, 3):
        assert minutes.take([], 0, now) == []
    minutes.take(at(2), 2, 4)
    assert brief(minutes.take(at(5), 5, 5)) == [(0, 3, "a", 2, "on time", 0)]
    assert minutes.take([], 5, 6) == []
    assert minutes.take([], 5, 7) == [], "no change until 6"
    assert brief(minutes.take([], 5, 8)) == [(3, 6, "a", 1, "idle", 0)]
    (letter,) = minutes.take(at(5), 5, 9)
    assert (letter["pane"], letter["watermark"], letter["start"]) == ("dead letter", 6, 3)


def test_a_source_that_was_down_is_idle_if_it_has_no_new_records() -> None:
    minutes = Bucket(Windowing(tumbling(3), EventTime(idle_timeout_ms=5)))
    minutes.take(at(0), 1, 10)
    assert minutes.take([], 1, 1_000) == [], "no change until 10 only"
    assert brief(minutes.take([], 1, 1_001)) == [(0, 3, "a", 1, "idle", 0)]


def test_windows_of_other_buckets_are_closed_by_silence_too() -> None:
    mine = Bucket(Windowing(tumbling(3), EventTime(idle_timeout_ms=1)))
    mine.process([], 1, 4, frozenset([0]))
    for now in (5, 6):
        assert mine.take([], 1, now) == []
    assert [r["pane"] for r in mine.take(at(2), 1, 7)] == ["dead letter"]


def test_W6_by_processing_time_nothing_is_late() -> None:
    minutes = Bucket(Windowing(tumbling(5), ProcessingTime()))
    assert minutes.take(at(33, 99), None, 37) == []
    assert minutes.take(at(36), None, 36) == [], "a clock that was set back"
    assert minutes.take([], None, 39) == []
    assert brief(minutes.take(at(1), None, 41)) == [(35, 40, "a", 3, "on time", 0)]


def test_a_session_that_was_emitted_and_grows_is_retracted() -> None:
    sessions = Bucket(Windowing(Session(5), EventTime(allowed_lateness_ms=10)))
    sessions.take(at(0, 8), 5, 0)
    assert brief(sessions.rows) == [(0, 5, "a", 1, "on time", 0)]
    assert brief(sessions.take(at(4), 6, 0)) == [(0, 5, "a", None, "retraction", 1)]
    assert sessions.take(at(20, key="b"), 12, 0) == []
    assert brief(sessions.take([], 13, 0)) == [(0, 13, "a", 3, "on time", 1)]
    assert brief(sessions.take(at(6), 14, 0)) == [(0, 13, "a", 4, "update", 2)]


def test_the_form_of_a_state_names_what_must_not_change() -> None:
    form = plan_of(Windowing(tumbling(5))).form
    assert form.startswith("tumbling('5ms') by event time, 1 keys in columns (), count(*), count(v), sum(v), avg(v)")
    assert form.endswith("python(v), 1 buckets")
    assert plan_of(Windowing(tumbling(5), EventTime(9, 9))).form == form, "lateness and timeout may"
    for other in (
        plan_of(Windowing(tumbling(6))),
        plan_of(Windowing(tumbling(5), ProcessingTime())),
        plan_of(Windowing(tumbling(5)), 2),
    ):
        assert other.form != form


def test_state_of_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="has version 2, but this library supports version 1"):
        decode(encode(BucketState()).replace("1", "2", 1))


@pytest.mark.parametrize("name", EXTREME_TIMES_MS | LIMITS_MS)
def test_W7_a_producer_can_send_any_time(name: str) -> None:
    time_ms = (EXTREME_TIMES_MS | LIMITS_MS)[name]
    windowing = Windowing(Hopping(10, 10), EventTime())
    records = [Record("a", 5, 1), Record("a", time_ms, 1), Record("a", 7, 1)]
    bucket = Bucket(windowing)
    bucket.take(records, None, 0)
    rows = bucket.take([], 20, 0)
    is_readable = time_ms is not None and abs(time_ms) <= MAX_EVENT_TIME_MS
    assert sum(row["r0"] or 0 for row in rows if row["start"] == 0) == 2 + (time_ms == 0)
    assert [row["why"] for row in bucket.rows if row["pane"] == "dead letter"] == ["no event time"] * (not is_readable)
    named = [row[it] for row in bucket.rows for it in ("start", "end", "event_time") if row[it] is not None]
    assert all(abs(1_000 * it) < 2**63 for it in named)
    columns = {"time": pa.array([time_ms], pa.int64()), "bucket": pa.array([0], pa.int32())}
    packed = list(Pack(plan_of(windowing))([pa.record_batch(columns)]))
    assert len(packed[-1]["starts"][0]) == is_readable
