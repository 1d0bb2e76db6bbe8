"""S10, X2-X4: a ledger stores the state of each position, and detects the replay of a batch without records."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, StateMissing
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import UNKNOWN
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.compare_and_swap import AlreadyDone, CommitGroups, Fenced, RangeStatus, judge
from streamgroups.ledgers.ledger_states import StateChange, changes, fingerprints, state_partition
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import UNNAMED, Fingerprinted, Named, New, StateOrigin, fingerprint
from streamgroups.state.state_lookup import Empty, OnMissingState, Position, choose

P0 = TopicPartition("flights", 0)
DATA, EMPTY = OffsetRange(P0, 10, 20), OffsetRange(P0, 10, 10)


def state(attempt: int, next_offset: int = 10) -> Named:
    return Named(StateFileName(1732334879123, "1f3a9c2b7d10", 7, attempt), next_offset)


BEFORE, AFTER, OTHER = (fingerprint(state(attempt)) for attempt in (1, 2, 3))


@pytest.mark.parametrize(
    ("read", "position", "stored", "status"),
    [
        (DATA, 10, BEFORE, RangeStatus.NEXT),
        (DATA, 20, AFTER, RangeStatus.DONE),
        (DATA, 10, AFTER, RangeStatus.ANOTHER_STATE),
        (DATA, 20, OTHER, RangeStatus.ANOTHER_STATE),
        (DATA, 15, BEFORE, RangeStatus.OVERLAPS),
        (DATA, 25, AFTER, RangeStatus.PASSED),
        (EMPTY, 10, BEFORE, RangeStatus.NEXT),
        (EMPTY, 10, AFTER, RangeStatus.DONE),
        (EMPTY, 10, OTHER, RangeStatus.ANOTHER_STATE),
        (EMPTY, 15, AFTER, RangeStatus.PASSED),
        (EMPTY, 5, BEFORE, RangeStatus.LEAVES_A_GAP),
    ],
)
def test_S10_position_and_state_decide_together(
    read: OffsetRange, position: int, stored: int, status: RangeStatus
) -> None:
    positions = {P0: position, state_partition(P0): stored}
    verdict = judge([read], positions, states={P0: StateChange(BEFORE, AFTER)})
    if status is RangeStatus.NEXT:
        assert verdict.next_offsets == {P0: read.end_offset, state_partition(P0): AFTER}  # type: ignore[union-attr]
    elif status is RangeStatus.DONE:
        assert verdict == AlreadyDone()
    else:
        assert isinstance(verdict, Fenced)
        assert [it.status for it in verdict.compared] == [status]


def test_S10_a_batch_of_a_user_that_is_not_read_yet_is_judged_by_the_state_before_it() -> None:
    not_read = {P0: StateChange(BEFORE)}
    assert judge([DATA], {P0: 20, state_partition(P0): OTHER}, states=not_read) == AlreadyDone()
    assert isinstance(judge([EMPTY], {P0: 10, state_partition(P0): AFTER}, states=not_read), Fenced)


def owner(_: Collection[TopicPartition]) -> bool:
    return True


def opened(origin: StateOrigin) -> FakeLedger[str]:
    ledger = FakeLedger[str]("billing")
    owned = {P0: Owned(10, Origin.STARTING, state=origin)}
    take_over_partitions(ledger, owned, OnRestart.GROUP, group_id="billing", is_owner=owner, has_states=True)
    return ledger


def test_S10_a_batch_without_records_is_written_once() -> None:
    ledger = opened(state(1))
    states = {"billing": changes({P0: state(1)}, {P0: state(2)})}
    for verdict in (CommitGroups, AlreadyDone):
        assert isinstance(commit_batch(ledger, {"billing": [EMPTY]}, "a window", states=states), verdict)
    zombie = {"billing": changes({P0: state(1)}, {P0: state(3)})}
    with pytest.raises(FencedBatch, match="continues from another state than that of the ledger"):
        commit_batch(ledger, {"billing": [EMPTY]}, "the same window", states=zombie)
    assert ledger.written == ["a window"]


@pytest.mark.parametrize(
    ("named", "found"),
    [(state(2), state(2)), (state(1), Fingerprinted(AFTER)), (UNNAMED, Fingerprinted(AFTER))],
    ids=["the commit followed", "the commit is missing", "a tool"],
)
def test_S10_after_a_kill_the_state_of_the_ledger_counts(named: StateOrigin, found: StateOrigin) -> None:
    ledger = opened(state(1))
    commit_batch(ledger, {"billing": [EMPTY]}, None, states={"billing": changes({P0: state(1)}, {P0: state(2)})})
    owned = {P0: Owned(10, state=named)}
    decided = take_over_partitions(ledger, owned, OnRestart.GROUP, group_id="billing", is_owner=owner, has_states=True)
    assert decided.states == {P0: found}


def test_S10_a_reset_by_a_tool_forgets_the_state_of_the_ledger() -> None:
    ledger = opened(state(1))
    owned = {P0: Owned(4, Origin.FOREIGN)}
    decided = take_over_partitions(ledger, owned, OnRestart.GROUP, group_id="billing", is_owner=owner, has_states=True)
    assert (decided.states, ledger.positions([P0, state_partition(P0)])) == ({}, {P0: 4, state_partition(P0): 0})


def test_a_ledger_of_a_query_without_states_contains_positions_only() -> None:
    ledger = FakeLedger[str]("billing")
    take_over_partitions(ledger, {P0: Owned(10)}, OnRestart.GROUP, group_id="billing", is_owner=owner)
    commit_batch(ledger, {"billing": [DATA]}, "ten flights")
    assert ledger.positions([P0, state_partition(P0)]) == {P0: 20}


def manifests(*attempts: int) -> list[Manifest]:
    stored = PartitionState(OffsetRange(P0, 5, 10), 5, UNKNOWN)
    return [Manifest(state(attempt).file, "billing", "windows", "form", (stored,)) for attempt in attempts]


def test_S10_the_state_of_a_ledger_is_found_by_its_fingerprint() -> None:
    position = Position(P0, 10, Fingerprinted(AFTER))
    chosen = choose(position, manifests(3, 2, 1), OnMissingState.FAIL)
    assert chosen.origin == state(2)  # type: ignore[union-attr]
    with pytest.raises(StateMissing, match="which the ledger of the sink identifies, does not exist"):
        choose(position, manifests(3, 1), OnMissingState.FAIL)
    assert choose(position, manifests(3, 1), OnMissingState.EMPTY) == Empty(10)


@pytest.mark.parametrize("origin", [New(), UNNAMED])
def test_an_origin_without_a_name_has_the_fingerprint_zero(origin: StateOrigin) -> None:
    found: Mapping[TopicPartition, int] = fingerprints({P0: origin})
    assert found == {state_partition(P0): 0}
