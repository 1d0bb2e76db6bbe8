"""X2, X3: the decision of ``sg.ledger`` about a batch, by the positions in the user's table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.errors import FencedBatch, InvalidOption
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.no_data_batch import NoDataBatch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_spark.sinks import foreach_ledger
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.foreach_ledger import (
    BatchLedger,
    LedgerBatch,
    LedgerPosition,
    LedgerPositions,
    _PositionsSink,
)
from streamgroups_spark.source.batch_messages import BatchFacts

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ONE = LedgerBatch("board", (OffsetRange(P0, 10, 20),))
BOTH = LedgerBatch("board", (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)))
FIRST = TopicIdentity("c", "t1")
QUIET = LedgerBatch("board", (), NoDataBatch("5f2c", 7, 99))


class Table:
    """The user's table of positions."""

    def __init__(self, **positions: int) -> None:
        self.rows: dict[tuple[str, int], LedgerPosition] = {
            ("flights", int(p[1:])): LedgerPosition(n) for p, n in positions.items()
        }

    def read(self) -> LedgerPositions:
        return self.rows

    def write(self, positions: LedgerPositions) -> None:
        self.rows.update(positions)


@pytest.mark.parametrize(
    ("batch", "positions", "is_written"),
    [
        (ONE, {("flights", 0): LedgerPosition(10)}, False),
        (ONE, {("flights", 0): LedgerPosition(20)}, True),
        (
            ONE,
            {("flights", 0): LedgerPosition(10), ("flights", 1): LedgerPosition(3), ("other", 0): LedgerPosition(99)},
            False,
        ),
        (BOTH, {("flights", 0): LedgerPosition(10), ("flights", 1): LedgerPosition(5)}, False),
        (BOTH, {("flights", 0): LedgerPosition(20), ("flights", 1): LedgerPosition(6)}, True),
    ],
)
def test_X2_a_batch_is_written_or_not(batch: LedgerBatch, positions: LedgerPositions, is_written: bool) -> None:
    assert batch.is_written(positions) is is_written


@pytest.mark.parametrize(
    ("batch", "positions"),
    [
        (ONE, {("flights", 0): LedgerPosition(25)}),
        (ONE, {("flights", 0): LedgerPosition(15)}),
        (ONE, {("flights", 0): LedgerPosition(5)}),
        (ONE, {}),
        (ONE, {("flights", 1): LedgerPosition(10)}),
        (BOTH, {("flights", 0): LedgerPosition(20), ("flights", 1): LedgerPosition(5)}),
        (BOTH, {("flights", 0): LedgerPosition(10), ("flights", 1): LedgerPosition(6)}),
        (BOTH, {("flights", 0): LedgerPosition(10)}),
    ],
    ids=["ahead", "within", "behind", "unknown", "another partition", "half done", "other half done", "half unknown"],
)
def test_X3_a_batch_at_any_other_position_is_fenced(batch: LedgerBatch, positions: LedgerPositions) -> None:
    with pytest.raises(FencedBatch, match="board"):
        batch.is_written(positions)


def test_X2_once_it_is_written_it_is_written() -> None:
    for batch in (ONE, BOTH, QUIET):
        table = Table(p0=10, p1=5)
        assert not batch.is_written(table.read())
        table.write(batch.positions)
        assert batch.is_written(table.read())


def test_X3_a_no_data_batch_of_a_checkpoint_that_was_set_back_is_fenced() -> None:
    table = Table()
    table.write(QUIET.positions)
    for other in (NoDataBatch("5f2c", 6, 99), NoDataBatch("5f2c", 7, 98)):
        with pytest.raises(FencedBatch, match="No-data batch"):
            LedgerBatch("board", (), other).is_written(table.read())


def test_the_ledger_is_that_of_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = BatchFacts(
        end={
            "version": 2,
            "n": 3,
            "ranges": {"flights": {"0": [10, 20]}},
            "resting": {},
            "cluster": "c",
            "topics": {"flights": "t1"},
        },
        group_id="board",
        member="one",
        ranges=ONE.ranges,
        held=ONE.ranges,
        written=(),
        group_metadata=ConsumerGroupMetadata("board", 1, "one"),
        mode=MembershipMode.SHARED,
        joins=True,
    )
    monkeypatch.setattr(foreach_ledger, "batch_info", lambda *_: BatchInfo((facts,), 3))
    batch = BatchLedger("board", "checkpoint").batch(3)
    assert replace(batch, states_after=dict) == replace(ONE, identities={P0: FIRST})
    assert batch.states_after() == {}
    with pytest.raises(InvalidOption, match="also reads for group board"):
        BatchLedger("gates", "checkpoint").batch(3)


def test_the_source_reads_and_moves_the_table_by_itself() -> None:
    table = Table(p0=10)
    with _PositionsSink(table).open("board") as ledger, ledger.transaction() as transaction:
        assert transaction.positions([P0, P1]) == {P0: 10}
        transaction.advance({P1: 5})
    assert table.rows == {("flights", 0): LedgerPosition(10), ("flights", 1): LedgerPosition(5)}


def test_S11_a_row_of_another_topic_is_fenced_whatever_its_number() -> None:
    batch = replace(ONE, identities={P0: FIRST})
    assert batch.positions == {("flights", 0): LedgerPosition(20, "c", "t1")}
    assert batch.is_written(batch.positions)
    for next_offset in (10, 20):
        with pytest.raises(FencedBatch, match="belongs to another topic or cluster"):
            batch.is_written({("flights", 0): LedgerPosition(next_offset, "c", "t2")})
    assert not batch.is_written({("flights", 0): LedgerPosition(10)}), "a row without ids"


def test_S11_the_source_reads_and_writes_ids() -> None:
    table = Table()
    with _PositionsSink(table).open("board") as ledger, ledger.transaction() as transaction:
        transaction.advance({P0: 5}, {P0: FIRST})
        assert transaction.positions([P0]) == {P0: 5}
        assert transaction.identities([P0]) == {P0: FIRST}
    assert table.rows == {("flights", 0): LedgerPosition(5, "c", "t1")}
