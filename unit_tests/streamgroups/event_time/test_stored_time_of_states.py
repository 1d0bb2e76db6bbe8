"""W2, W3, W5, O3: who watches a group sees the event time of its windows of partitions, from commits alone."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from streamgroups.event_time.explanation import explain_partitions
from streamgroups.event_time.source_time import together
from streamgroups.event_time.stored_time import TimeState, time_in_states
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Named, New, StateOrigin
from streamgroups.state.state_time import GroupWindows, StateTime
from unit_tests.streamgroups.event_time.tables import P0, P1, P2

FILE = StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1)
TIMES = st.integers(0, 50)


def own(watermark_ms: int | None, *, is_idle: bool = False) -> Named:
    return Named(FILE, 10, None, StateTime(watermark_ms, watermark_ms, is_idle))


def of_group(watermark_ms: int | None, used_ms: int | None = None) -> Named:
    return Named(FILE, 10, None, StateTime(watermark_ms, watermark_ms, group=GroupWindows(used_ms)))


def at(time_ms: int | None) -> Watermark:
    return NOT_YET if time_ms is None else At(time_ms)


@given(st.lists(st.tuples(st.none() | TIMES, st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_W2_W3_the_watermark_is_that_of_a_query_with_all_partitions(
    partitions: list[tuple[int | None, bool, bool]],
) -> None:
    """If the last batch of each partition has used the watermark of the group, as it is after idle partitions."""
    times = {TopicPartition("flights", i): it for i, it in enumerate(partitions)}
    idle = {tp for tp, (_, is_idle, is_available) in times.items() if is_idle and not is_available}
    watermark = together([(at(time_ms), tp in idle) for tp, (time_ms, _, _) in times.items()])
    used_ms = watermark.time_ms if isinstance(watermark, At) else None
    states = {tp: of_group(time_ms, used_ms) for tp, (time_ms, _, _) in times.items()}
    found = time_in_states(states, {tp for tp, (_, _, is_available) in times.items() if is_available})
    assert found is not None
    assert found.watermark == watermark
    for tp, time in found.partitions.items():
        if tp not in idle:
            assert (time.state is TimeState.HOLDS_BACK) == (time.asserts == watermark)
        elif latest(time.asserts, watermark) != time.asserts:
            assert time.state in (TimeState.IDLE, TimeState.NO_WATERMARK)


@given(st.lists(st.tuples(st.none() | TIMES, st.none() | TIMES), min_size=1), st.sets(st.integers(0, 3)))
def test_W2_the_watermark_is_never_before_one_that_the_group_has_used(
    partitions: list[tuple[int | None, int | None]], available: set[int]
) -> None:
    states = {TopicPartition("flights", i): of_group(*it) for i, it in enumerate(partitions)}
    found = time_in_states(states, {TopicPartition("flights", i) for i in available})
    assert found is not None
    assert found.watermark is not None
    for _, used_ms in partitions:
        assert latest(found.watermark, at(used_ms)) == found.watermark
    for i, (time_ms, _) in enumerate(partitions):
        state = found.partitions[TopicPartition("flights", i)].state
        if i in available:
            assert state in (TimeState.HOLDS_BACK, TimeState.AHEAD)
        assert (state is TimeState.NO_WATERMARK) <= (time_ms is None)


def test_W3_an_idle_partition_that_wakes_up_holds_back_the_group_again() -> None:
    states: dict[TopicPartition, StateOrigin] = {P0: of_group(90, 70), P1: of_group(30, 30), P2: New()}
    shown = []
    for available in ((), (P1,)):
        found = time_in_states(states, available)
        assert found is not None
        shown.append((found.watermark, *(it.state.value for it in found.partitions.values())))
    assert shown == [(At(90), "holds back", "idle", "no watermark"), (At(70), "ahead", "holds back", "no watermark")]


def test_W2_a_partition_without_a_state_holds_back_a_group_that_has_no_watermark_yet() -> None:
    found = time_in_states({P0: of_group(90), P1: UNNAMED}, ())
    assert found is not None
    assert found.watermark == NOT_YET
    assert [it.state for it in found.partitions.values()] == [TimeState.AHEAD, TimeState.HOLDS_BACK]


def test_W5_a_partition_with_a_watermark_of_its_own_is_active_or_idle() -> None:
    states: dict[TopicPartition, StateOrigin] = {P0: own(90), P1: own(30, is_idle=True), P2: UNNAMED}
    for available, word in ((set[TopicPartition](), "idle"), ({P1}, "active")):
        found = time_in_states(states, available)
        assert found is not None
        assert found.watermark is None
        assert {tp: it.state.value for tp, it in found.partitions.items()} == {P0: "active", P1: word}


def test_states_without_event_time_are_not_shown() -> None:
    assert time_in_states({P0: Named(FILE, 10, 5), P1: New(), P2: UNNAMED}, ()) is None


def test_W5_an_explanation_shows_what_the_idle_timeout_has_done_and_when_it_expires() -> None:
    states: dict[TopicPartition, StateOrigin] = {
        P0: own(None),
        P1: Named(FILE, 10, 60_000, StateTime(30_000, 20_000, is_idle=True)),
        P2: New(),
    }
    assert [it.state for it in explain_partitions("board", "alice", states).partitions] == [
        "active",
        "idle: the idle timeout has advanced the watermark; the idle timeout expires at 1970-01-01T00:01:00.000Z",
        "no state yet",
    ]
