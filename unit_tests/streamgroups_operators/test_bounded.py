"""W17: bounded runs emit open windows at their end, and bounded data have the results of a stream of the same records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, Hopping, ProcessingTime, Session, Shape, Windowing
from streamgroups.partitions import TopicPartition
from streamgroups_operators import bounded
from streamgroups_operators.bounded import BoundedRecords
from streamgroups_operators.function_operator import FunctionOperator
from streamgroups_operators.operator import BatchTime
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows import fresh_rows, sessions
from unit_tests.streamgroups_operators.group_model import GroupModel
from unit_tests.streamgroups_operators.test_group_time import LOGS, of_group, two
from unit_tests.streamgroups_operators.test_window_operator import (
    OPERATORS,
    OPERATORS_OF_PRODUCERS,
    RECORDS,
    RECORDS_OF_PRODUCERS,
    SHAPES,
)
from unit_tests.streamgroups_operators.window_model import (
    START_MS,
    Place,
    Query,
    Record,
    Reference,
    Row,
    aggregated,
    batch,
    brief,
    by_event_time,
    current,
    dead,
    operator,
)

MINUTE_MS = 60_000


def results(rows: Sequence[Row]) -> dict[Place, tuple[object, ...]]:
    """The current result of each window, without its revision."""
    return {place: result[1:] for place, result in current(rows).items()}


def read_bounded(of: WindowOperator, records: Sequence[Record], chunk: int = 7) -> list[Row]:
    task = BoundedRecords(replace(of, is_bounded=True), "flights", START_MS)
    tables: list[pa.Table] = []
    for at in range(0, len(records), chunk):
        tables += task.add(batch(records[at : at + chunk], at))
    tables += task.finish()
    return [row for table in tables for row in table.to_pylist()]


def run(of: WindowOperator, records: Sequence[Record], cuts: Sequence[tuple[int, bool]]) -> tuple[Query, list[Row]]:
    """Runs a stream over records.

    Args:
        of: the operator.
        records: the records.
        cuts: the ends of batches, and whether a flush follows.
    """
    query, rows = Query(of), []
    for end, flush in cuts:
        rows += query.step(records[query.next_offset : end])[1]
        if flush:
            rows += query.step(flush=True)[1]
    return query, rows


CUTS = st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=8)


@given(OPERATORS, RECORDS, CUTS, st.sampled_from([1, 10, 1_000]), st.integers(1, 9))
def test_W17_bounded_data_have_the_results_of_a_stream_that_ends_with_a_flush(
    of: WindowOperator, records: list[Record], cuts: list[tuple[int, bool]], step: int, chunk: int
) -> None:
    ends = [*sorted((min(end, len(records)), flush) for end, flush in cuts), (len(records), True)]
    with patch.object(sessions, "_MAX_RECORDS", step), patch.object(fresh_rows, "_MERGE_ROWS", step):
        _, streamed = run(of, records, ends)
    with patch.object(bounded, "_STEP_RECORDS", step):
        read = read_bounded(of, records, chunk)
    assert results(read) == results(streamed)
    assert dead(read) == dead(streamed)
    places = [(row["k0"], row["k1"], row["start"], row["end"]) for row in read if row["pane"] != "dead letter"]
    assert len(places) == len(set(places)), "each window of bounded data has one row"
    assert {row["pane"] for row in read} <= {"on time", "flush", "dead letter"}


@given(OPERATORS_OF_PRODUCERS, RECORDS_OF_PRODUCERS, CUTS)
def test_W17_a_flush_closes_no_window_and_makes_no_record_late(
    of: WindowOperator, records: list[Record], cuts: list[tuple[int, bool]]
) -> None:
    # The last record closes all other windows.
    records = [*records, Record(START_MS + 10_000, "z", producer_ms=START_MS + 10_000)]
    ends = [*sorted((min(end, len(records)), flush) for end, flush in cuts), (len(records), False)]
    _, rows = run(of, records, ends)
    reference = Reference(of)
    for record in records:
        reference.add(record)
    complete = {place: result[1:] for place, result in reference.result().items()}
    found = {place: result for place, result in results(rows).items() if place[0][0] != "z"}
    assert found == complete
    assert dead(rows) == sorted(reference.dead, key=str)


@given(SHAPES, RECORDS, st.sampled_from([Scope.PARTITION, Scope.GROUP]))
def test_W17_without_late_records_the_results_are_those_of_a_table(
    shape: Shape, records: list[Record], scope: Scope
) -> None:
    of = replace(by_event_time(shape, delay_ms=1_000), scope=scope)
    timed = [record for record in records if record.time is not None]
    assert results(read_bounded(of, records)) == _grouped(shape, timed)


def _grouped(shape: Shape, records: Sequence[Record]) -> dict[Place, tuple[object, ...]]:
    found: dict[Place, list[int | None]] = defaultdict(list)
    for record in sorted(records, key=lambda it: it.time or 0):
        assert record.time is not None
        if isinstance(shape, Hopping):
            newest = record.time - record.time % shape.hop_ms
            for start in range(newest, record.time - shape.size_ms, -shape.hop_ms):
                found[record.keys, start, start + shape.size_ms].append(record.value)
            continue
        joined = [it for it in found if it[0] == record.keys and it[2] >= record.time]
        start = min([record.time, *(it[1] for it in joined)])
        values = [value for it in joined for value in found.pop(it)]
        found[record.keys, start, record.time + shape.gap_ms] = [*values, record.value]
    return {place: aggregated(values) for place, values in found.items()}


#: Steps: which query, what happens to it, how many records it reads of each partition, and how far the clock moves.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["run", "end", "end", "kill", "kill at the end", "release"]),
        st.lists(st.integers(0, 4), min_size=3, max_size=3),
        st.sampled_from([0, 300, 1_500]),
    ),
    max_size=25,
)


@given(st.sampled_from([Hopping(10, 10), Session(3), Session(10)]), st.sampled_from([0, 7, 40]), LOGS, STEPS, st.data())
def test_W17_each_record_is_counted_once_however_the_runs_of_a_group_end(
    shape: Shape,
    lateness_ms: int,
    logs: list[list[Record]],
    steps: list[tuple[int, str, list[int], int]],
    data: st.DataObject,
) -> None:
    group = GroupModel(of_group(shape, lateness_ms), {TopicPartition("flights", i): log for i, log in enumerate(logs)})
    partitions = list(group.logs)
    queries = two(group, own=(partitions[:1], partitions[1:]))
    for who, what, counts, passed_ms in steps:
        group.now_ms += passed_ms
        query = queries[who]
        if what == "release" and query.member.owned:
            tp = data.draw(st.sampled_from(sorted(query.member.owned)))
            query.release(tp)
            queries[1 - who].take(tp)
            continue
        reads = {} if "end" in what else dict(zip(partitions, counts, strict=False))
        query.step(reads, is_killed="kill" in what, ends="end" in what)
    for query in queries:
        query.step(dict.fromkeys(partitions, 100))
    # A flush follows when nothing else is to be done, and only once at a position.
    for query in queries:
        group.now_ms += 2_000
        for _ in range(4):
            query.step({}, ends=True)
        assert query.step({}, ends=True) == []
    for tp in partitions:
        rows = [row for of, row in group.rows if of == tp]
        counted = sum(result[0] for result in results(rows).values())  # type: ignore[misc]
        assert counted + len(dead(rows)) == len(group.logs[tp])


# ---- single cases ----------------------------------------------------------------------------------------------------


def test_W17_a_second_flush_emits_only_what_has_changed() -> None:
    for shape in (Hopping(10, 10), Session(10)):
        query = Query(by_event_time(shape))
        query.step([Record(0, "a"), Record(0, "b")])
        _, rows = query.step(flush=True)
        assert brief(rows) == [(0, 10, "a", 1, "flush", 0), (0, 10, "b", 1, "flush", 0)]
        _, rows = query.step(flush=True)
        assert rows == []
        query.step([Record(0, "b")])
        _, rows = query.step(flush=True)
        assert brief(rows) == [(0, 10, "b", 2, "flush", 1)]
        _, rows = query.step([Record(30, "z")])
        assert brief(rows) == [(0, 10, "a", 1, "on time", 1), (0, 10, "b", 2, "on time", 2)]
        _, rows = query.step(flush=True)
        assert brief(rows) == [(30, 40, "z", 1, "flush", 0)]


def test_W17_a_flushed_session_that_grows_is_retracted() -> None:
    query = Query(by_event_time(Session(10)))
    query.step([Record(0)])
    _, rows = query.step(flush=True)
    assert brief(rows) == [(0, 10, "a", 1, "flush", 0)]
    _, rows = query.step([Record(5)])
    assert brief(rows) == [(0, 10, "a", None, "retraction", 2)]
    _, rows = query.step(flush=True)
    assert brief(rows) == [(0, 15, "a", 2, "flush", 1)]
    _, rows = query.step([Record(30)])
    assert brief(rows) == [(0, 15, "a", 2, "on time", 2)]


def test_W17_a_flushed_window_has_updates_within_the_lateness() -> None:
    for shape in (Hopping(10, 10), Session(10)):
        query = Query(by_event_time(shape, lateness_ms=50))
        query.step([Record(0)])
        query.step(flush=True)
        _, rows = query.step([Record(30)])
        assert brief(rows) == [(0, 10, "a", 1, "on time", 1)]
        _, rows = query.step([Record(0)])
        assert brief(rows) == [(0, 10, "a", 2, "update", 2)]
        _, rows = query.step(flush=True)
        assert brief(rows) == [(30, 40, "a", 1, "flush", 0)]


@pytest.mark.parametrize("shape", [Hopping(MINUTE_MS, MINUTE_MS), Session(MINUTE_MS)])
def test_W17_a_flush_does_not_delay_the_idle_timeout(shape: Shape) -> None:
    query = Query(by_event_time(shape, idle_timeout_ms=MINUTE_MS))
    state, _ = query.step([Record(START_MS)], now_ms=START_MS)
    due_ms = state.due_ms
    assert due_ms is not None
    state, rows = query.step(now_ms=due_ms - 1, flush=True)
    assert [row["pane"] for row in rows] == ["flush"]
    assert state.due_ms == due_ms
    _, rows = query.step(now_ms=due_ms, idle_until_ms=due_ms)
    assert [(row["pane"], row["revision"]) for row in rows] == [("idle", 1)]


def test_W17_windows_by_the_clock_are_flushed_too() -> None:
    query = Query(operator(Windowing(Hopping(10, 10), ProcessingTime())))
    query.step([Record(None)], now_ms=1_000)
    _, rows = query.step(now_ms=1_005, flush=True)
    assert brief(rows) == [(1_000, 1_010, "a", 1, "flush", 0)]
    _, rows = query.step(now_ms=1_010)
    assert brief(rows) == [(1_000, 1_010, "a", 1, "on time", 1)]


def test_W17_records_of_a_window_that_was_flushed_are_in_few_segments() -> None:
    for shape in (Hopping(1_000, 1_000), Session(1_000)):
        query = Query(by_event_time(shape))
        query.step([Record(0)])
        query.step(flush=True)
        for i in range(40):
            state, _ = query.step([Record(i)])
            assert all(len(segments) <= 8 for segments in state.parts.values())
        _, rows = query.step(flush=True)
        assert [row["r0"] for row in rows] == [41]


def test_W17_a_killed_flush_is_repeated_and_a_committed_one_is_not() -> None:
    query = Query(by_event_time(Hopping(10, 10)))
    query.step([Record(0)])
    before = query.state
    _, killed = query.step(flush=True)
    after, query.state = query.state, before
    assert query.step(flush=True)[1] == killed
    query.state = after
    assert query.step(flush=True)[1] == []


def test_W17_the_time_of_the_group_makes_no_record_of_bounded_data_late() -> None:
    of = replace(by_event_time(Hopping(10, 10)), scope=Scope.GROUP)
    rows = read_bounded(of, [Record(0), Record(90), Record(5)])
    assert brief(rows) == [(0, 10, "a", 2, "flush", 0), (90, 100, "a", 1, "flush", 0)]


def test_W17_an_idle_timeout_closes_no_window_of_bounded_data() -> None:
    of = operator(Windowing(Hopping(10, 10), EventTime(0, 1)))
    assert brief(read_bounded(of, [Record(0), Record(15)])) == [
        (0, 10, "a", 1, "on time", 0),
        (10, 20, "a", 1, "flush", 0),
    ]


def test_W17_records_that_are_not_in_order_are_an_error() -> None:
    task = BoundedRecords(by_event_time(Hopping(10, 10)), "flights", START_MS)
    assert list(task.add(batch([Record(0)], 5))) == []
    assert list(task.add(batch([Record(0)], 3, partition=1))) == [], "each partition has its own order"
    with pytest.raises(InvalidOption, match="flights-0: the records do not arrive in the order of their offsets"):
        list(task.add(batch([Record(0)], 4)))


def test_W17_a_function_has_the_state_of_all_records_before() -> None:
    def count(state: pa.Table, records: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        new = records.group_by("k0").aggregate([([], "count_all")]).rename_columns(["k0", "n"])
        sums = pa.concat_tables([state, new]).group_by("k0").aggregate([("n", "sum")]).rename_columns(["k0", "n"])
        return sums, sums

    rows = pa.schema([("k0", pa.string()), ("n", pa.int64())])
    task = BoundedRecords(FunctionOperator("counts", count, ("k0",), rows, rows), "flights", START_MS)
    output: list[dict[str, Any]] = []
    with patch.object(bounded, "_STEP_RECORDS", 2):
        for at in range(5):
            output += [row for table in task.add(batch([Record(0)], at)) for row in table.to_pylist()]
        output += [row for table in task.finish() for row in table.to_pylist()]
    assert output == [{"k0": "a", "n": n} for n in (2, 4, 5)]
