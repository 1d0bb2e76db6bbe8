"""X4, S5, S6: a query whose sink keeps a ledger reads at the position of the ledger, and changes it when its group is reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, PositionsDiffer
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.commit import commit_batch
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
    def positions(self) -> dict[TopicPartition, int]:
        return self.ledger.positions([P0, P1, P2])


def ledger_of(sink: Sink, policy: OnRestart = OnRestart.GROUP) -> LedgerPositions:
    return LedgerPositions(sink, "board", policy)  # type: ignore[arg-type]


def test_the_ledger_is_ahead_of_the_group() -> None:
    sink = Sink(p0=20)
    owned = ledger_of(sink).take_over({P0: Owned(10), P1: Owned(5, Origin.STARTING)})
    # Partitions of the ledger are written; it is opened for the others.
    assert owned == {P0: Owned(20, Origin.WRITTEN), P1: Owned(5, Origin.STARTING)}
    assert (sink.positions, sink.groups) == ({P0: 20, P1: 5}, ["board"])


def test_nothing_came_in() -> None:
    sink = Sink()
    assert ledger_of(sink).take_over({}) == {}
    assert sink.groups == []


def test_a_tool_has_reset_the_group() -> None:
    sink = Sink(p0=20)
    assert ledger_of(sink).take_over({P0: Owned(3, Origin.FOREIGN)}) == {P0: Owned(3, Origin.FOREIGN)}
    assert sink.positions == {P0: 3}
    sink = Sink(p0=20)
    assert ledger_of(sink, OnRestart.CHECKPOINT).take_over({P0: Owned(3, Origin.FOREIGN)}) == {
        P0: Owned(20, Origin.WRITTEN)
    }
    with pytest.raises(PositionsDiffer, match="ledger 20, group 3"):
        ledger_of(sink, OnRestart.FAIL).take_over({P0: Owned(3, Origin.FOREIGN)})
    assert sink.positions == {P0: 20}


def test_S6_the_ledger_moves_with_the_group() -> None:
    sink = Sink(p0=20, p1=7)
    ledger_of(sink).move({P0: 3}, {}, {})
    assert sink.positions == {P0: 3, P1: 7}


FIRST, SECOND = TopicIdentity("cluster", "topic-1"), TopicIdentity("cluster", "topic-2")


def test_S11_a_position_of_the_ledger_comes_with_its_topic() -> None:
    sink = Sink()
    with sink.ledger.transaction() as transaction:
        transaction.advance({P0: 20}, {P0: FIRST})
    owned = ledger_of(sink).take_over({P0: Owned(0, Origin.OLDEST), P1: Owned(5, Origin.COMMITTED, SECOND)})
    assert owned == {P0: Owned(20, Origin.WRITTEN, FIRST), P1: Owned(5, Origin.COMMITTED, SECOND)}
    assert sink.ledger.identities_of("board", [P0, P1]) == {P0: FIRST, P1: SECOND}


def test_S11_a_moved_position_is_of_the_topic_that_it_was_moved_in() -> None:
    sink = Sink(p0=20)
    ledger_of(sink).move({P0: 3}, {P0: SECOND}, {})
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
