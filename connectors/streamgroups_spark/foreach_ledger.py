"""``sg.ledger(...)``: makes a sink of one's own, in ``foreachBatch``, exactly once.

Called by users on the driver. They keep the positions in a table beside their output and change both in one transaction; here is what they
need for that: which ranges a batch has read, and whether it is written. The source asks for the positions when partitions come in, as it
does with our own ledgers (``ledger_member``). Source: SEMANTICS X2-X4; :mod:`streamgroups.ledgers.ledger`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from streamgroups.errors import InvalidOption
from streamgroups.ledgers.ledger import AlreadyDone, Fenced, judge
from streamgroups.ledgers.quiet import QuietBatch, judge_quiet
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.batch_seen import batch_seen
from streamgroups_spark.kept_ledgers import keep
from streamgroups_spark.registering import SESSION

#: Next offsets by topic and partition.
NextOffsets = Mapping[tuple[str, int], int]


class Positions(Protocol):
    """The user's table of positions. It is pickled to the source's process: it connects when it is asked."""

    def read(self) -> NextOffsets:
        """All positions; none, if nothing was ever written."""
        ...

    def write(self, next_offsets: NextOffsets) -> None:
        """Sets positions, new ones included, in a transaction of its own. The source does so when it meets new partitions, or is moved."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerBatch:
    """What a batch has read.

    Args:
        group_id: the group it was read for.
        ranges: what of each partition; none if Spark runs it only because time has come further.
        quiet: what tells it from other batches in that case.
    """

    group_id: str
    ranges: tuple[OffsetRange, ...]
    quiet: QuietBatch | None = None

    def is_written(self, positions: NextOffsets) -> bool:
        """Whether the batch is written already. Ask in the transaction that is to write it, with the positions' rows locked.

        Args:
            positions: where the ledger stands, as that transaction reads it.

        Raises:
            FencedBatch: if it stands neither where the batch begins nor where it ends: write nothing (SEMANTICS X3). A batch that has
                read nothing is told from others by two more positions, of a topic ``streamgroups.quiet...`` that there is not.

        >>> batch = LedgerBatch("board", (OffsetRange(TopicPartition("flights", 0), 10, 20),))
        >>> batch.is_written({("flights", 0): 10}), batch.is_written({("flights", 0): 20})
        (False, True)
        """
        found = {TopicPartition(t, p): n for (t, p), n in positions.items()}
        if self.quiet is not None:
            noted = self.quiet.in_ledger(found)
            return isinstance(judge_quiet(self.quiet, noted, group_id=self.group_id), AlreadyDone)
        verdict = judge(self.ranges, found)
        if isinstance(verdict, Fenced):
            raise verdict.error(self.group_id)
        return isinstance(verdict, AlreadyDone)

    @property
    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Where the ledger stands once the batch is written.

        >>> LedgerBatch("board", (OffsetRange(TopicPartition("flights", 0), 10, 20),)).next_offsets
        {('flights', 0): 20}
        """
        reached = {r.topic_partition: r.end_offset for r in self.ranges}
        return {(tp.topic, tp.partition): n for tp, n in (self.quiet.positions if self.quiet else reached).items()}


@dataclass(frozen=True)
class BatchLedger:
    """The ledger of a sink of one's own; made by :func:`ledger`.

    Args:
        group_id: the group that the query reads for.
        checkpoint: the query's.
    """

    group_id: str
    checkpoint: str

    def batch(self, batch_id: int) -> LedgerBatch:
        """What a batch has read. Ask in ``foreachBatch``.

        Args:
            batch_id: as Spark calls it.

        Raises:
            StreamGroupsError: if it cannot be exactly once, or the group has gone on without this query.
        """
        seen = batch_seen(self.checkpoint, SESSION, batch_id)
        others = sorted({source.group_id for source in seen.sources} - {self.group_id})
        if others:
            raise InvalidOption(
                f"The query also reads for group {', '.join(others)}; the ledger is that of group '{self.group_id}'.",
                remedy="Read all topics with one source ('subscribe' takes several).",
            )
        return LedgerBatch(self.group_id, seen.ranges, seen.quiet)


def ledger(group_id: str, *, checkpoint: str, positions: Positions) -> BatchLedger:
    """Keeps the positions of a group beside one's own output. Call it before the query is started.

    Args:
        group_id: the option ``group.id`` of the query's source.
        checkpoint: the query's ``checkpointLocation``: a path or a URI that the driver can read.
        positions: reads and writes the table of positions.

    Example::

        ledger = sg.ledger("board", checkpoint="/data/board", positions=MyPositions())

        def write(rows, batch_id):
            batch = ledger.batch(batch_id)
            with database.transaction() as transaction:
                if batch.is_written(transaction.read_positions()):
                    return
                transaction.insert(rows.collect())
                transaction.write_positions(batch.next_offsets)

        flights.writeStream.foreachBatch(write).option("checkpointLocation", "/data/board").start()
    """
    batches = BatchLedger(group_id, checkpoint)
    keep(_PositionsSink(positions), [group_id], checkpoint=checkpoint, writer=batches)
    return batches


@dataclass(frozen=True, slots=True)
class _PositionsSink:
    """What the source needs of a :class:`streamgroups.staging.StagingSink`: the ledger."""

    positions: Positions

    def open(self, group_id: str) -> AbstractContextManager[_PositionsLedger]:
        return nullcontext(_PositionsLedger(self.positions))


class _PositionsLedger:
    """Takes partitions over, which are one member's: nothing is written to it but by ``foreachBatch`` itself."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions

    def transaction(self) -> AbstractContextManager[_PositionsLedger]:
        return nullcontext(self)

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = {TopicPartition(t, p): n for (t, p), n in self._positions.read().items()}
        return {tp: found[tp] for tp in partitions if tp in found}

    def of(self, group_id: str) -> _PositionsLedger:
        # The user's table names no groups: BatchLedger.batch() rejects a query of several.
        return self

    def advance(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        self._positions.write({(tp.topic, tp.partition): n for tp, n in next_offsets.items()})

    def write(self, output: Any) -> None:
        raise NotImplementedError("foreachBatch writes")
