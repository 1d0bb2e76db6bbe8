"""The contract of :class:`streamgroups.ports.Ledger`, for every implementation.

A test module subclasses it and provides a fixture ``outside``: the fake in unit tests, real databases in component
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, FencedMember, LedgerConflict
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.membership import Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.compare_and_swap import CommitGroups
from streamgroups.ledgers.fences import epoch_partition, fence_partitions, stored_resets
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Ledger
from streamgroups.query.ledger_positions import LedgerPositions

GROUP, P0, P1 = "billing", TopicPartition("flights", 0), TopicPartition("flights", 1)


class Outside(Protocol):
    """A sink: its ledger, which is that of :data:`GROUP`, and its output as a reader sees it."""

    @property
    def ledger(self) -> Ledger[str]: ...
    @property
    def visible(self) -> list[str]: ...


class _Opened:
    """The part of a sink that a source uses (:class:`streamgroups.ledgers.staging.StagingSink`)."""

    def __init__(self, ledger: Ledger[Any]) -> None:
        self._ledger = ledger

    @contextmanager
    def open(self, group_id: str) -> Iterator[Ledger[Any]]:
        assert group_id == GROUP
        yield self._ledger


def positions_of(ledger: Ledger[Any]) -> LedgerPositions:
    return LedgerPositions(_Opened(ledger), GROUP, OnRestart.GROUP)  # type: ignore[arg-type]


def is_no_owner(_: Collection[TopicPartition]) -> bool:
    return False


class LedgerContract:
    """The contract of :class:`streamgroups.ports.Ledger`."""

    def test_a_new_ledger_is_empty(self, outside: Outside) -> None:
        assert outside.ledger.positions([P0, P1]) == {}
        assert outside.visible == []

    def test_output_and_positions_appear_together_and_not_before(self, outside: Outside) -> None:
        with outside.ledger.transaction() as transaction:
            assert transaction.positions([P0]) == {}
            transaction.write("one")
            transaction.advance({P0: 10})
            transaction.write("two")
            transaction.advance({P1: 3})
            assert (outside.visible, outside.ledger.positions([P0, P1])) == ([], {})
        assert (outside.visible, outside.ledger.positions([P0, P1])) == (["one", "two"], {P0: 10, P1: 3})

    def test_S11_a_position_is_of_a_topic(self, outside: Outside) -> None:
        first, second = TopicIdentity("cluster-1", "topic-1"), TopicIdentity("cluster-1", "topic-2")

        def stored() -> dict[TopicPartition, TopicIdentity]:
            with outside.ledger.transaction() as transaction:
                transaction.positions([P0, P1])
                return transaction.identities([P0, P1])

        assert stored() == {}
        for identity, other in ((first, second), (second, first)):
            with outside.ledger.transaction() as transaction:
                transaction.positions([P0])
                transaction.advance({P0: 10, P1: 3}, {P0: identity})
            found = stored()
            assert found.keys() == {P0}, "of P1 nothing is known"
            assert (found[P0].differs_from(identity), found[P0].differs_from(other)) == (False, True)
        with outside.ledger.transaction() as transaction:
            transaction.positions([P0])
            transaction.advance({P0: 7})
        assert stored() == {}, "a position without ids"

    def test_F1_a_lower_ownership_epoch_changes_nothing(self, outside: Outside) -> None:
        """Also if the position is again the one that the frozen owner has read, and as little does a greater one."""
        positions, reads = positions_of(outside.ledger), {GROUP: [OffsetRange(P0, 10, 20)]}

        def stored() -> tuple[dict[TopicPartition, int], list[str]]:
            return outside.ledger.positions([P0, P1, *fence_partitions([P0, P1])]), outside.visible

        frozen = positions.take_over({P0: Owned(10, epoch=7), P1: Owned(3, epoch=7)}, is_no_owner)
        now = positions.take_over({P0: Owned(10, epoch=8)}, is_no_owner)
        assert isinstance(commit_batch(outside.ledger, reads, "once", epochs={GROUP: {P0: 8}}), CommitGroups)
        reset = AppliedReset(1, "5f2c")
        assert positions.move({P0: replace(now[P0], next_offset=10, reset=reset)}) == {P0}
        before = stored()
        for epoch in (7, 9, 0):
            assert positions.move({P0: replace(frozen[P0], next_offset=5, epoch=epoch)}) == frozenset()
            with pytest.raises(FencedBatch, match=f"ownership epoch of the ledger: 8; of the batch: {epoch}"):
                commit_batch(outside.ledger, reads, "twice", epochs={GROUP: {P0: epoch}})
        with pytest.raises(FencedMember, match="flights-0"):
            positions.take_over(frozen, is_no_owner)
        assert stored() == before
        assert before[1] == ["once"]
        assert stored_resets([P0], before[0]) == {P0: reset}
        assert {tp: before[0][epoch_partition(tp)] for tp in (P0, P1)} == {P0: 8, P1: 7}
        assert isinstance(commit_batch(outside.ledger, reads, "again", epochs={GROUP: {P0: 8}}), CommitGroups)
        # The partition of the frozen process that no other member has taken over moves.
        assert positions.move({P1: replace(frozen[P1], next_offset=5)}) == {P1}
        assert (outside.visible, outside.ledger.positions([P0, P1])) == (["once", "again"], {P0: 20, P1: 5})

    def test_F1_an_owner_without_a_greater_epoch_continues_those_of_the_ledger(self, outside: Outside) -> None:
        positions = positions_of(outside.ledger)
        positions.take_over({P0: Owned(10, epoch=7)}, is_no_owner)
        for epoch, accepted in ((7, 8), (1, 9), (0, 10)):
            taken = positions.take_over({P0: Owned(10, epoch=epoch)}, lambda _: True)
            assert (taken[P0].epoch, outside.ledger.positions([epoch_partition(P0)])) == (
                accepted,
                {epoch_partition(P0): accepted},
            )

    def test_a_block_that_raises_leaves_nothing(self, outside: Outside) -> None:
        def break_off(raised: Callable[[], Exception]) -> None:
            with outside.ledger.transaction() as transaction:
                transaction.write("never")
                transaction.advance({P0: 10})
                raise raised()

        with pytest.raises(RuntimeError, match="broken off"):
            break_off(lambda: RuntimeError("broken off"))
        assert (outside.visible, outside.ledger.positions([P0])) == ([], {})

    def test_positions_may_be_set_back(self, outside: Outside) -> None:
        for position in (10, 4):
            with outside.ledger.transaction() as transaction:
                transaction.advance({P0: position})
        assert outside.ledger.positions([P0, P1]) == {P0: 4}

    def test_positions_of_several_groups_change_together(self, outside: Outside) -> None:
        with outside.ledger.transaction() as transaction:
            fares, flights = transaction.of("fares"), transaction.of("flights")
            assert (fares.positions([P0]), flights.positions([P0])) == ({}, {})
            transaction.write("joined")
            fares.advance({P0: 3})
            flights.advance({P0: 20})
        assert outside.visible == ["joined"]
        with outside.ledger.transaction() as transaction:
            found = {group: transaction.of(group).positions([P0, P1]) for group in ("fares", "flights")}
        assert found == {"fares": {P0: 3}, "flights": {P0: 20}}
        assert outside.ledger.positions([P0]) == {}, "the group of the ledger itself has nothing"

    def test_a_block_of_several_groups_that_raises_leaves_nothing(self, outside: Outside) -> None:
        def break_off() -> None:
            with outside.ledger.transaction() as transaction:
                for group in ("fares", "flights"):
                    transaction.of(group).advance({P0: 7})
                transaction.write("never")
                raise RuntimeError("broken off")

        with pytest.raises(RuntimeError, match="broken off"):
            break_off()
        with outside.ledger.transaction() as transaction:
            assert [transaction.of(group).positions([P0]) for group in ("fares", "flights")] == [{}, {}]
        assert outside.visible == []

    def test_a_request_that_conflicts_with_a_change_is_rejected(self, outside: Outside) -> None:
        """With optimistic transactions. With row locks the second transaction waits, and never gets to this point."""

        def slow() -> None:
            with outside.ledger.transaction() as first:
                first.positions([P0])
                with outside.ledger.transaction() as second:
                    second.advance({P0: 5})
                first.write("late")
                first.advance({P0: 10})

        with pytest.raises(LedgerConflict, match="flights-0"):
            slow()
        assert (outside.visible, outside.ledger.positions([P0])) == ([], {P0: 5})
