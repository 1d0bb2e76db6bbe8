"""S5, X4: where partitions are read on when a sink keeps a ledger, row by row of the table in ``recovery``."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import PositionsDiffer
from streamgroups.fakes import FakeLedger
from streamgroups.groups.membership import Origin, Owned
from streamgroups.ledgers.commit import take_over_partitions
from streamgroups.ledgers.recovery import LedgerDifference, TakeOver, take_over
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
CHECKPOINT, GROUP, FAIL = OnRestart.CHECKPOINT, OnRestart.GROUP, OnRestart.FAIL
FOREIGN, STARTING, OLDEST = Origin.FOREIGN, Origin.STARTING, Origin.OLDEST


@dataclass(frozen=True)
class Row:
    """A partition's ledger and group, and what follows: the position for each policy, and whether that is a difference."""

    ledger: int | None
    group: Owned
    checkpoint_wins: int
    group_wins: int
    differs: bool = False


ROWS = {
    "new ledger, old group": Row(None, Owned(10), 10, 10),
    "new ledger, group set by a tool": Row(None, Owned(10, FOREIGN), 10, 10),
    "new ledger, new group": Row(None, Owned(7, STARTING), 7, 7),
    "new ledger, new partition": Row(None, Owned(0, OLDEST), 0, 0),
    "they agree": Row(20, Owned(20), 20, 20),
    "a tool agrees": Row(20, Owned(20, FOREIGN), 20, 20),
    "the group's offsets expired": Row(20, Owned(0, OLDEST), 20, 20),
    "the group was deleted": Row(20, Owned(500, STARTING), 20, 20),
    "the group's commit is missing": Row(20, Owned(10), 20, 20),
    "the ledger was set back": Row(20, Owned(35), 20, 20, differs=True),
    "a tool reset the group to the past": Row(20, Owned(5, FOREIGN), 20, 5, differs=True),
    "a tool reset the group to the future": Row(20, Owned(50, FOREIGN), 20, 50, differs=True),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("policy", OnRestart)
def test_row(name: str, policy: OnRestart) -> None:
    row = ROWS[name]
    ledger = {} if row.ledger is None else {P0: row.ledger, P2: 1_000}
    if policy is FAIL and row.differs:
        with pytest.raises(PositionsDiffer, match=rf"flights-0: ledger 20, group {row.group.next_offset} \([+-]"):
            take_over({P0: row.group}, ledger, policy)
        return
    decided = take_over({P0: row.group}, ledger, policy)
    expected = row.group_wins if policy is GROUP else row.checkpoint_wins
    assert decided.next_offsets == {P0: expected}, "partitions of other members are left alone"
    assert decided.open_at == ({P0: expected} if row.ledger is None else {})
    assert decided.move == ({P0: (row.ledger, expected)} if row.ledger not in (None, expected) else {})
    silent = row.group.origin in (STARTING, OLDEST)
    assert decided.follow == ({P0: expected} if silent or row.group.next_offset != expected else {})
    assert [d.topic_partition for d in decided.differences] == ([P0] if row.differs else [])


def test_every_difference_is_named_and_the_way_out() -> None:
    owned = {P0: Owned(5, FOREIGN), P1: Owned(9), P2: Owned(3)}
    with pytest.raises(PositionsDiffer) as rejected:
        take_over(owned, {P0: 20, P1: 7, P2: 3}, FAIL)
    assert rejected.value.what == (
        "Ledger and group differ: flights-0: ledger 20, group 5 (-15); flights-1: ledger 7, group 9 (+2)."
    )
    assert "onRestart=group" in rejected.value.remedy
    assert "onRestart=checkpoint" in rejected.value.remedy


_OWNED = st.builds(Owned, st.integers(0, 9), st.sampled_from(Origin))


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), _OWNED),
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 9)),
    st.sampled_from([CHECKPOINT, GROUP]),
)
def test_ledger_and_reader_are_at_the_same_position(
    owned: dict[TopicPartition, Owned], known: dict[TopicPartition, int], policy: OnRestart
) -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance(known)
    decided = take_over_partitions(ledger, owned, policy, group_id="g")
    assert ledger.positions(owned) == decided.next_offsets
    assert ledger.positions(known.keys() - owned.keys()) == {tp: n for tp, n in known.items() if tp not in owned}
    # Once the group has followed, there is nothing more to do or to report.
    followed = {tp: Owned(decided.follow.get(tp, o.next_offset)) for tp, o in owned.items()}
    assert take_over_partitions(ledger, followed, FAIL, group_id="g") == TakeOver(decided.next_offsets, {}, {}, {}, ())


def test_the_side_that_wins_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance({P0: 20, P1: 20})
    with caplog.at_level(logging.WARNING):
        take_over_partitions(ledger, {P0: Owned(5, FOREIGN), P1: Owned(30)}, GROUP, group_id="billing")
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
        take_over_partitions(ledger, {P0: Owned(5, FOREIGN), P1: Owned(3)}, FAIL, group_id="g")
    assert ledger.positions([P0, P1]) == {P0: 20}


def test_a_difference_prints_both_sides() -> None:
    assert str(LedgerDifference(P0, 20, 35)) == "flights-0: ledger 20, group 35 (+15)"
