"""W2, W3, S10: windows with the watermark of a group, over partitions that several queries own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import At, NotYet, earliest
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import Hopping, Session, Shape
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import Named
from streamgroups_operators.window_operator import WindowOperator
from unit_tests.streamgroups_operators.group_model import GroupModel, GroupQuery
from unit_tests.streamgroups_operators.window_model import START_MS, Record, Row, brief, by_event_time

P0, P1, P2 = (TopicPartition("flights", partition) for partition in range(3))
SHAPES: st.SearchStrategy[Shape] = st.sampled_from([Hopping(10, 10), Hopping(20, 10), Session(3), Session(10)])
LOGS = st.lists(
    st.lists(st.builds(Record, st.one_of(st.none(), st.integers(START_MS, START_MS + 120))), max_size=12),
    min_size=2,
    max_size=3,
)
#: Steps: which query, what happens to it, how many records it reads of each partition, and how far the clock moves.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["run", "run", "run", "kill", "release"]),
        st.lists(st.integers(0, 4), min_size=3, max_size=3),
        st.sampled_from([0, 300, 1_500]),
    ),
    max_size=25,
)


def of_group(shape: Shape, lateness_ms: int = 0, delay_ms: int = 0, idle_timeout_ms: int | None = None,
             policy: OnViolation = OnViolation.KEEP) -> WindowOperator:  # fmt: skip
    return replace(by_event_time(shape, lateness_ms, idle_timeout_ms, delay_ms, policy), scope=Scope.GROUP)


def two(group: GroupModel, *, own: tuple[list[TopicPartition], list[TopicPartition]]) -> tuple[GroupQuery, GroupQuery]:
    first, second = GroupQuery(group, 1), GroupQuery(group, 2)
    first.take(*own[0])
    second.take(*own[1])
    return first, second


def at(*times_s: int) -> list[Record]:
    return [Record(START_MS + time_s * 1_000) for time_s in times_s]


def emitted(group: GroupModel, tp: TopicPartition) -> list[tuple[object, ...]]:
    """Start, end, number of records and kind of the rows of a partition; times in seconds."""
    rows: list[Row] = [row for of, row in group.rows if of == tp]
    return [((r[0] - START_MS) // 1_000, (r[1] - START_MS) // 1_000, r[3], r[4]) for r in brief(rows)]


# ---- any interleaving ------------------------------------------------------------------------------------------------


@given(SHAPES, st.sampled_from([0, 7, 40]), st.sampled_from([0, 10]), LOGS, STEPS, st.data())
def test_W2_no_record_is_late_before_the_minimum_and_every_window_closes_once(
    shape: Shape,
    lateness_ms: int,
    delay_ms: int,
    records: list[list[Record]],
    steps: list[tuple[int, str, list[int], int]],
    data: st.DataObject,
) -> None:
    logs = {TopicPartition("flights", i): log for i, log in enumerate(records)}
    group = GroupModel(of_group(shape, lateness_ms, delay_ms), logs)
    partitions = list(logs)
    queries = two(group, own=(partitions[:1], partitions[1:]))
    for who, what, counts, passed_ms in steps:
        group.now_ms += passed_ms
        query = queries[who]
        if what == "release" and query.member.owned:
            tp = data.draw(st.sampled_from(sorted(query.member.owned)))
            query.release(tp)
            queries[1 - who].take(tp)
            continue
        _checked_step(group, query, dict(zip(partitions, counts, strict=False)), is_killed=what == "kill")
    for _ in range(4):
        for query in queries:
            group.now_ms += 2_000
            _checked_step(group, query, dict.fromkeys(partitions, 100))
    group.now_ms += 2_000
    assert [query.step({}) for query in queries] == [[], []], "every run has an effect, so no partition stays due"
    _check_windows(group)


def _checked_step(
    group: GroupModel, query: GroupQuery, counts: dict[TopicPartition, int], *, is_killed: bool = False
) -> None:
    minimum, known = group.minimum, len(group.rows)
    plans = query.step(counts, is_killed=is_killed)
    for plan in plans:
        watermark = plan.ranges[0].group_watermark_ms
        if watermark is None:
            continue
        assert isinstance(minimum, At)
        assert watermark <= minimum.time_ms, "the watermark of a batch is never above the minimum of the commits"
    used = {it.range.topic_partition: it.group_watermark_ms for plan in plans for it in plan.ranges}
    for tp, row in group.rows[known:]:
        if row["pane"] == "dead letter":
            _check_dead(group, tp, row, used[tp])
        elif row["pane"] in ("on time", "update"):
            assert row["end"] <= max(used[tp] or 0, group.watermarks.get(tp, 0))
    if not is_killed:
        for tp, watermark in used.items():
            group.watermarks[tp] = max(watermark or 0, group.watermarks.get(tp, 0))


def _check_dead(group: GroupModel, tp: TopicPartition, row: Row, watermark: int | None) -> None:
    if row["why"] == "no event time":
        return
    boundary = group.operator.windowing.boundary
    lateness_ms = getattr(boundary, "allowed_lateness_ms", 0)
    assert row["end"] <= max(watermark or 0, group.watermarks.get(tp, 0)) - lateness_ms


def _check_windows(group: GroupModel) -> None:
    on_time = Counter((tp, row["start"], row["end"]) for tp, row in group.rows if row["pane"] == "on time")
    assert set(on_time.values()) <= {1}, "every window closes once"
    shape, minimum = group.operator.windowing.shape, group.minimum
    if isinstance(shape, Session) or isinstance(minimum, NotYet):
        assert isinstance(shape, Session) or not on_time
        return
    assert isinstance(minimum, At)
    dropped = Counter((tp, row["event_time"]) for tp, row in group.rows if row["pane"] == "dead letter")
    for tp, log in group.logs.items():
        counted = Counter(r.time for r in log if r.time is not None)
        counted.subtract({time: n for (of, time), n in dropped.items() if of == tp and time is not None})
        for start in range(START_MS - shape.size_ms + shape.hop_ms, START_MS + 130, shape.hop_ms):
            end, latest = start + shape.size_ms, {}
            for of, row in group.rows:
                if of == tp and row["pane"] != "dead letter" and row["start"] == start:
                    latest = row
            expected = sum(n for time, n in counted.items() if start <= time < end)
            if end <= minimum.time_ms and shape.size_ms == shape.hop_ms:
                assert latest.get("r0", 0) == expected
            elif end > minimum.time_ms:
                assert not latest, "no window closes before the minimum"


@given(LOGS, STEPS)
def test_W2_a_partition_in_order_has_no_late_record(
    records: list[list[Record]], steps: list[tuple[int, str, list[int], int]]
) -> None:
    """However far the other partitions are ahead, and with each batch of each query."""
    logs = {
        TopicPartition("flights", i): sorted((r for r in log if r.time is not None), key=lambda r: r.time or 0)
        for i, log in enumerate(records)
    }
    group = GroupModel(of_group(Hopping(10, 10)), logs)
    queries = two(group, own=([P0], [tp for tp in logs if tp != P0]))
    for who, what, counts, passed_ms in [*steps, (0, "run", [99] * 3, 2_000), (1, "run", [99] * 3, 2_000)]:
        group.now_ms += passed_ms
        queries[who].step(dict(zip(logs, counts, strict=False)), is_killed=what == "kill")
    assert [row for _, row in group.rows if row["pane"] != "on time"] == []


# ---- examples --------------------------------------------------------------------------------------------------------


def test_W2_windows_close_when_all_partitions_have_passed_their_end() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25, 26), P1: at(2, 8, 31)})
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    second.step({P1: 1})
    group.now_ms += 2_000
    first.step({P0: 1})
    assert first.step({}) == []
    assert group.rows == [], "partition 1 is at second 2"
    second.step({P1: 1})
    second.step({P1: 1})
    assert [it.range.topic_partition for plan in second.step({}) for it in plan.ranges] == [P1]
    assert emitted(group, P1) == [(0, 10, 2, "on time")]
    group.now_ms += 2_000
    [plan] = first.step({})
    assert str(plan.ranges[0].range) == "flights-0[3,3)"
    assert emitted(group, P0) == [(0, 10, 1, "on time")]
    assert first.step({}) == []


def test_W2_a_query_reads_the_commits_of_others_once_a_second() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: at(2, 31)})
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    assert first.step({}) == []
    second.step({P1: 2})
    group.now_ms += 999
    assert first.step({}) == []
    group.now_ms += 1
    assert len(first.step({})) == 1


def test_S10_a_partition_that_a_tool_has_reset_holds_back_the_group_until_its_next_commit() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 5, 25), P1: at(2, 31)})
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    second.step({P1: 2})
    first.step({P0: 1})
    second.release(P1)
    group.reset(P1, 1)
    group.now_ms += 2_000
    assert group.minimum == NotYet()
    assert first.step({}) == [], "its windows stay open"
    second.take(P1)
    second.step({P1: 1})
    group.now_ms += 2_000
    assert len(first.step({})) == 1
    assert emitted(group, P0) == [(0, 10, 2, "on time")]


def test_W2_a_closed_window_stays_closed_when_the_watermark_of_the_group_goes_back() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: at(2, 4, 31)})
    first, second = two(group, own=([P0], [P1]))
    second.step({P1: 1})
    second.step({P1: 2})
    first.step({P0: 2})
    group.now_ms += 2_000
    first.step({})
    second.release(P1)
    group.reset(P1, 1)
    second.take(P1)
    second.step({P1: 1})
    group.now_ms += 2_000
    assert group.minimum == At(START_MS + 4_000)
    group.logs[P0].extend(at(3))
    first.step({P0: 1})
    assert emitted(group, P0) == [(0, 10, 1, "on time"), (0, 10, None, "dead letter")]


@pytest.mark.parametrize("next_offset", [3, 4])
def test_S10_after_a_reset_records_have_the_time_of_their_state(next_offset: int) -> None:
    """A record that was on time is not late after a reset, although the group is further."""
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 12, 3, 14, 45), P1: at(40, 50)})
    first, second = two(group, own=([P0], [P1]))
    second.step({P1: 2})
    first.step({P0: 3})
    group.now_ms += 2_000
    first.step({P0: 2})
    first.step({})
    before = emitted(group, P0)
    assert (0, 10, 2, "on time") in before
    group.rows.clear()
    first.release(P0)
    group.reset(P0, next_offset)
    first.take(P0)
    first.step({P0: 2})
    first.step({})
    assert emitted(group, P0) == before


def test_W3_an_idle_partition_does_not_hold_back_the_group() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: at(2), P2: []}, idle_timeout_ms=5_000)
    first, second = two(group, own=([P0], [P1, P2]))
    first.step({P0: 2})
    second.step({P1: 1})
    group.now_ms += 1_000
    assert first.step({}) == []
    group.now_ms += 5_000
    assert len(first.step({})) == 1
    assert emitted(group, P0) == [(0, 10, 1, "on time")]
    group.now_ms += 5_000
    second.step({})
    group.now_ms += 5_000
    second.step({})
    assert emitted(group, P1) == [(0, 10, 1, "on time")]


def test_W3_a_partition_with_available_records_is_slow_also_while_its_owner_does_not_run() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: at(2, 3)}, idle_timeout_ms=5_000)
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    second.step({P1: 1})
    for _ in range(10):
        group.now_ms += 5_000
        assert first.step({}) == [], "partition 1 has an available record"


def test_W3_without_a_timeout_a_partition_without_records_holds_back_the_group() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: []})
    first, _ = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    for _ in range(10):
        group.now_ms += 5_000
        assert first.step({}) == []


def test_W5_an_idle_timeout_closes_windows_that_the_group_does_not_reach() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000), idle_timeout_ms=3_000), {P0: at(1), P1: []})
    first, _ = two(group, own=([P0], [P1]))
    first.step({P0: 1})
    group.now_ms += 20_000
    assert len(first.step({})) == 1
    assert emitted(group, P0) == [(0, 10, 1, "idle")]


def test_W5_an_idle_timeout_advances_the_watermark_of_the_group_to_the_end_of_the_window() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000), idle_timeout_ms=3_000), {P0: at(1, 25), P1: at(2)})
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    second.step({P1: 1})
    group.now_ms += 2_000
    assert first.step({}) == [], "partition 1 is at second 2"
    group.now_ms += 11_000
    group.logs[P0].append(Record(START_MS + 26_000))
    second.step({})
    assert emitted(group, P1) == [(0, 10, 1, "idle")]
    assert group.minimum == At(START_MS + 10_000)
    first.step({P0: 1})
    assert emitted(group, P0) == [(0, 10, 1, "on time")]
    # Partition 1 has no open window, so its watermark and that of the group stay there.
    group.now_ms += 60_000
    assert second.step({}) == []
    assert group.minimum == At(START_MS + 10_000)
    group.logs[P1].extend(at(9, 11))
    second.step({P1: 2})
    assert emitted(group, P1) == [(0, 10, 1, "idle"), (0, 10, None, "dead letter")]
    assert group.minimum == At(START_MS + 11_000)


def test_W2_windows_of_a_group_do_not_wait_for_an_open_transaction() -> None:
    group = GroupModel(of_group(Hopping(10_000, 10_000)), {P0: at(1, 25), P1: at(2)})
    first, second = two(group, own=([P0], [P1]))
    first.step({P0: 2})
    group.open_records[P0] = 1
    group.logs[P1].extend(at(12))
    second.step({P1: 2})
    group.now_ms += 2_000
    [plan] = first.step({})
    assert plan.ranges[0].idle_until_ms is None
    assert emitted(group, P0) == [(0, 10, 1, "on time")]


def test_S10_a_state_does_not_continue_with_another_time() -> None:
    assert of_group(Hopping(10, 10)).form != by_event_time(Hopping(10, 10)).form


def test_S10_a_commit_names_the_event_time_and_that_of_the_group_where_it_is_used() -> None:
    for operator, has_group in ((by_event_time(Hopping(10, 10)), False), (of_group(Hopping(10, 10)), True)):
        group = GroupModel(operator, {P0: at(1)})
        query = GroupQuery(group, 1)
        query.take(P0)
        query.step({P0: 1})
        state = group.committed([P0])[P0].state
        assert isinstance(state, Named)
        assert state.time is not None
        assert (state.time.watermark_ms, state.time.event_time_ms) == (START_MS + 1_000, START_MS + 1_000)
        assert (state.time.group is not None) == has_group
        stream = query.explain()
        assert stream is not None
        assert stream.is_by_partition != has_group
    assert earliest(group.minimum) == At(START_MS + 1_000)
