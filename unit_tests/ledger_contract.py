"""The contract of :class:`streamgroups.ports.Ledger`, for every implementation.

A test module subclasses it and provides a fixture ``outside``: the fake in unit tests, real databases in component
tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from streamgroups.errors import LedgerConflict
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Ledger

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Outside(Protocol):
    """A sink: its ledger, and its output as a reader sees it."""

    @property
    def ledger(self) -> Ledger[str]: ...
    @property
    def visible(self) -> list[str]: ...


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
