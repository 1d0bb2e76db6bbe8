"""X4, S5, S6: a query whose sink keeps a ledger reads at the position of the ledger, and changes it when its group is reset."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart import OnRestart, resume_finished, resume_unfinished
from streamgroups.errors import FencedBatch, FencedMember, LedgerConflict, PositionsDiffer
from streamgroups.fakes import FakeLedger, Moment
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.membership import NewPosition, Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.fences import fence_partitions, stored_resets
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.ledger_positions import LedgerPositions

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))


class Sink:
    """The ledger of a sink, for the source."""

    def __init__(self, **positions: int) -> None:
        self.ledger: FakeLedger[object] = FakeLedger("board")
        self.groups: list[str] = []
        with self.ledger.transaction() as transaction:
            transaction.advance({TopicPartition("flights", int(p[1:])): n for p, n in positions.items()})

    @contextmanager
    def open(self, group_id: str) -> Iterator[FakeLedger[object]]:
        self.groups.append(group_id)
        yield self.ledger

    @property
    def fences(self) -> dict[TopicPartition, int]:
        return self.ledger.positions(fence_partitions([P0, P1, P2]))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self.ledger.positions([P0, P1, P2])


def other(_: Collection[TopicPartition]) -> bool:
    return False


def ledger_of(sink: Sink, policy: OnRestart = OnRestart.GROUP) -> LedgerPositions:
    return LedgerPositions(sink, "board", policy)  # type: ignore[arg-type]


def test_the_ledger_is_ahead_of_the_group() -> None:
    sink = Sink(p0=20)
    owned = ledger_of(sink).take_over({P0: Owned(10, epoch=7), P1: Owned(5, Origin.STARTING, epoch=7)}, other)
    # Partitions of the ledger are written; it is opened for the others.
    assert owned == {P0: Owned(20, Origin.WRITTEN, epoch=7), P1: Owned(5, Origin.STARTING, epoch=7)}
    assert (sink.positions, sink.groups) == ({P0: 20, P1: 5}, ["board"])


def test_nothing_came_in() -> None:
    sink = Sink()
    assert ledger_of(sink).take_over({}, other) == {}
    assert sink.groups == []


def test_a_tool_has_reset_the_group() -> None:
    sink, reset = Sink(p0=20), AppliedReset(4, "5f2c")
    set_by_a_tool = Owned(3, Origin.FOREIGN, epoch=7, reset=reset)
    assert ledger_of(sink).take_over({P0: set_by_a_tool}, other) == {P0: set_by_a_tool}
    assert sink.positions == {P0: 3}
    # The ledger contains the reset. The next owner continues after the output that is written since.
    commit_batch(sink.ledger, {"board": [OffsetRange(P0, 3, 9)]}, "rows", epochs={"board": {P0: 7}})
    again = ledger_of(sink).take_over({P0: replace(set_by_a_tool, epoch=8)}, other)
    assert again == {P0: Owned(9, Origin.WRITTEN, epoch=8, reset=reset)}
    sink = Sink(p0=20)
    assert ledger_of(sink, OnRestart.CHECKPOINT).take_over({P0: set_by_a_tool}, other) == {
        P0: Owned(20, Origin.WRITTEN, epoch=7, reset=reset)
    }
    sink = Sink(p0=20)
    with pytest.raises(PositionsDiffer, match="ledger 20, group 3"):
        ledger_of(sink, OnRestart.FAIL).take_over({P0: set_by_a_tool}, other)
    assert (sink.positions, sink.fences) == ({P0: 20}, {})


@pytest.mark.parametrize("policy", OnRestart)
def test_C3_a_restored_savepoint_is_known_until_a_batch_has_read_from_it(policy: OnRestart) -> None:
    """A checkpoint can reject the first start, and then also rejects the second one."""
    sink, reset = Sink(p0=20), AppliedReset(4, "5f2c")
    group = Owned(3, Origin.FOREIGN, epoch=7, reset=reset, is_restored=True)
    assert ledger_of(sink, policy).take_over({P0: group}, other) == {P0: group}
    second = ledger_of(sink, policy).take_over({P0: replace(group, epoch=8)}, other)
    assert second == {P0: replace(group, origin=Origin.WRITTEN, epoch=8)}
    commit_batch(sink.ledger, {"board": [OffsetRange(P0, 3, 9)]}, "rows", epochs={"board": {P0: 8}})
    third = ledger_of(sink, policy).take_over({P0: replace(group, epoch=9)}, other)
    assert third == {P0: Owned(9, Origin.WRITTEN, epoch=9, reset=reset)}


def test_F2_a_reset_by_a_client_without_marks_follows_the_last_one_of_the_ledger() -> None:
    sink = Sink(p0=20)
    assert ledger_of(sink).next_reset([P0, P1], "a") == {P0: AppliedReset(1, "a"), P1: AppliedReset(1, "a")}
    ledger_of(sink).take_over({P0: Owned(3, Origin.FOREIGN, epoch=7, reset=AppliedReset(4, "5f2c"))}, other)
    assert ledger_of(sink).next_reset([P0, P1], "b") == {P0: AppliedReset(5, "b"), P1: AppliedReset(1, "b")}


def test_S6_the_ledger_moves_with_the_group() -> None:
    sink, reset = Sink(p0=20, p1=7), AppliedReset(1, "a")
    positions = ledger_of(sink)
    owned = positions.take_over({tp: Owned(7, epoch=7) for tp in (P0, P1)}, other)
    assert positions.move({P0: NewPosition(3, 7, reset=reset).after(owned[P0])}) == {P0}
    assert sink.positions == {P0: 3, P1: 7}
    assert stored_resets([P0, P1], sink.fences) == {P0: reset, P1: NO_RESET}


def test_F1_a_move_or_a_batch_of_another_owner_changes_nothing() -> None:
    """Also if the position is again the one that it has read."""
    sink = Sink()
    positions = ledger_of(sink)
    frozen = positions.take_over({P0: Owned(10, epoch=7), P1: Owned(10, epoch=7)}, other)
    positions.take_over({P0: Owned(10, epoch=8)}, other)
    before = sink.positions | sink.fences
    assert positions.move({P0: replace(frozen[P0], next_offset=3)}) == frozenset()
    batch = {"board": [OffsetRange(P0, 10, 20), OffsetRange(P1, 10, 20)]}
    with pytest.raises(
        FencedBatch, match=r"flights-0.* was taken over by another owner \(ownership epoch of the ledger: 8"
    ):
        commit_batch(sink.ledger, batch, "rows", epochs={"board": {P0: 7, P1: 7}})
    with pytest.raises(FencedMember, match="flights-0"):
        positions.take_over(frozen, other)
    assert (sink.positions | sink.fences, sink.ledger.written) == (before, [])
    # The partition of the frozen process that no other member has taken over moves.
    assert positions.move({tp: replace(it, next_offset=3) for tp, it in frozen.items()}) == {P1}
    assert sink.positions == {P0: 10, P1: 3}


def test_a_move_is_repeated_after_a_conflict() -> None:
    sink, conflicts = Sink(p0=20), iter([True, False])
    positions = ledger_of(sink)
    owned = positions.take_over({P0: Owned(20, epoch=7)}, other)

    def conflict(moment: Moment) -> None:
        if moment is Moment.COMMITTING and next(conflicts):
            raise LedgerConflict("Another transaction was faster.", remedy="Try again.")

    sink.ledger.at = conflict
    assert positions.move({P0: replace(owned[P0], next_offset=3)}) == {P0}
    assert sink.positions == {P0: 3}


FIRST, SECOND = TopicIdentity("cluster", "topic-1"), TopicIdentity("cluster", "topic-2")


def test_S11_a_position_of_the_ledger_comes_with_its_topic() -> None:
    sink = Sink()
    with sink.ledger.transaction() as transaction:
        transaction.advance({P0: 20}, {P0: FIRST})
    owned = ledger_of(sink).take_over(
        {P0: Owned(0, Origin.EARLIEST, epoch=7), P1: Owned(5, Origin.COMMITTED, SECOND, epoch=7)}, other
    )
    assert owned == {P0: Owned(20, Origin.WRITTEN, FIRST, epoch=7), P1: Owned(5, Origin.COMMITTED, SECOND, epoch=7)}
    assert sink.ledger.identities_of("board", [P0, P1]) == {P0: FIRST, P1: SECOND}


def test_S11_a_moved_position_is_of_the_topic_that_it_was_moved_in() -> None:
    sink = Sink(p0=20)
    ledger_of(sink).move({P0: Owned(3, identity=SECOND)})
    assert sink.ledger.identities_of("board", [P0]) == {P0: SECOND}


def test_S11_a_batch_of_another_topic_is_fenced_whatever_the_numbers() -> None:
    sink, batch = Sink(), {"board": [OffsetRange(P0, 10, 20)]}
    for position in (10, 20):
        with sink.ledger.transaction() as transaction:
            transaction.advance({P0: position}, {P0: SECOND})
        with pytest.raises(
            FencedBatch, match=r"to another topic or cluster \(ledger: topic id topic-2, .*; batch: topic id topic-1"
        ):
            commit_batch(sink.ledger, batch, "rows", identities={"board": {P0: FIRST}})
    assert sink.ledger.written == []
    with sink.ledger.transaction() as transaction:
        transaction.advance({P0: 10})
    commit_batch(sink.ledger, batch, "rows", identities={"board": {P0: FIRST}})
    assert sink.ledger.identities_of("board", [P0]) == {P0: FIRST}, "the ids come with the first batch"


@pytest.mark.parametrize("first_offset", [45, 20])
def test_X2_S5_the_remedy_for_a_restored_backup_works_with_the_checkpoint(first_offset: int) -> None:
    """A backup has the ledger at 20. Since then the group was reset, and the last batch of the checkpoint was written to 50."""
    sink, reset = Sink(p0=20), AppliedReset(1, "a")
    last = BatchOffset(3, (OffsetRange(P0, first_offset, 50),), resets={P0: reset})
    before = sink.ledger.positions([P0, *fence_partitions([P0])])
    for policy in (OnRestart.GROUP, OnRestart.CHECKPOINT, OnRestart.FAIL, OnRestart.GROUP):
        with pytest.raises(PositionsDiffer, match="lacks an offset reset"):
            ledger_of(sink, policy).take_over({P0: Owned(50, epoch=7, reset=reset)}, other)
        assert sink.ledger.positions([P0, *fence_partitions([P0])]) == before
    by_tool = {P0: Owned(20, Origin.FOREIGN, epoch=7, reset=AppliedReset(2, "b"))}
    owned = ledger_of(sink).take_over(by_tool, other)
    assert resume_finished(last, owned, OnRestart.GROUP).next_offsets == {P0: 20}
    resumed = resume_unfinished(last, owned, OnRestart.GROUP)
    assert resumed.next_offsets == {P0: 20}
    assert resumed.replay == ((OffsetRange(P0, 20, 50),) if first_offset == 20 else ())
