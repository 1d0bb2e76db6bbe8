"""W16: windows with the watermark of a group, over partitions that wait for each other, and that several queries own."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from streamgroups.event_time.watermark import At
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import Hopping
from streamgroups.partitions import TopicPartition
from streamgroups.query.batch_ranges import BatchAdmission
from streamgroups.query.trigger_limits import UNLIMITED, Limits
from unit_tests.streamgroups_operators.group_model import GroupModel, GroupQuery
from unit_tests.streamgroups_operators.window_model import START_MS, Record, by_event_time

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
MINUTE_MS, DAY_MINUTES = 60_000, 1_440
LOGS = st.lists(st.lists(st.integers(0, 300), max_size=30), min_size=2, max_size=3)


def group_of(logs: dict[TopicPartition, list[int]], size_ms: int, idle_timeout_ms: int | None = None) -> GroupModel:
    """Windows of a group over records at these milliseconds after a start."""
    operator = replace(by_event_time(Hopping(size_ms, size_ms)), scope=Scope.GROUP)
    records = {tp: [Record(START_MS + ms) for ms in log] for tp, log in logs.items()}
    return GroupModel(operator, records, idle_timeout_ms)


def query(group: GroupModel, number: int, limits: Limits) -> tuple[GroupQuery, BatchAdmission]:
    return GroupQuery(group, number), BatchAdmission(limits, "billing", lambda: group.now_ms)


def state_rows(max_drift_ms: int | None) -> tuple[int, int]:
    """The largest number of rows in the state, and the number of emitted windows. One partition is a day behind."""
    day = [minute * MINUTE_MS for minute in range(DAY_MINUTES)]
    two_days = [minute * MINUTE_MS for minute in range(-DAY_MINUTES, DAY_MINUTES)]
    group = group_of({P0: day, P1: two_days, P2: day}, 5 * MINUTE_MS)
    run, admission = query(group, 1, Limits(max_drift_ms=max_drift_ms))
    run.take(P0, P1, P2)
    largest = 0
    while run.admit(admission, is_bounded=True):
        largest = max(largest, sum(group.state_rows.values()))
    assert {tp: it.next_offset for tp, it in run.member.owned.items()} == {P0: 1_440, P1: 2_880, P2: 1_440}
    assert {row["pane"] for _, row in group.rows} == {"on time"}, "no record is late"
    return largest, len(group.rows)


def test_W16_the_state_of_a_backlog_is_a_tenth_if_a_partition_is_a_day_behind() -> None:
    unlimited, emitted = state_rows(None)
    limited, emitted_with_drift = state_rows(60 * MINUTE_MS)
    assert emitted == emitted_with_drift, "the same windows close"
    assert limited * 10 <= unlimited


@given(LOGS, st.integers(1, 100), st.lists(st.integers(0, 1), max_size=60))
def test_W16_two_queries_read_all_records_and_the_drift_is_limited(
    records: list[list[int]], max_drift_ms: int, turns: list[int]
) -> None:
    logs = {TopicPartition("flights", p): sorted(log) for p, log in enumerate(records)}
    group = group_of(logs, 10, idle_timeout_ms=2_000)
    queries = [query(group, number, Limits(max_drift_ms=max_drift_ms)) for number in (1, 2)]
    queries[0][0].take(P0)
    queries[1][0].take(*[tp for tp in logs if tp != P0])
    # At the end both queries have enough turns to read all records, and time until partitions are idle.
    for turn in [*turns, *[0, 1] * 150]:
        run, admission = queries[turn]
        group.now_ms += 600
        minimum = group.minimum
        owned = run.member.owned
        before = {tp: it.next_offset for tp, it in owned.items()}
        run.admit(admission)
        for tp, it in run.member.owned.items():
            log, start = logs[tp], before[tp]
            if not start or it.next_offset == start or not isinstance(minimum, At):
                continue
            exceeded = log[it.next_offset - 1] - (minimum.time_ms - START_MS) - max_drift_ms
            idle = [other for other in logs if other != tp and _position(group, other) == len(logs[other])]
            assert exceeded <= log[it.next_offset - 1] - log[start - 1] or idle, "one batch more than the drift"
    for tp, log in logs.items():
        assert _position(group, tp) == len(log)
    assert {row["pane"] for _, row in group.rows} <= {"on time"}, "records in order are not late"


def _position(group: GroupModel, tp: TopicPartition) -> int:
    return group.commits[tp][0] if tp in group.commits else 0


def test_W16_the_windows_of_a_partition_that_waits_close_with_the_watermark_of_the_group() -> None:
    group = group_of({P0: [5, 95, *range(100, 200)], P1: [*range(100)]}, 10)
    first, second = query(group, 1, Limits(max_drift_ms=20)), query(group, 2, UNLIMITED)
    first[0].take(P0)
    second[0].take(P1)
    first[0].admit(first[1])
    second[0].step({P1: 16})
    group.now_ms += 2_000
    [plan] = first[0].admit(first[1])
    [it] = plan.ranges
    assert (len(it.range), it.idle_until_ms) == (0, None), "it has available records, and waits"
    assert [(row["start"] - START_MS, row["r0"]) for tp, row in group.rows if tp == P0] == [(0, 1)]
    second[0].step({P1: 84})
    group.now_ms += 2_000
    [plan] = first[0].admit(first[1])
    assert len(plan.ranges[0].range) > 0, "the others have come near"
