"""S10: no file that a kept state needs is deleted, and all others are."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from streamgroups.identity import UNKNOWN
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.essentials import Essentials
from streamgroups.state.file_ages import FileAges, StoredFile, Survey
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_topics import PARTNER
from streamgroups.state.manifest import Manifest, PartitionState, Segment
from streamgroups.state.origins import UNNAMED, Named, New
from streamgroups.state.state_lookup import Empty, OnMissingState, Position, choose
from streamgroups.state.state_retention import Retention, deletable

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
HOUR_MS = 3_600_000
KEEP = Retention(keep_ms=HOUR_MS, young_ms=HOUR_MS // 6)
NOW_MS = 100 * HOUR_MS


def file(minutes_ago: int, attempt: int = 1) -> StateFileName:
    return StateFileName(NOW_MS - minutes_ago * 60_000, "1f3a9c2b7d10", 1, attempt)


def gone_of(files: list[Manifest], committed: list[Position], keep: Retention) -> frozenset[StateFileName]:
    ages_ms = {it.file: NOW_MS - it.file.planned_ms for it in files}
    essentials = Essentials()
    gone = deletable([essentials.of(it) for it in files], committed, keep, ages_ms)
    assert gone == deletable(files, committed, keep, ages_ms), "what a collector does not keep has no effect"
    return gone


def manifest(
    name: StateFileName,
    *,
    needs: tuple[StateFileName, ...] = (),
    tp: TopicPartition = P0,
    end: int = 1,
    after: StateFileName | None = None,
) -> Manifest:
    """A state of the first batch, or of one that has continued with a state."""
    parts = {"0": tuple(Segment(it, 0, 1, 9) for it in needs)} if needs else {}
    state = PartitionState(OffsetRange(tp, 0 if after is None else 1, end), 0, UNKNOWN, parts, after=after)
    return Manifest(name, "billing", "windows", "", (state,))


def batches(*made: tuple[int, int]) -> list[Manifest]:
    """The states of batches, oldest first. Each continues with the one before it.

    Args:
        made: the age of each state in minutes, and its offset.
    """
    names = [None, *(file(ago) for ago, _ in made)]
    return [manifest(file(ago), end=end, after=after) for (ago, end), after in zip(made, names, strict=False)]


def test_S10_states_within_the_retention_are_kept_and_the_latest_before_it() -> None:
    files = [manifest(file(ago)) for ago in (30, 59, 61, 62, 300)]
    assert gone_of(files, [], KEEP) == {file(62), file(300)}


def test_S10_each_partition_keeps_its_own_latest_state() -> None:
    files = [manifest(file(61)), manifest(file(300), tp=P1), manifest(file(400), tp=P1)]
    assert gone_of(files, [], KEEP) == {file(400)}


def named(name: StateFileName, tp: TopicPartition = P0) -> Position:
    return Position(tp, 1, Named(name, 1))


def test_S10_a_committed_state_is_kept_however_old() -> None:
    files = [manifest(file(61)), manifest(file(900))]
    assert gone_of(files, [named(file(900))], KEEP) == frozenset()


def test_S10_the_state_to_which_a_tool_has_reset_a_stopped_group_is_kept() -> None:
    files = batches((500, 10), (400, 20), (300, 30), (61, 40))
    assert gone_of(files, [Position(P0, 29, UNNAMED)], KEEP) == {file(300), file(500)}
    assert gone_of(files, [Position(P1, 29, UNNAMED), Position(P0, 29, New())], KEEP) == {
        file(300),
        file(400),
        file(500),
    }


def test_S10_W18_the_state_to_which_a_tool_has_reset_one_topic_of_a_join_is_kept() -> None:
    left, right = TopicPartition("orders", 0), TopicPartition("payments", 0)

    def joined(ago: int, ends: tuple[int, int]) -> Manifest:
        pairs = zip((left, right), (right, left), ends, strict=True)
        states = (
            PartitionState(OffsetRange(tp, 1, end), 0, UNKNOWN, values={PARTNER: partner.topic})
            for tp, partner, end in pairs
        )
        return Manifest(file(ago), "billing", "paid", "", tuple(states))

    files = [joined(61, (40, 40)), joined(300, (40, 30)), joined(400, (20, 20)), joined(500, (10, 10))]
    positions = [Position(left, 45, Named(file(61), 40)), Position(right, 35, UNNAMED)]
    assert gone_of(files, positions, KEEP) == {file(400), file(500)}
    positions = [Position(left, 30, UNNAMED), Position(right, 45, Named(file(61), 40))]
    assert gone_of(files, positions, KEEP) == {file(300), file(500)}, "not that of the right position alone"


def test_S10_a_file_with_a_segment_of_a_kept_state_is_kept() -> None:
    files = [manifest(file(30), needs=(file(500), file(30))), manifest(file(500)), manifest(file(61))]
    assert gone_of(files, [], KEEP) == frozenset()


def test_S10_a_young_file_is_kept_although_no_state_needs_it() -> None:
    retention = Retention(keep_ms=0, young_ms=10 * 60_000)
    files = [manifest(file(ago)) for ago in (5, 9, 11, 12)]
    assert gone_of(files, [named(file(12))], retention) == {file(11)}


MINUTES = st.integers(0, 200)


@given(
    st.dictionaries(
        MINUTES, st.tuples(st.sampled_from([P0, P1]), st.sets(MINUTES, max_size=3)), min_size=1, max_size=12
    ),
    st.data(),
)
def test_S10_what_a_kept_state_needs_is_never_deleted(
    made: dict[int, tuple[TopicPartition, set[int]]], data: st.DataObject
) -> None:
    files = [
        manifest(file(ago), needs=tuple(file(it) for it in sorted(needs)), tp=tp) for ago, (tp, needs) in made.items()
    ]
    committed_ago = data.draw(st.sampled_from(sorted(made)))
    committed = named(file(committed_ago), made[committed_ago][0])
    gone = gone_of(files, [committed], KEEP)
    needed = {committed_ago, *made[committed_ago][1]}
    for ago, (_, needs) in made.items():
        if ago <= 60:
            needed |= {ago, *needs}
    assert not gone & {file(ago) for ago in needed}
    # Each partition keeps a state from which a reset to the start of the retention begins, if it had one.
    for tp in (P0, P1):
        older = [ago for ago, (of, _) in made.items() if of == tp and ago > 60]
        assert not older or file(min(older)) not in gone


@given(st.dictionaries(MINUTES, st.integers(1, 20), min_size=1, max_size=12), st.integers(0, 25))
def test_S10_a_stopped_group_continues_with_the_same_state_after_a_collection(
    ends: dict[int, int], offset: int
) -> None:
    files = batches(*sorted(ends.items(), reverse=True))
    position = Position(P0, offset, UNNAMED)
    before = choose(position, files, OnMissingState.EMPTY)
    gone = gone_of(files, [position], Retention(keep_ms=0, young_ms=0))
    left = [it for it in files if it.file not in gone]
    assert choose(position, left, OnMissingState.FAIL) == before


def test_S10_a_stopped_group_keeps_the_latest_state_whose_rows_exist() -> None:
    """An idle partition keeps the file at offset 20, and the rows of its other state are deleted."""
    idle = PartitionState(OffsetRange(P1, 0, 5), 0, UNKNOWN)
    oldest, last = batches((500, 10), (61, 40))
    state = PartitionState(OffsetRange(P0, 10, 20), 0, UNKNOWN, {"0": (Segment(file(450), 0, 1, 9),)}, after=file(450))
    both = Manifest(file(400), "billing", "windows", "", (idle, state))
    positions = [Position(P0, 25, UNNAMED), Position(P1, 5, Named(both.file, 5))]
    assert gone_of([oldest, both, last], positions, KEEP) == frozenset()


def test_C3_the_state_before_a_restore_is_kept_while_a_state_of_the_retention_continues_with_it() -> None:
    """A wrong program has written the latest state before the retention."""
    files = [*batches((500, 10), (400, 20)), manifest(file(61), end=90, after=file(400))]
    files.append(manifest(file(30), end=30, after=file(400)))
    assert gone_of(files, [], KEEP) == {file(500)}


def test_S10_the_start_of_the_first_batch_is_kept_for_a_stopped_group_that_was_reset_into_it() -> None:
    files = [manifest(file(ago), end=end) for ago, end in ((61, 40), (500, 10))]
    later = PartitionState(OffsetRange(P0, 40, 50), 0, UNKNOWN)
    files.append(Manifest(file(30), "billing", "windows", "", (later,)))
    gone = gone_of(files, [Position(P0, 5, UNNAMED)], KEEP)
    assert gone == frozenset()
    assert choose(Position(P0, 5, UNNAMED), files, OnMissingState.FAIL) == Empty(0)
    assert gone_of(files, [Position(P0, 50, Named(file(30), 50))], KEEP) == {file(500)}


def test_S10_the_clock_of_the_owner_decides_no_deletion() -> None:
    """Alice has committed offset 100 an hour and a half ago. Bob, whose clock is two hours behind, writes the next state."""
    state = PartitionState(OffsetRange(P0, 100, 200), 0, UNKNOWN)
    committed, in_flight = (
        manifest(file(90), end=100),
        Manifest(file(120, attempt=2), "billing", "windows", "", (state,)),
    )
    position = Position(P0, 100, Named(committed.file, 100))
    ages_ms = {committed.file: 90 * 60_000, in_flight.file: 1_000}
    assert deletable([committed, in_flight], [position], Retention(HOUR_MS), ages_ms) == frozenset()
    # Later, the file of bob is the latest one before the retention, in spite of its name.
    older = {committed.file: 200 * 60_000, in_flight.file: 110 * 60_000}
    current = manifest(file(1), end=300)
    named_now = Position(P0, 300, Named(current.file, 300))
    files = [committed, in_flight, current]
    assert deletable(files, [named_now], Retention(HOUR_MS), older | {current.file: 0}) == {committed.file}


def test_a_file_without_an_age_is_kept() -> None:
    assert deletable([manifest(file(900)), manifest(file(300))], [], KEEP, {file(300): 0}) == frozenset()


_AGES_MS = st.none() | st.integers(-5, 500)


@given(st.lists(st.tuples(st.integers(0, 50), st.dictionaries(st.integers(0, 3), _AGES_MS)), min_size=1, max_size=8))
def test_S10_a_file_is_never_older_than_this_process_has_observed(
    listings: list[tuple[int, dict[int, int | None]]],
) -> None:
    """The clock of the storage can jump; the monotonic clock does not."""
    ages, now_ms = FileAges(), 0
    absent_ms: dict[int, int] = {}
    for passed_ms, listed in listings:
        now_ms += passed_ms
        stored = {file(it): StoredFile(1, age_ms) for it, age_ms in listed.items()}
        found = ages.observe(Survey(stored, {}), now_ms).files
        assert found.keys() == stored.keys()
        for it, age_ms in listed.items():
            assert found[file(it)] >= 0
            assert it not in absent_ms or found[file(it)] <= now_ms - absent_ms[it]
            assert age_ms is None or found[file(it)] <= max(age_ms, 0)
        absent_ms |= {it: now_ms for it in range(4) if it not in listed}
