"""X2, X3: the decision of ``sg.ledgers.ledger`` about a batch, by the positions in the user's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch, FencedMember, InvalidOption, LedgerConflict
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.ledger_positions import LedgerPositions as LedgerPositionsOfSource
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_spark.messages.batch import BatchFacts
from streamgroups_spark.sinks import foreach_ledger
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch
from streamgroups_spark.sinks.foreach_ledger import (
    BatchLedger,
    LedgerBatch,
    LedgerPosition,
    LedgerPositions,
    _PositionsSink,
)

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ONE = LedgerBatch("board", (OffsetRange(P0, 10, 20),))
BOTH = LedgerBatch("board", (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)))
FIRST = TopicIdentity("c", "t1")
NO_DATA_BATCH = LedgerBatch("board", (), NoDataBatch("5f2c", 7, 99))


class Table:
    """The user's table of positions."""

    def __init__(self, **positions: int) -> None:
        self.rows: dict[tuple[str, int], LedgerPosition] = {
            ("flights", int(p[1:])): LedgerPosition(n) for p, n in positions.items()
        }

    def read(self) -> LedgerPositions:
        return dict(self.rows)

    def update(self, change: Callable[[LedgerPositions], LedgerPositions]) -> None:
        self.before_update()
        self.rows.update(change(dict(self.rows)))

    def write(self, positions: LedgerPositions) -> None:
        """Writes rows as the function of ``foreachBatch`` does."""
        self.rows.update(positions)

    def before_update(self) -> None:
        """The transaction begins. A test lets another transaction end before."""


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
    for batch in (ONE, BOTH, NO_DATA_BATCH):
        table = Table(p0=10, p1=5)
        assert not batch.is_written(table.read())
        table.write(batch.positions)
        assert batch.is_written(table.read())


def test_F1_a_batch_of_another_owner_is_fenced_whatever_its_number() -> None:
    batch = replace(ONE, epochs={P0: 7})
    epoch = ("streamgroups.epoch.flights", 0)
    for next_offset in (10, 20):
        for stored in (6, 8):
            rows = {("flights", 0): LedgerPosition(next_offset), epoch: LedgerPosition(stored)}
            with pytest.raises(FencedBatch, match=f"ownership epoch of the ledger: {stored}; of the batch: 7"):
                batch.is_written(rows)
    assert not batch.is_written({("flights", 0): LedgerPosition(10), epoch: LedgerPosition(7)})
    assert batch.is_written({("flights", 0): LedgerPosition(20), epoch: LedgerPosition(7)})
    assert batch.positions == ONE.positions, "a batch does not change the epoch"


def test_F1_the_table_of_a_user_keeps_the_contract_of_epochs() -> None:
    positions = LedgerPositionsOfSource(_PositionsSink(table := Table(p0=10)), "board", OnRestart.GROUP)
    frozen = positions.take_over({P0: Owned(10, epoch=7)}, lambda _: False)
    positions.take_over({P0: Owned(10, epoch=8)}, lambda _: False)
    before = table.read()
    assert positions.move({P0: replace(frozen[P0], next_offset=3)}) == frozenset()
    with pytest.raises(FencedMember):
        positions.take_over(frozen, lambda _: False)
    assert table.read() == before
    assert positions.move({P0: Owned(3, epoch=8)}) == {P0}
    assert table.read()["flights", 0] == LedgerPosition(3)


def test_F1_positions_are_compared_in_the_transaction_of_the_user() -> None:
    """A process is frozen between its decision and its write. The next owner takes over, and reads meanwhile."""
    positions = LedgerPositionsOfSource(_PositionsSink(table := Table(p0=10)), "board", OnRestart.GROUP)
    owned = positions.take_over({P0: Owned(10, epoch=7)}, lambda _: False)

    def next_owner() -> None:
        table.before_update = lambda: None  # type: ignore[method-assign]
        positions.take_over({P0: Owned(10, epoch=8)}, lambda _: False)

    table.before_update = next_owner  # type: ignore[method-assign]
    assert positions.move({P0: replace(owned[P0], next_offset=3)}) == frozenset()
    assert table.read()["flights", 0] == LedgerPosition(10)
    assert table.read()["streamgroups.epoch.flights", 0] == LedgerPosition(8)


def test_F1_a_transaction_that_was_overtaken_changes_nothing() -> None:
    table = Table(p0=10)
    table.before_update = lambda: table.write({("flights", 0): LedgerPosition(11)})  # type: ignore[method-assign]

    def set_back() -> None:
        with _PositionsSink(table).open("board") as ledger, ledger.transaction() as transaction:
            transaction.positions([P0])
            transaction.advance({P0: 3})

    with pytest.raises(LedgerConflict, match="flights-0"):
        set_back()
    assert table.rows == {("flights", 0): LedgerPosition(11)}


def test_X3_a_no_data_batch_of_a_checkpoint_that_was_set_back_is_fenced() -> None:
    table = Table()
    table.write(NO_DATA_BATCH.positions)
    for other in (NoDataBatch("5f2c", 6, 99), NoDataBatch("5f2c", 7, 98)):
        with pytest.raises(FencedBatch, match="No-data batch"):
            LedgerBatch("board", (), other).is_written(table.read())


def test_X4_a_batch_with_records_does_not_repeat_a_no_data_batch() -> None:
    table = Table(p0=10)
    table.write(NO_DATA_BATCH.positions)
    with pytest.raises(FencedBatch, match="no-data batch 7"):
        replace(ONE, number=QueryBatch("5f2c", 7)).is_written(table.read())
    assert not replace(ONE, number=QueryBatch("5f2c", 8)).is_written(table.read())


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
        owned={P0: Owned(10, epoch=7)},
    )
    monkeypatch.setattr(foreach_ledger, "logged_batch", lambda _, batch_id: LoggedBatch(batch_id))
    monkeypatch.setattr(foreach_ledger, "batch_info", lambda batch, _: BatchInfo((facts,), batch.batch_id))
    batch = BatchLedger("board", "checkpoint").batch(3)
    assert replace(batch, states_after=dict) == replace(ONE, identities={P0: FIRST}, epochs={P0: 7})
    assert batch.states_after() == {}
    with pytest.raises(InvalidOption, match="also reads for group board"):
        BatchLedger("gates", "checkpoint").batch(3)


def test_the_source_reads_and_moves_the_table_by_itself() -> None:
    table = Table(p0=10)
    with _PositionsSink(table).open("board") as ledger, ledger.transaction() as transaction:
        assert transaction.positions([P0, P1]) == {P0: 10}
        transaction.advance({P1: 5})
    assert table.rows == {("flights", 0): LedgerPosition(10), ("flights", 1): LedgerPosition(5)}
    with _PositionsSink(table).open("board") as ledger:
        assert ledger.positions([P0, TopicPartition("other", 0)]) == {P0: 10}


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
        assert transaction.positions([P0]) == {}
        transaction.advance({P0: 5}, {P0: FIRST})
    with _PositionsSink(table).open("board") as ledger, ledger.transaction() as transaction:
        assert transaction.positions([P0]) == {P0: 5}
        assert transaction.identities([P0]) == {P0: FIRST}
    assert table.rows == {("flights", 0): LedgerPosition(5, "c", "t1")}
