"""X4, S5, S6: a query whose sink keeps a ledger reads where the ledger stands, and moves it when its group is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, PositionsDiffer, SinkUnreachable
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.commit import commit_batch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.ledger_member import LedgerMember, TakingOver

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))


class Sink:
    """What the source needs of a sink: its ledger."""

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


def take_over(sink: Sink, policy: OnRestart = OnRestart.GROUP) -> TakingOver:
    return TakingOver(sink, "board", policy)  # type: ignore[arg-type]


def test_the_ledger_is_ahead_of_the_group() -> None:
    sink = Sink(p0=20)
    owned = take_over(sink)({P0: Owned(10), P1: Owned(5, Origin.STARTING)})
    # What the ledger knows is written; what it does not know it is opened for.
    assert owned == {P0: Owned(20, Origin.WRITTEN), P1: Owned(5, Origin.STARTING)}
    assert (sink.positions, sink.groups) == ({P0: 20, P1: 5}, ["board"])


def test_nothing_came_in() -> None:
    sink = Sink()
    assert take_over(sink)({}) == {}
    assert sink.groups == []


def test_a_tool_has_moved_the_group() -> None:
    sink = Sink(p0=20)
    assert take_over(sink)({P0: Owned(3, Origin.FOREIGN)}) == {P0: Owned(3, Origin.FOREIGN)}
    assert sink.positions == {P0: 3}
    sink = Sink(p0=20)
    assert take_over(sink, OnRestart.CHECKPOINT)({P0: Owned(3, Origin.FOREIGN)}) == {P0: Owned(20, Origin.WRITTEN)}
    with pytest.raises(PositionsDiffer, match="ledger 20, group 3"):
        take_over(sink, OnRestart.FAIL)({P0: Owned(3, Origin.FOREIGN)})
    assert sink.positions == {P0: 20}


class Moved:
    """A member that remembers where it was moved to."""

    def __init__(self) -> None:
        self.to: dict[TopicPartition, int] = {}

    def move(self, next_offsets: dict[TopicPartition, int], *, note: str, identities: object) -> None:
        self.to |= next_offsets


def test_S6_ledger_and_group_move_together() -> None:
    sink, member = Sink(p0=20, p1=7), Moved()
    LedgerMember(member, sink, "board").move({P0: 3}, note="moved")  # type: ignore[arg-type]
    assert (sink.positions, member.to) == ({P0: 3, P1: 7}, {P0: 3})


def test_S6_if_the_ledger_cannot_be_moved_nothing_is() -> None:
    sink, member = Sink(p0=20), Moved()

    def away(_: object) -> None:
        raise SinkUnreachable("The database is away.")

    sink.ledger.at = away
    with pytest.raises(SinkUnreachable):
        LedgerMember(member, sink, "board").move({P0: 3}, note="moved")  # type: ignore[arg-type]
    assert (sink.positions, member.to) == ({P0: 20}, {})


FIRST, SECOND = TopicIdentity("cluster", "topic-1"), TopicIdentity("cluster", "topic-2")


def test_S11_a_position_of_the_ledger_comes_with_its_topic() -> None:
    sink = Sink()
    with sink.ledger.transaction() as transaction:
        transaction.advance({P0: 20}, {P0: FIRST})
    owned = take_over(sink)({P0: Owned(0, Origin.OLDEST), P1: Owned(5, Origin.COMMITTED, SECOND)})
    assert owned == {P0: Owned(20, Origin.WRITTEN, FIRST), P1: Owned(5, Origin.COMMITTED, SECOND)}
    assert sink.ledger.identities_of("board", [P0, P1]) == {P0: FIRST, P1: SECOND}


def test_S11_a_moved_position_is_of_the_topic_that_it_was_moved_in() -> None:
    sink, member = Sink(p0=20), Moved()
    LedgerMember(member, sink, "board").move({P0: 3}, note="", identities={P0: SECOND})  # type: ignore[arg-type]
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
