"""W1-W3, W8, W10: what holds for the time of a source, whatever happens to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.event_time.observations import Observation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import (
    PartitionTime,
    SourceTime,
    add_partitions,
    advance_to,
    generated,
    observe,
    poll,
    remove_partitions,
)
from streamgroups.event_time.strategy import Generation, Progress, Records
from streamgroups.event_time.time_entries import decode_partition, encode_partition
from streamgroups.event_time.watermark import NOT_YET, At, earliest, latest
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.event_time.strategies import (
    EVERY,
    PARTITIONS,
    PLAIN,
    SETTINGS,
    STEPS,
    Poll,
    Steps,
    polls,
)
from unit_tests.streamgroups.event_time.tables import P0, P1

MAX_BYTES = 4_096


def start(*partitions: TopicPartition) -> SourceTime:
    return add_partitions(SourceTime(), dict.fromkeys(partitions))


def follow(state: SourceTime, steps: Steps, settings: TimeSettings) -> list[SourceTime]:
    states = [state]
    for seen in polls(steps):
        states.append(observe(states[-1], seen.observations, settings, seen.now_ms))
    return states


def merge(states: Collection[SourceTime], settings: TimeSettings) -> SourceTime:
    """The partitions of several members as one source. No member advances it alone."""
    together = SourceTime(
        earliest(*(state.watermark for state in states if state.partitions)),
        {tp: time for state in states for tp, time in state.partitions.items()},
    )
    return advance_to(together, generated(together.partitions.values(), settings.partition_idle_timeout_ms))


@given(STEPS, SETTINGS)
def test_the_watermark_never_goes_back(steps: Steps, settings: TimeSettings) -> None:
    states = follow(start(*PARTITIONS), steps, settings)
    for before, after in pairwise(states):
        assert latest(before.watermark, after.watermark) == after.watermark


@given(STEPS, SETTINGS)
def test_it_moves_no_further_than_the_slowest_partition_that_is_not_idle(steps: Steps, settings: TimeSettings) -> None:
    assert settings.generation is not None
    states = follow(start(*PARTITIONS), steps, settings)
    for before, after in pairwise(states):
        if after.watermark == before.watermark:
            continue
        active = [p for p in after.partitions.values() if not p.is_idle(settings.partition_idle_timeout_ms)]
        known = [p.event_time_ms for p in active or after.partitions.values()]
        times_ms = [ms - settings.generation.delay_ms for ms in known if ms is not None]
        assert isinstance(after.watermark, At)
        if active:
            assert len(times_ms) == len(active), "a partition without a read holds all back"
            assert after.watermark.time_ms <= min(times_ms)
        else:
            assert after.watermark.time_ms <= max(times_ms)


@given(STEPS)
def test_without_settings_it_is_the_minimum_of_the_maxima(steps: Steps) -> None:
    state = follow(start(*PARTITIONS), steps, PLAIN)[-1]
    maxima = [
        max((t for _, happenings in steps if tp in happenings for t in happenings[tp].times_ms), default=None)
        for tp in PARTITIONS
    ]
    known = [ms for ms in maxima if ms is not None]
    assert state.watermark == (At(min(known)) if len(known) == len(PARTITIONS) else NOT_YET)


# ---- idleness -----------------------------------------------------------------------------------------------------


@given(STEPS, SETTINGS)
def test_a_partition_with_available_records_is_never_idle(steps: Steps, settings: TimeSettings) -> None:
    state, last = start(*PARTITIONS), dict[TopicPartition, Observation]()
    for seen in polls(steps):
        before, state = state, observe(state, seen.observations, settings, seen.now_ms)
        last.update(seen.observations)
        slow = [state.partitions[tp] for tp, observation in last.items() if observation.available]
        assert not any(p.is_idle(1) for p in slow)
        if state.watermark != before.watermark:
            assert earliest(state.watermark, *(p.watermark for p in slow)) == state.watermark


@given(STEPS, st.integers(1, 40))
def test_a_partition_is_idle_if_all_polls_during_the_timeout_found_no_available_or_new_records(
    steps: Steps, timeout_ms: int
) -> None:
    """The definition, on the whole history, against what is kept of it."""
    settings = replace(PLAIN, partition_idle_timeout_ms=timeout_ms)
    history: dict[TopicPartition, list[tuple[int, Observation]]] = {tp: [] for tp in PARTITIONS}
    for state, seen in zip(follow(start(*PARTITIONS), steps, settings)[1:], polls(steps), strict=True):
        for tp, observation in seen.observations.items():
            history[tp].append((seen.now_ms, observation))
        for tp, observations in history.items():
            assert state.partitions[tp].is_idle(timeout_ms) == _idle(observations, timeout_ms)


def _idle(history: list[tuple[int, Observation]], timeout_ms: int) -> bool:
    if not history or history[-1][1].available:
        return False
    idle_ms = history[-1][0]
    for (now_ms, observation), (_, before) in zip(history[::-1], history[-2::-1], strict=False):
        idle_ms = now_ms
        if before.available or observation.records:
            break
    else:
        idle_ms = history[0][0]
    return history[-1][0] - idle_ms >= timeout_ms


def test_time_that_passes_without_a_poll_proves_nothing() -> None:
    settings = replace(PLAIN, partition_idle_timeout_ms=10)
    state = observe(start(P0, P1), {P0: Observation(1, 1, 1, 50), P1: Observation(1, 1, 1, 40)}, settings, 0)
    state = observe(state, {P0: Observation(2, 2, 1, 60)}, settings, 1_000)
    assert state.watermark == At(40), "a batch took long; the other one was not polled"
    state = observe(state, {P1: Observation(1, 9)}, settings, 1_001)
    assert state.watermark == At(40), "and it has"


def test_a_partition_under_backpressure_holds_the_watermark_for_as_long_as_it_takes() -> None:
    settings = replace(PLAIN, partition_idle_timeout_ms=10)
    state = observe(start(P0, P1), {P0: Observation(1, 1, 1, 50), P1: Observation(0, 9)}, settings, 0)
    for now_ms in range(0, 10_000, 100):
        state = observe(state, {P0: Observation(now_ms, now_ms, 1, now_ms), P1: Observation(0, 9)}, settings, now_ms)
        assert state.watermark == NOT_YET


def test_a_clock_that_was_ahead_holds_a_partition_for_no_longer_than_one_timeout() -> None:
    recorded_ahead = PartitionTime(50, At(50), next_offset=1, idle_since_ms=99_000, seen_ms=99_000)
    first = poll(recorded_ahead, Observation(1, 1), Generation(), now_ms=1_000)
    assert not first.is_idle(10)
    assert poll(first, Observation(1, 1), Generation(), now_ms=1_010).is_idle(10)


# ---- partitions come and go ---------------------------------------------------------------------------------------


@given(STEPS, SETTINGS, st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 2)))
def test_members_together_assert_what_one_would(
    steps: Steps, settings: TimeSettings, member_of: Mapping[TopicPartition, int]
) -> None:
    alone = follow(start(*PARTITIONS), steps, settings)[-1]
    shares = [[tp for tp in PARTITIONS if member_of.get(tp, 0) == member] for member in range(3)]
    members = [follow(start(*share), steps, settings)[-1] for share in shares]
    together = merge(members, settings)
    assert together.partitions == alone.partitions
    assert generated(together.partitions.values(), settings.partition_idle_timeout_ms) == generated(
        alone.partitions.values(), settings.partition_idle_timeout_ms
    )
    # Where a partition is idle a member may assert what one that sees them all would not, and takes nothing back.
    each = earliest(*(member.watermark for member in members if member.partitions))
    most = latest(alone.watermark, each)
    assert latest(together.watermark, most) == most, "never more than one member would, or each has"
    if settings.partition_idle_timeout_ms is None:
        assert together.watermark == alone.watermark


@given(STEPS, SETTINGS, st.data())
def test_a_partition_that_changes_hands_takes_its_time_along(
    steps: Steps, settings: TimeSettings, data: st.DataObject
) -> None:
    """Two members; between any two polls partitions move from one to the other, as metadata entries."""
    alone = start(*PARTITIONS)
    members = [start(*PARTITIONS), start()]
    for seen in polls(steps):
        for tp in data.draw(st.sets(st.sampled_from(PARTITIONS))):
            old, new = (0, 1) if tp in members[0].partitions else (1, 0)
            entry = json.dumps(encode_partition(members[old].partitions[tp]))
            members[old] = remove_partitions(members[old], [tp])
            members[new] = add_partitions(members[new], {tp: decode_partition(json.loads(entry))})
        alone = observe(alone, seen.observations, settings, seen.now_ms)
        members = [observe(member, seen.observations, settings, seen.now_ms) for member in members]
        assert {**members[0].partitions, **members[1].partitions} == alone.partitions


def test_a_partition_that_comes_in_moves_nothing_and_holds_the_watermark() -> None:
    state = observe(start(P0), {P0: Observation(1, 1, 1, 50)}, PLAIN, 0)
    state = add_partitions(state, {P1: PartitionTime(20, At(20), next_offset=5)})
    for time_ms in (60, 70):
        state = observe(state, {P0: Observation(time_ms, time_ms, 1, time_ms)}, PLAIN, time_ms)
        assert state.watermark == At(50), "it neither goes back nor on"
    state = observe(state, {P1: Observation(9, 9, 1, 65)}, PLAIN, 80)
    assert state.watermark == At(65)


def test_an_unobserved_partition_holds_the_watermark_until_it_is_read() -> None:
    state = add_partitions(observe(start(P0), {P0: Observation(1, 1, 1, 50)}, PLAIN, 0), {P1: None})
    state = observe(state, {P0: Observation(2, 2, 1, 60), P1: Observation(0, 3)}, PLAIN, 1)
    assert state.watermark == At(50)


def test_what_left_is_not_waited_for_and_reports_of_it_count_for_nothing() -> None:
    state = observe(start(P0, P1), {P0: Observation(1, 1, 1, 50), P1: Observation(1, 1, 1, 20)}, PLAIN, 0)
    state = observe(remove_partitions(state, [P1]), {P1: Observation(2, 2, 1, 30)}, PLAIN, 1)
    assert state.watermark == At(50)
    assert list(state.partitions) == [P0]


def test_a_member_without_partitions_emits_no_watermark() -> None:
    assert observe(start(), {P0: Observation(1, 1, 1, 50)}, PLAIN, 0) == SourceTime()
    owner = SourceTime(At(9), {P0: PartitionTime(5, At(5))})
    assert merge([start(), owner], PLAIN).watermark == At(9), "and holds no partition back"


# ---- restarts -----------------------------------------------------------------------------------------------------


@given(STEPS, SETTINGS, st.sets(st.integers(0, 15)))
def test_a_restart_at_any_point_changes_nothing(steps: Steps, settings: TimeSettings, restarts: set[int]) -> None:
    undisturbed = follow(start(*PARTITIONS), steps, settings)
    state = start(*PARTITIONS)
    for number, seen in enumerate(polls(steps)):
        if number in restarts:
            entries = {tp: json.dumps(encode_partition(time)) for tp, time in state.partitions.items()}
            restored = {tp: decode_partition(json.loads(entry)) for tp, entry in entries.items()}
            state = replace(state, partitions={tp: time for tp, time in restored.items() if time is not None})
        state = observe(state, seen.observations, settings, seen.now_ms)
        assert state == undisturbed[number + 1]


@given(STEPS, SETTINGS)
def test_a_repeated_poll_changes_nothing(steps: Steps, settings: TimeSettings) -> None:
    """A batch that was reported is run again after a crash, and reported again."""
    state = start(*PARTITIONS)
    for seen in polls(steps):
        state = observe(state, seen.observations, settings, seen.now_ms)
        assert observe(state, seen.observations, settings, seen.now_ms) == state


def test_the_largest_entry_leaves_room_for_others() -> None:
    most = -(2**63)
    entry = PartitionTime(most, At(most), Progress(2**63, most), 2**63, most, most)
    assert len(json.dumps(encode_partition(entry)).encode()) < MAX_BYTES / 10


@pytest.mark.parametrize("raw", [None, "", [], {}, {"v": 2}, {"v": 1}, {"v": 1, "event": "soon"}])
def test_a_malformed_entry_counts_as_a_missing_one(raw: object) -> None:
    assert decode_partition(raw) is None


def test_an_entry_of_a_newer_version_is_not_guessed_at() -> None:
    assert decode_partition({**encode_partition(PartitionTime(5)), "v": 2}) is None


# ---- how time is generated, imported, moved -----------------------------------------------------------------------


@given(EVERY, st.lists(st.integers(0, 100), min_size=1), st.lists(st.integers(1, 5), min_size=1), st.integers(-3, 20))
def test_it_makes_no_difference_in_which_portions_records_are_read(
    every: Records, times_ms: list[int], portions: list[int], delay_ms: int
) -> None:
    """Where both have read as much, one record at a time or in portions, both have counted the same."""
    times_ms = sorted(times_ms)
    generation = Generation(every, delay_ms)
    single = [PartitionTime()]
    for number, time_ms in enumerate(times_ms, 1):
        single.append(poll(single[-1], Observation(number, number, 1, time_ms), generation, 0))
    # In portions the first event time is that of the first portion's latest record, so periods begin with one record here.
    time, at = single[1], 1
    for size in portions:
        portion = times_ms[at : at + size]
        if portion:
            at += len(portion)
            time = poll(time, Observation(at, at, len(portion), portion[-1]), generation, 0)
        assert time.progress == single[at].progress
        assert latest(time.watermark, single[at].watermark) == time.watermark, "portions never hold time back"


@given(st.lists(st.integers(0, 100)), st.integers(1, 5), st.integers(0, 20))
def test_every_n_records(times_ms: list[int], n: int, delay_ms: int) -> None:
    time = PartitionTime()
    for number, time_ms in enumerate(times_ms, 1):
        time = poll(time, Observation(number, number, 1, time_ms), Generation(Records(n), delay_ms), 0)
        whole = number // n * n
        assert time.watermark == (At(max(times_ms[:whole]) - delay_ms) if whole else NOT_YET)


@given(st.lists(st.integers(0, 100)))
def test_time_that_is_moved_without_a_record_never_goes_back(times_ms: list[int]) -> None:
    state = start(P0)
    for number, time_ms in enumerate(times_ms):
        state = advance_to(state, At(time_ms))
        assert state.watermark == At(max(times_ms[: number + 1]))


def test_a_position_that_others_have_moved_is_activity_of_unknown_time() -> None:
    recorded = PartitionTime(50, At(50), next_offset=100, idle_since_ms=0, seen_ms=0)
    taken = poll(recorded, Observation(500, 500), Generation(), now_ms=1_000)
    assert taken.idle_since_ms == 1_000
    assert (taken.event_time_ms, taken.watermark) == (50, At(50)), "too low is safe: time only waits longer"


def test_a_maximum_that_is_reported_late_counts_all_the_same() -> None:
    early = poll(PartitionTime(), Observation(10, 10, 0, None), Generation(), now_ms=0)
    late = poll(early, Observation(10, 10, 10, 50), Generation(), now_ms=1)
    assert late.event_time_ms == 50
    assert poll(late, Observation(11, 11, 1, 20), Generation(), now_ms=2).watermark == At(50)


def test_a_longer_delay_after_a_restart_takes_nothing_back() -> None:
    time = poll(PartitionTime(), Observation(1, 1, 1, 50), Generation(), now_ms=0)
    time = poll(time, Observation(2, 2, 1, 55), Generation(delay_ms=20), now_ms=1)
    assert time.watermark == At(50)
    assert poll(time, Observation(3, 3, 1, 75), Generation(delay_ms=20), now_ms=2).watermark == At(55)


def test_polls_are_the_only_steps() -> None:
    """The strategy itself: positions add up, and ends are ahead of them."""
    assert list(polls([(5, {})])) == [Poll(5, {})]
