"""S5, X4: where partitions are read on when a sink keeps a ledger, row by row of the table in ``recovery``."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedMember, PositionsDiffer
from streamgroups.fakes import FakeLedger
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import ToolMark
from streamgroups.groups.membership import Origin, Owned
from streamgroups.ledgers.batch_commit import take_over_partitions
from streamgroups.ledgers.fences import epoch_partition, fence_partitions, fences, stored_resets
from streamgroups.ledgers.ledger_states import state_partition
from streamgroups.ledgers.recovery import LedgerDifference, TakeOver, take_over
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Earlier, Fingerprinted, Named, New, StateOrigin, fingerprint

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
CHECKPOINT, GROUP, FAIL = OnRestart.CHECKPOINT, OnRestart.GROUP, OnRestart.FAIL
FOREIGN, STARTING, EARLIEST, WRITTEN = Origin.FOREIGN, Origin.STARTING, Origin.EARLIEST, Origin.WRITTEN


@dataclass(frozen=True)
class Row:
    """A partition's ledger and group, and what follows: the position for each policy, and whether that is a difference."""

    ledger: int | None
    group: Owned
    checkpoint_wins: int
    group_wins: int
    differs: bool = False
    #: The last reset that the ledger contains.
    reset: AppliedReset = NO_RESET
    #: Whether the ledger lacks the reset of a member, which changes the ledger before it commits to the group.
    set_back: bool = False


R1, R2 = AppliedReset(1, "a"), AppliedReset(2, "b")
ROWS = {
    "new ledger, old group": Row(None, Owned(10), 10, 10),
    "new ledger, group set by a tool": Row(None, Owned(10, FOREIGN), 10, 10),
    "new ledger, new group": Row(None, Owned(7, STARTING), 7, 7),
    "new ledger, new partition": Row(None, Owned(0, EARLIEST), 0, 0),
    "they agree": Row(20, Owned(20), 20, 20),
    "a tool agrees": Row(20, Owned(20, FOREIGN), 20, 20),
    "the group's offsets expired": Row(20, Owned(0, EARLIEST), 20, 20),
    "the group was deleted": Row(20, Owned(500, STARTING), 20, 20),
    "the group's commit is missing": Row(20, Owned(10), 20, 20),
    "the ledger was set back": Row(20, Owned(35), 20, 20, differs=True),
    "a tool reset the group to the past": Row(20, Owned(5, FOREIGN), 20, 5, differs=True),
    "a tool reset the group to the future": Row(20, Owned(50, FOREIGN), 20, 50, differs=True),
    "a tool reset the group again": Row(20, Owned(5, FOREIGN, reset=R2), 20, 5, differs=True, reset=R1),
    "the reset of a tool, which the ledger contains": Row(20, Owned(5, FOREIGN, reset=R1), 20, 20, reset=R1),
    "the reset of a tool before the last one": Row(20, Owned(50, FOREIGN, reset=R1), 20, 20, reset=R2),
    "a backup from before a live reset to the past": Row(20, Owned(5, reset=R1), 20, 5, differs=True, set_back=True),
    "a backup from before a live reset": Row(20, Owned(50, WRITTEN, reset=R1), 20, 50, differs=True, set_back=True),
    "a backup from before a live reset, at the same offset": Row(20, Owned(20, reset=R1), 20, 20),
    "a backup from before the last live reset": Row(
        20, Owned(50, reset=R2), 20, 50, differs=True, reset=R1, set_back=True
    ),
    "the commit of a live reset to the past is missing": Row(20, Owned(35), 20, 20, reset=R1),
    "the commit of a live reset to the future is missing": Row(20, Owned(10), 20, 20, reset=R1),
    "the ledger was set back after a live reset": Row(20, Owned(35, reset=R1), 20, 20, differs=True, reset=R1),
    "the commit after a live reset is missing": Row(20, Owned(10, reset=R1), 20, 20, reset=R1),
    "two resets at once, and the ledger has one": Row(
        20, Owned(5, reset=AppliedReset(1, "b")), 20, 5, differs=True, reset=R1, set_back=True
    ),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("policy", OnRestart)
def test_row(name: str, policy: OnRestart) -> None:
    row = ROWS[name]
    ledger = {} if row.ledger is None else {P0: row.ledger, P2: 1_000}
    if row.set_back or (policy is FAIL and row.differs):
        with pytest.raises(PositionsDiffer, match=rf"flights-0: ledger 20, group {row.group.next_offset} \([+-]"):
            take_over({P0: row.group}, ledger, policy, resets={P0: row.reset}, group_id="g")
        return
    decided = take_over({P0: row.group}, ledger, policy, resets={P0: row.reset}, group_id="g")
    expected = row.group_wins if policy is GROUP else row.checkpoint_wins
    assert decided.next_offsets == {P0: expected}, "partitions of other members are left alone"
    assert decided.open_at == ({P0: expected} if row.ledger is None else {})
    assert decided.move == ({P0: (row.ledger, expected)} if row.ledger not in (None, expected) else {})
    silent = row.group.origin in (STARTING, EARLIEST)
    assert decided.follow == ({P0: expected} if silent or row.group.next_offset != expected else {})
    assert [d.topic_partition for d in decided.differences] == ([P0] if row.differs else [])
    # A reset that the policy declines is contained too: the next owner does not decide about it again.
    of_group = row.group.reset
    assert decided.resets == {P0: row.reset if row.reset.contains(of_group) else of_group}


@pytest.mark.parametrize("policy", OnRestart)
def test_X2_a_ledger_that_lacks_a_members_reset_names_the_positions_of_the_ledger(policy: OnRestart) -> None:
    """A backup has the ledger at 100. Since then the group was reset, and was read to 500."""
    owned = {P0: Owned(500, WRITTEN, reset=R1), P1: Owned(7)}
    with pytest.raises(PositionsDiffer) as rejected:
        take_over(owned, {P0: 100, P1: 7}, policy, group_id="board")
    assert rejected.value.what == (
        "The ledger of group 'board' lacks an offset reset that members of the group have applied, so it was set back, for example "
        "by a restored backup: flights-0: ledger 100, group 500 (+400)."
    )
    command = "streamgroups groups reset board --topic flights:0 --to-offset 100 --execute"
    assert command in rejected.value.remedy
    assert "onRestart=group" in rejected.value.remedy
    # Another position of the group works too.
    by_tool = {P0: Owned(90, FOREIGN, reset=R2), P1: Owned(7)}
    assert take_over(by_tool, {P0: 100, P1: 7}, GROUP, group_id="board").move == {P0: (100, 90)}


def test_F2_an_import_to_an_offset_below_the_ledger_is_followed() -> None:
    """At that offset, a member has been before: the number alone is that of a missing commit."""
    imported = Owned.committed(10, ToolMark(AppliedReset(1732334879123, "a")).encode())
    decided = take_over({P0: imported}, {P0: 20}, GROUP, group_id="g")
    assert (decided.next_offsets, decided.move) == ({P0: 10}, {P0: (20, 10)})
    again = take_over({P0: imported}, {P0: 15}, GROUP, resets=decided.resets, group_id="g")
    assert (again.next_offsets, again.differences) == ({P0: 15}, ())


@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize("offset", [5, 50])
def test_C3_a_restored_savepoint_moves_the_ledger_under_each_policy(policy: OnRestart, offset: int) -> None:
    ledger = with_state(20, named(20, attempt=1), NO_RESET)
    mark = ToolMark(R1, state=named(offset), is_restored=True)
    # The first start can fail, for example by its checkpoint. The second one decides the same.
    for differences in (1, 0):
        decided = restored(ledger, offset, mark, policy)
        assert (decided.next_offsets, decided.follow, decided.resets) == ({P0: offset}, {}, {P0: R1})
        assert len(decided.differences) == len(decided.move) == differences
        assert (ledger.positions([P0]), fingerprint_in(ledger)) == ({P0: offset}, fingerprint(named(offset)))
    # The query has written output, and is killed before the commit of the group.
    with ledger.transaction() as transaction:
        transaction.advance({P0: offset + 10})
    assert restored(ledger, offset, mark, policy).next_offsets == {P0: offset + 10}


def test_C3_a_restored_savepoint_does_not_hide_another_difference() -> None:
    owned = {P0: Owned(5, FOREIGN, reset=R1, is_restored=True), P1: Owned(7, FOREIGN, reset=R1)}
    with pytest.raises(PositionsDiffer) as rejected:
        take_over(owned, {P0: 20, P1: 20}, FAIL, group_id="g")
    assert rejected.value.what == "Ledger and group differ: flights-1: ledger 20, group 7 (-13)."


def test_every_difference_is_named_and_the_way_out() -> None:
    owned = {P0: Owned(5, FOREIGN), P1: Owned(9), P2: Owned(3)}
    with pytest.raises(PositionsDiffer) as rejected:
        take_over(owned, {P0: 20, P1: 7, P2: 3}, FAIL, group_id="g")
    assert rejected.value.what == (
        "Ledger and group differ: flights-0: ledger 20, group 5 (-15); flights-1: ledger 7, group 9 (+2)."
    )
    assert "onRestart=group" in rejected.value.remedy
    assert "onRestart=checkpoint" in rejected.value.remedy


_RESETS = st.builds(AppliedReset, st.integers(1, 3), st.sampled_from("ab")) | st.just(NO_RESET)
_OWNED = st.builds(Owned, st.integers(0, 9), st.sampled_from(Origin), epoch=st.integers(1, 9), reset=_RESETS)


def owner(_: Collection[TopicPartition]) -> bool:
    return True


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), _OWNED),
    st.dictionaries(
        st.sampled_from([P0, P1, P2]), st.builds(Owned, st.integers(0, 9), epoch=st.integers(0, 9), reset=_RESETS)
    ),
    st.sampled_from([CHECKPOINT, GROUP]),
)
def test_ledger_and_reader_are_at_the_same_position(
    owned: dict[TopicPartition, Owned], known: dict[TopicPartition, Owned], policy: OnRestart
) -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance({**{tp: it.next_offset for tp, it in known.items()}, **fences(known)})
    known_set_back = {
        tp
        for tp, it in owned.items()
        if tp in known
        and it.origin in (Origin.COMMITTED, WRITTEN)
        and it.next_offset != known[tp].next_offset
        and not known[tp].reset.contains(it.reset)
    }
    if known_set_back:
        before = dict(ledger.positions([*known, *fence_partitions(known)]))
        with pytest.raises(PositionsDiffer, match="lacks an offset reset"):
            take_over_partitions(ledger, owned, policy, group_id="g", is_owner=owner)
        assert ledger.positions([*known, *fence_partitions(known)]) == before
        return
    decided = take_over_partitions(ledger, owned, policy, group_id="g", is_owner=owner)
    assert ledger.positions(owned) == decided.next_offsets
    others = known.keys() - owned.keys()
    assert ledger.positions(others) == {tp: known[tp].next_offset for tp in others}
    fenced = ledger.positions(fence_partitions([P0, P1, P2]))
    # F1: from now on the ledger has the epoch of the new owner, which is greater than each earlier one.
    assert {tp: fenced.get(epoch_partition(tp)) for tp in owned} == decided.epochs
    assert all(decided.epochs[tp] > known[tp].epoch for tp in owned.keys() & known.keys())
    assert all(decided.epochs[tp] >= it.epoch for tp, it in owned.items())
    assert {tp: fenced.get(epoch_partition(tp)) for tp in others} == {tp: known[tp].epoch for tp in others}
    assert stored_resets(owned, fenced) == decided.resets
    assert stored_resets(others, fenced) == {tp: known[tp].reset for tp in others}
    # Once the group has followed, there is nothing more to do or to report.
    followed = {
        tp: Owned(decided.follow.get(tp, o.next_offset), epoch=10, reset=decided.resets[tp]) for tp, o in owned.items()
    }
    again = take_over_partitions(ledger, followed, FAIL, group_id="g", is_owner=owner)
    later = {tp: max(10, n + 1) for tp, n in decided.epochs.items()}
    assert again == TakeOver(decided.next_offsets, {}, {}, {}, (), resets=decided.resets, epochs=later)


def test_F1_a_former_owner_that_was_frozen_does_not_take_over() -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    described: list[list[TopicPartition]] = []

    def is_owner(partitions: Collection[TopicPartition]) -> bool:
        described.append([*partitions])
        return False

    frozen = {P0: Owned(5, FOREIGN, epoch=7), P1: Owned(5, epoch=7)}
    take_over_partitions(ledger, {P0: Owned(5, epoch=8)}, GROUP, group_id="billing", is_owner=is_owner)
    assert described == [], "a greater epoch needs no request to the broker"
    before = ledger.positions([P0, P1, *fence_partitions([P0, P1])])
    with pytest.raises(FencedMember, match="Group 'billing' has assigned flights-0 to another member"):
        take_over_partitions(ledger, frozen, GROUP, group_id="billing", is_owner=is_owner)
    assert described == [[P0]]
    assert ledger.positions([P0, P1, *fence_partitions([P0, P1])]) == before


def test_F1_generations_that_begin_again_continue_the_epochs_of_the_ledger() -> None:
    """The group was deleted, a static member has restarted, or a query has no group."""
    ledger: FakeLedger[str] = FakeLedger("billing")
    for epoch, stored in ((7, 7), (1, 8), (8, 9), (0, 10), (0, 11), (30, 30)):
        owned = {P0: Owned(5, epoch=epoch)}
        taken = take_over_partitions(ledger, owned, GROUP, group_id="billing", is_owner=owner)
        assert (taken.epochs, ledger.positions([epoch_partition(P0)])) == ({P0: stored}, {epoch_partition(P0): stored})


def test_the_side_that_wins_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance({P0: 20, P1: 20})
    with caplog.at_level(logging.WARNING):
        take_over_partitions(
            ledger, {P0: Owned(5, FOREIGN, epoch=1), P1: Owned(30, epoch=1)}, GROUP, group_id="billing", is_owner=owner
        )
    assert caplog.messages == [
        "Group 'billing' and its ledger differ; the positions of the group are used: flights-0: ledger 20, group 5 (-15)",
        "Group 'billing' and its ledger differ; the positions of the ledger are used: flights-1: ledger 20, group 30 (+10)",
    ]
    assert ledger.positions([P0, P1]) == {P0: 5, P1: 20}


def test_a_rejected_start_changes_nothing() -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance({P0: 20})
    with pytest.raises(PositionsDiffer):
        take_over_partitions(ledger, {P0: Owned(5, FOREIGN), P1: Owned(3)}, FAIL, group_id="g", is_owner=owner)
    assert ledger.positions([P0, P1, *fence_partitions([P0, P1])]) == {P0: 20}


def named(offset: int, attempt: int = 2) -> Named:
    return Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, attempt), offset)


#: ``restore --state-only`` of an offset that a member has committed.
STATE_ONLY = ToolMark(R2, state=named(10), kept_reset=R1)


def with_state(next_offset: int, state: StateOrigin, reset: AppliedReset = R1) -> FakeLedger[str]:
    ledger: FakeLedger[str] = FakeLedger("billing")
    owned = {P0: Owned(next_offset, epoch=1, state=state, reset=reset)}
    take_over_partitions(ledger, owned, GROUP, group_id="billing", is_owner=owner, has_states=True)
    return ledger


def restored(ledger: FakeLedger[str], next_offset: int, mark: ToolMark, policy: OnRestart) -> TakeOver:
    owned = {P0: Owned.committed(next_offset, mark.encode())}
    return take_over_partitions(ledger, owned, policy, group_id="billing", is_owner=owner, has_states=True)


def fingerprint_in(ledger: FakeLedger[str]) -> int:
    return ledger.positions([state_partition(P0)])[state_partition(P0)]


@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize("state", [named(20), Earlier(named(10).file, 10), New()])
@pytest.mark.parametrize("kept", [R1, None], ids=["state only", "in place"])
def test_C2_the_ledger_takes_the_restored_state_of_its_position(
    policy: OnRestart, state: StateOrigin, kept: AppliedReset | None
) -> None:
    ledger = with_state(20, named(20, attempt=1))
    mark = ToolMark(R2, state=state, kept_reset=kept)
    decided = restored(ledger, 20, mark, policy)
    assert (decided.states, decided.resets, decided.next_offsets) == ({P0: state}, {P0: R2}, {P0: 20})
    assert (decided.differences, decided.move, decided.follow) == ((), {}, {})
    assert fingerprint_in(ledger) == fingerprint(state)
    # The query is killed. The next owner finds the same, and later batches stay.
    again = restored(ledger, 20, mark, policy)
    assert again.states == ({} if state == New() else {P0: state})
    with ledger.transaction() as transaction:
        transaction.advance({P0: 30, state_partition(P0): fingerprint(named(30, attempt=3))})
    later = restored(ledger, 20, mark, policy)
    assert (later.next_offsets, later.states) == ({P0: 30}, {P0: Fingerprinted(fingerprint(named(30, attempt=3)))})


def test_S10_a_reset_to_the_position_of_the_ledger_names_no_state_and_keeps_it() -> None:
    ledger = with_state(20, named(20))
    decided = restored(ledger, 20, ToolMark(R2), GROUP)
    assert decided.states == {P0: Fingerprinted(fingerprint(named(20)))}


@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize("state", [named(10), Earlier(named(5).file, 5)])
def test_C2_X2_a_state_without_its_offset_does_not_move_the_ledger_back(
    policy: OnRestart, state: Named | Earlier
) -> None:
    """The ledger has the output up to 20, and the killed query has committed 10."""
    ledger = with_state(20, named(20, attempt=1))
    mark = ToolMark(R2, state=state, kept_reset=R1)
    expected = Earlier(state.file, state.next_offset)
    for _ in range(2):
        decided = restored(ledger, 10, mark, policy)
        assert (decided.next_offsets, decided.follow) == ({P0: 20}, {P0: 20})
        assert (decided.states, decided.move, decided.differences) == ({P0: expected}, {}, ())
        assert (ledger.positions([P0]), fingerprint_in(ledger)) == ({P0: 20}, fingerprint(state))


@pytest.mark.parametrize(("state", "position"), [(New(), 20), (named(10), 5)])
def test_C2_a_restored_state_that_does_not_fit_the_ledger_is_rejected(state: StateOrigin, position: int) -> None:
    ledger = with_state(position, named(position, attempt=1))
    before = ledger.positions([P0, state_partition(P0), *fence_partitions([P0])])
    with pytest.raises(PositionsDiffer, match=f"flights-0: ledger {position}, group 10") as rejected:
        restored(ledger, 10, ToolMark(R2, state=state, kept_reset=R1), GROUP)
    assert "--state-only" in rejected.value.remedy
    assert ledger.positions([P0, state_partition(P0), *fence_partitions([P0])]) == before
    without: FakeLedger[str] = FakeLedger("billing")
    owned = {P0: Owned.committed(10, ToolMark(R2, state=state, kept_reset=R1).encode())}
    with without.transaction() as transaction:
        transaction.advance({P0: position, **fences({P0: Owned(position, epoch=1, reset=R1)})})
    taken = take_over_partitions(without, owned, GROUP, group_id="billing", is_owner=owner)
    assert taken.next_offsets == {P0: position}, "a query without states needs none"


def test_F2_a_state_only_restore_keeps_an_earlier_reset_of_the_offset() -> None:
    """A tool has set the group to 10 before, and the ledger does not contain this reset yet."""
    ledger = with_state(20, named(20, attempt=1), NO_RESET)
    decided = restored(ledger, 10, STATE_ONLY, GROUP)
    assert (decided.move, decided.next_offsets, fingerprint_in(ledger)) == (
        {P0: (20, 10)},
        {P0: 10},
        fingerprint(named(10)),
    )


def test_a_ledger_that_was_set_back_differs_also_after_a_state_only_restore() -> None:
    ledger = with_state(5, named(5, attempt=1))
    with pytest.raises(PositionsDiffer, match="Ledger and group differ"):
        restored(ledger, 10, STATE_ONLY, FAIL)


def test_a_difference_prints_both_sides() -> None:
    assert str(LedgerDifference(P0, 20, 35)) == "flights-0: ledger 20, group 35 (+15)"
