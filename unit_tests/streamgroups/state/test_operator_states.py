"""S10: each range gets the state of its start, and the commit names the states that the tasks have reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import StateMismatch, StateMissing
from streamgroups.event_time.watermark import At, NotYet, Watermark
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.membership import InFlight, Membership, NewPosition, Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.operator_states import OperatorStates, StateReport
from streamgroups.query.operator_time import OperatorTime
from streamgroups.query.state_search import StateSearch
from streamgroups.state.figures import BatchFigures, StateSize, TaskFigures
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState
from streamgroups.state.origins import UNNAMED, Named, New, StateOrigin, decode, encode
from streamgroups.state.state_lookup import Choice, Empty, Position, Stored
from streamgroups.state.state_time import GroupWindows, StateTime
from streamgroups.state.task_plan import RangePlan
from streamgroups.state.task_plan import decode as decode_plan
from streamgroups.state.task_plan import encode as encode_plan

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
R0, R1 = OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)
BATCH = InFlight(7, (R0, R1))
TOPIC = TopicIdentity("c1", "t1")
RUN = "1f3a9c2b7d10"
GroupWatermark: TypeAlias = Callable[[Mapping[TopicPartition, Owned], Collection[TopicPartition]], Watermark]
TIMES = st.none() | st.integers(-(10**18) + 1, 10**18 - 1)
STATE_TIMES = st.builds(StateTime, TIMES, TIMES, st.booleans(), st.none() | st.builds(GroupWindows, TIMES, TIMES))


def file(attempt: int) -> StateFileName:
    return StateFileName(1732334879123, RUN, 7, attempt)


class Time(OperatorTime):
    """The time of the group, with this watermark."""

    def __init__(self, watermark: GroupWatermark) -> None:
        self._watermark = watermark

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        return self._watermark(owned, read)


class Search(StateSearch):
    """Finds this state; ``None``: each position names its state."""

    def __init__(self, found: Choice | None) -> None:
        self._found = found

    def find(self, position: Position) -> Choice:
        assert self._found is not None, f"the state of {position} is named"
        return self._found


def states(
    found: Choice | None = None,
    reports: tuple[StateReport, ...] = (),
    watermark: GroupWatermark | None = None,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
) -> OperatorStates:
    def take(run_id: str, batch: int) -> tuple[StateReport, ...]:
        assert (run_id, batch) == (RUN, 7)
        return reports

    return OperatorStates(
        "/state",
        "billing",
        RUN,
        Search(found),
        take,
        lambda: 1732334880000,
        high_watermarks=lambda _: high_watermarks or {},
        time=OperatorTime() if watermark is None else Time(watermark),
    )


def planned(state: StateOrigin, found: Choice | None = None) -> RangePlan:
    owned = {P0: Owned(10, identity=TOPIC, state=state)}
    [plan] = states(found).task_plans(InFlight(7, (R0,)), owned, [(R0,)])
    assert plan is not None
    assert (plan.location, plan.group_id, plan.file(3)) == (
        "/state",
        "billing",
        StateFileName(1732334880000, RUN, 7, 3),
    )
    return plan.ranges[0]


def test_S10_a_named_state_needs_no_search() -> None:
    assert planned(Named(file(1), 10)) == RangePlan(R0, Named(file(1), 10), 10, TOPIC)


def test_S11_a_state_of_a_later_offset_is_rejected_before_the_batch() -> None:
    """A committed position has no such state. One that a search has found is that of ids that a reset keeps."""
    with pytest.raises(StateMismatch, match="position 10 names the state of the later offset 11"):
        planned(Named(file(1), 11))
    later = Stored(file(1), PartitionState(OffsetRange(P0, 5, 11), 0, TOPIC))
    assert planned(UNNAMED, later) == RangePlan(R0, Named(file(1), 11), 10, TOPIC)


def test_W2_the_plan_of_each_range_contains_the_watermark_of_the_group() -> None:
    requested: list[tuple[object, object]] = []

    def watermark(owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition]) -> Watermark:
        requested.append((owned, read))
        return At(500) if len(requested) == 1 else NotYet()

    empty = OffsetRange(P1, 5, 5)
    owned = {tp: Owned(n, identity=TOPIC, state=New()) for tp, n in ((P0, 10), (P1, 5))}
    query = states(watermark=watermark)
    for number, expected in ((7, 500), (7, 500), (8, None)):
        # Two branches of a query request the plans of one batch.
        [plan] = query.task_plans(InFlight(number, (R0, empty)), owned, [(R0, empty)])
        assert plan is not None
        assert [it.group_watermark_ms for it in decode_plan(encode_plan(plan)).ranges] == [expected] * 2
    assert requested == [(owned, {P0})] * 2, "an empty range does not show that a partition has records"


@pytest.mark.parametrize(("watermark_ms", "is_due"), [(None, False), (29, False), (30, True), (31, True)])
def test_W2_a_partition_is_due_when_the_watermark_of_the_group_closes_a_window(
    watermark_ms: int | None, is_due: bool
) -> None:
    def watermark(owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition]) -> Watermark:
        return NotYet() if watermark_ms is None else At(watermark_ms)

    query = states(watermark=watermark, high_watermarks=dict.fromkeys((P0, P1), 10))
    times = (StateTime(7, group=GroupWindows(None, 30)), StateTime(7, group=GroupWindows()), StateTime(30), None)
    found = [
        query.due({P0: Owned(10, state=Named(file(1), 10, None, time))}, {P0: 10}) == (OffsetRange(P0, 10, 10),)
        for time in times
    ]
    assert found == [is_due, False, False, False]


def test_W5_only_the_idle_timeout_waits_for_available_records() -> None:
    """A record after the position is not readable yet: it belongs to an open transaction."""
    now_ms = 1732334880000
    query = states(watermark=lambda owned, read: At(30), high_watermarks={P0: 11})
    by_idleness, by_clock = Named(file(1), 10, now_ms, StateTime(7)), Named(file(1), 10, now_ms)
    by_group = Named(file(1), 10, now_ms, StateTime(7, group=GroupWindows(None, 30)))
    empty = OffsetRange(P0, 10, 10)
    for state, due in ((by_idleness, ()), (UNNAMED, ()), (by_clock, (empty,)), (by_group, (empty,))):
        owned = {P0: Owned(10, identity=TOPIC, state=state)}
        assert query.due(owned, {P0: 10}) == due
        if due:
            [plan] = query.task_plans(InFlight(7, due), owned, [due])
            assert plan is not None
            assert plan.ranges[0].idle_until_ms is None, "the partition is not idle"


def test_W5_records_that_are_read_again_make_a_partition_not_idle() -> None:
    stored = Stored(file(1), PartitionState(OffsetRange(P0, 0, 4), 0, TOPIC))
    for choice, idle in ((stored, False), (Empty(4), False), (Empty(10), True)):
        query = states(choice, high_watermarks={P0: 10})
        owned = {P0: Owned(10, identity=TOPIC, state=UNNAMED)}
        due = query.due(owned, {P0: 10})
        [plan] = query.task_plans(InFlight(7, due), owned, [due])
        assert plan is not None
        assert (plan.ranges[0].idle_until_ms is not None) == idle


def test_S10_a_new_partition_begins_with_an_empty_state() -> None:
    assert planned(New()) == RangePlan(R0, New(), 10, TOPIC)


def test_S10_a_position_of_a_tool_reads_again_from_the_state_before_it() -> None:
    stored = Stored(file(1), PartitionState(OffsetRange(P0, 0, 4), 0, TOPIC))
    plan = planned(UNNAMED, stored)
    assert plan == RangePlan(R0, Named(file(1), 4), 4, TOPIC)
    assert plan.to_read == OffsetRange(P0, 4, 20)


def test_S10_a_state_that_is_started_empty_by_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert planned(UNNAMED, Empty(10)) == RangePlan(R0, New(), 10, TOPIC)
    assert "flights-0 continues at 10 with an empty state" in caplog.text


def test_S10_each_task_has_the_plans_of_its_ranges() -> None:
    owned = {tp: Owned(n, identity=TOPIC, state=New()) for tp, n in ((P0, 10), (P1, 5))}
    plans = states().task_plans(BATCH, owned, [(R1,), (R0,)])
    assert [[it.range for it in plan.ranges] for plan in plans if plan is not None] == [[R1], [R0]]


def test_S10_after_a_batch_the_latest_report_of_each_range_counts() -> None:
    reports = (StateReport(R0, file(1)), StateReport(R1, file(1)), StateReport(R0, file(2)))
    assert states(reports=reports).finished(BATCH) == {P0: Named(file(2), 20), P1: Named(file(1), 6)}


def test_W13_the_latest_file_of_all_operators_counts() -> None:
    time = StateTime(15, 17)
    reports = (
        StateReport(R0, file(1), 400, time=time, number=0, operators=2),
        StateReport(R0, file(1), 300, time=StateTime(10), number=1, operators=2),
        StateReport(R1, file(1), number=1, operators=2, size=StateSize(1, 10, 1), work=TaskFigures(1, 10, 0.25)),
        StateReport(R1, file(1), number=0, operators=2, size=StateSize(2, 30, 1), work=TaskFigures(2, 30, 0.5)),
        # This attempt has not reported the second operator.
        StateReport(R0, file(2), 500, number=0, operators=2),
    )
    query = states(reports=reports)
    assert query.finished(BATCH) == {P0: Named(file(1), 20, 300, time), P1: Named(file(1), 6)}
    assert query.figures == BatchFigures({P0: StateSize(), P1: StateSize(3, 40, 2)}, TaskFigures(3, 40, 0.5))
    with pytest.raises(StateMissing, match=r"no task has written the states of flights-0\[10,20\)"):
        states(reports=reports[2:]).finished(BATCH)


def test_S10_a_batch_whose_sink_has_not_read_all_rows_is_an_error() -> None:
    with pytest.raises(StateMissing, match=r"no task has written the states of flights-1\[5,6\)") as rejected:
        states(reports=(StateReport(R0, file(1)),)).finished(BATCH)
    assert "foreachBatch" in rejected.value.remedy


def test_S10_nothing_is_in_flight() -> None:
    assert states().finished(None) == {}


def test_O3_the_figures_of_a_batch_count_each_task_once_and_each_partition_that_is_owned() -> None:
    works = TaskFigures(2, 900, 0.5, 7, 300, 0.125), TaskFigures(1, 100, 0.25, 1, 50, 0.5)
    reports = (
        StateReport(R0, file(1), size=StateSize(9, 90, 1), work=TaskFigures(99)),
        StateReport(R0, file(2), size=StateSize(30, 120, 4), work=works[0]),
        StateReport(R1, file(3), size=StateSize(5, 20, 1), work=works[1]),
    )
    query = states(reports=reports)
    assert query.figures is None
    query.finished(BATCH)
    sizes = {P0: StateSize(30, 120, 4), P1: StateSize(5, 20, 1)}
    assert query.figures == BatchFigures(sizes, TaskFigures(3, 1_000, 0.5, 8, 350, 0.5))
    query.task_plans(InFlight(8, ()), {P1: Owned(6, identity=TOPIC, state=New())}, [])
    assert query.figures == BatchFigures({P1: StateSize(5, 20, 1)}, TaskFigures(3, 1_000, 0.5, 8, 350, 0.5))


def test_O3_a_task_of_two_ranges_counts_once() -> None:
    work = TaskFigures(2, 900, 0.5, 7, 300, 0.125)
    query = states(reports=(StateReport(R0, file(1), work=work), StateReport(R1, file(1), work=work)))
    query.finished(BATCH)
    assert query.figures is not None
    assert query.figures.work == work


# ---- positions -------------------------------------------------------------------------------------------------------


def test_S10_a_finished_batch_advances_positions_and_states_together() -> None:
    member = Membership().assign({P0: Owned(10), P1: Owned.new(5, Origin.STARTING)}).plan(BATCH)
    member, _ = member.finish(7, {P0: Named(file(1), 20)})
    assert member.owned[P0].state == Named(file(1), 20)
    assert member.owned[P1].state == UNNAMED


def test_S10_a_position_that_is_set_names_no_state_unless_it_is_given() -> None:
    member = Membership().assign({P0: Owned(10, state=Named(file(1), 10), epoch=7), P1: Owned(5, state=New())})

    def moved(next_offset: int, state: StateOrigin | None = None) -> StateOrigin:
        return member.move({P0: NewPosition(next_offset, 7, state=state)}).owned[P0].state

    assert moved(7) == UNNAMED
    assert moved(10) == Named(file(1), 10), "it has not moved"
    assert moved(15, Named(file(1), 10)) == Named(file(1), 10)


@pytest.mark.parametrize(
    "state",
    [
        UNNAMED,
        New(),
        Named(file(1), 2**63 - 1),
        Named(file(1), 2**63 - 1, 5),
        Named(file(1), 10, None, StateTime()),
        Named(file(1), 10, None, StateTime(-5)),
        Named(file(1), 10, 7, StateTime(None, 9, group=GroupWindows(None, 9))),
        Named(
            StateFileName(2**62 // 1_000, RUN, 2**63 - 1, 2**63 - 1),
            2**63 - 1,
            2**63 - 1,
            StateTime(1 - 10**18, 1 - 10**18, is_idle=True, group=GroupWindows(1 - 10**18, 1 - 10**18)),
        ),
    ],
)
def test_S10_a_commit_names_the_state_of_its_offset(state: StateOrigin) -> None:
    mark = CommitMark(False, identity=TOPIC, state=state)
    assert CommitMark.parse(mark.encode() + "bytes behind it") == mark
    assert Owned.committed(5, mark.encode()).state == state


@given(st.integers(0, 10**19 - 1), st.none() | st.integers(1 - 10**18, 10**19 - 1), st.none() | STATE_TIMES)
def test_S10_every_named_state_is_read_as_it_is_written(
    offset: int, due_ms: int | None, time: StateTime | None
) -> None:
    named = Named(file(1), offset, due_ms, time)
    assert decode(encode(named)) == named


@given(st.text("0123456789@-i", max_size=30))
def test_S10_text_that_no_query_writes_names_no_state(text: str) -> None:
    found = decode(f"{file(1)}@{text}")
    assert found == UNNAMED or encode(found) == f"{file(1)}@{text}"


@pytest.mark.parametrize(
    "text",
    [
        "10@",
        "10@@",
        "10@@5",
        "10@5@6",
        "10@@@@",
        "10@@5@6@7",
        "10@@x@",
        "10@@05@",
        "10@@-0@",
        "10@@5@6i",
        f"10@@{10**18}@",
    ],
)
def test_S10_a_time_that_is_not_complete_names_no_state(text: str) -> None:
    assert decode(f"{file(1)}@{text}") == UNNAMED


def test_S10_damaged_metadata_names_no_state() -> None:
    text = CommitMark(False, identity=TOPIC, state=Named(file(1), 10)).encode()
    for damaged in (text.replace("@10", "@x"), text.replace(".state@", ".stat@"), text.replace("state=", "state=.")):
        mark = CommitMark.parse(damaged)
        assert mark is not None
        assert mark.state == UNNAMED
