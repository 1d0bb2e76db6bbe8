"""``sg.ledgers.ledger(...)``: makes the user's own sink in ``foreachBatch`` exactly once.

Called by users on the driver. They store the positions in a table beside their output and change both in one
transaction. This module returns the ranges of a batch and whether it is written. The source reads the positions when
partitions are assigned, as from the built-in ledgers (``streamgroups.query.ledger_positions``). Source: SEMANTICS X2-X4;
:mod:`streamgroups.ledgers.compare_and_swap`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from streamgroups.errors import InvalidOption, LedgerConflict
from streamgroups.groups.membership import States
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.compare_and_swap import AlreadyDone, Fenced, foreign_positions, judge
from streamgroups.ledgers.ledger_states import changes, fingerprints
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch, judge_no_data, reject_set_back
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups_spark.internals.private_spark import FOREACH_BATCH
from streamgroups_spark.session import SESSION
from streamgroups_spark.sinks.batch_info import batch_info, logged_batch, number_of, reported_states
from streamgroups_spark.sinks.ledger_registry import keep


class LedgerPosition(NamedTuple):
    """One row of the user's table of positions.

    Args:
        next_offset: the offset of the next record.
        cluster_id: the id of the cluster of the topic. ``None`` if the brokers do not return it.
        topic_id: the id of the topic. ``None`` if the brokers do not return it.
    """

    next_offset: int
    cluster_id: str | None = None
    topic_id: str | None = None


#: The rows by topic and partition.
LedgerPositions = Mapping[tuple[str, int], LedgerPosition]


class LedgerTable(Protocol):
    """The user's table of positions. It is pickled to the process of the source, so its methods open the connection."""

    def read(self) -> LedgerPositions:
        """Returns all positions. Empty if none was ever written."""
        ...

    def update(self, change: Callable[[LedgerPositions], LedgerPositions]) -> None:
        """Changes positions in one transaction: reads all rows, locks them, and writes the rows that ``change`` returns.

        The source calls it when it takes partitions over, and after a reset. If ``change`` raises, the transaction is rolled back.
        A table without row locks needs a lock of the whole table, or a serializable transaction: a process that was frozen can
        call it at any time, and ``change`` rejects it by the positions that it receives (SEMANTICS F1).

        Args:
            change: receives all positions of the table, and returns the changed ones, also of new partitions.
        """
        ...


@dataclass(frozen=True, slots=True)
class LedgerBatch:
    """The ranges that a batch has read.

    Args:
        group_id: the group of the source.
        ranges: the range of each partition. Empty for a no-data batch.
        no_data_batch: the identity of a no-data batch. ``None`` for other batches.
        identities: the identities of the topics of the ranges.
        states: the states from which the batch continues, if it has an operator with state in the stage that reads.
        states_after: returns the states after the batch.
        epochs: the ownership epochs of the ranges.
        number: the number of a batch with records, if the query keeps state.
    """

    group_id: str
    ranges: tuple[OffsetRange, ...]
    no_data_batch: NoDataBatch | None = None
    identities: Mapping[TopicPartition, TopicIdentity] = field(default_factory=dict)
    states: States = field(default_factory=dict)
    states_after: Callable[[], States] = dict
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    number: QueryBatch | None = None

    def is_written(self, positions: LedgerPositions) -> bool:
        """Returns whether the batch is written.

        Call it in the transaction that writes the batch, with the rows of the positions locked.

        Args:
            positions: the positions of the ledger, as that transaction reads them.

        Raises:
            FencedBatch: if the ledger is neither at the start nor at the end of the batch, another owner has taken a partition
                over, or the checkpoint was set back behind a no-data batch. Then write nothing (SEMANTICS F1, X3). Further positions, of topics ``streamgroups...`` that do not exist in
                Kafka, identify the owner of a partition and a no-data batch.

        >>> batch = LedgerBatch("board", (OffsetRange(TopicPartition("flights", 0), 10, 20),))
        >>> batch.is_written({("flights", 0): LedgerPosition(10)}), batch.is_written({("flights", 0): LedgerPosition(20)})
        (False, True)
        """
        rows = _by_partition(positions)
        found = {tp: row.next_offset for tp, row in rows.items()}
        if self.no_data_batch is not None:
            recorded = self.no_data_batch.in_ledger(found)
            return isinstance(judge_no_data(self.no_data_batch, recorded, group_id=self.group_id), AlreadyDone)
        foreign = foreign_positions(_identities(rows), self.identities)
        verdict = judge(self.ranges, found, foreign, changes(self.states), self.epochs)
        if isinstance(verdict, Fenced):
            raise verdict.error(self.group_id)
        if self.number is not None and not isinstance(verdict, AlreadyDone):
            reject_set_back(self.number, found.get(self.number.no_data_partition), group_id=self.group_id)
        return isinstance(verdict, AlreadyDone)

    @property
    def positions(self) -> dict[tuple[str, int], LedgerPosition]:
        """The positions of the ledger after the batch is written.

        With an operator with state (SEMANTICS S10), read this after all rows of the batch: one more position of each
        partition identifies its new state, of a topic ``streamgroups.state...`` that does not exist in Kafka.

        Raises:
            StateMissing: if the rows of the batch are not read yet.

        >>> LedgerBatch("board", (OffsetRange(TopicPartition("flights", 0), 10, 20),)).positions
        {('flights', 0): LedgerPosition(next_offset=20, cluster_id=None, topic_id=None)}
        """
        reached = {r.topic_partition: r.end_offset for r in self.ranges} | fingerprints(self.states_after())
        return _rows(self.no_data_batch.positions if self.no_data_batch else reached, self.identities)


@dataclass(frozen=True)
class BatchLedger:
    """The ledger of a user's own sink, created by :func:`ledger`.

    Args:
        group_id: the group of the source.
        checkpoint: the checkpoint of the query.
    """

    group_id: str
    checkpoint: str

    def batch(self, batch_id: int) -> LedgerBatch:
        """Returns the ranges that a batch has read. Call it in ``foreachBatch``.

        Args:
            batch_id: Spark's batch id.

        Raises:
            StreamGroupsError: if the query does not support exactly once, or the group has fenced its member.
        """
        seen = batch_info(logged_batch(self.checkpoint, batch_id), SESSION)
        others = sorted({source.group_id for source in seen.sources} - {self.group_id})
        if others:
            raise InvalidOption(
                f"The query also reads for group {', '.join(others)}, but the ledger belongs to group "
                f"'{self.group_id}'.",
                remedy="Read all topics with one source ('subscribe' accepts several).",
            )
        states = {tp: state for source in seen.sources for tp, state in source.states.items()}
        return LedgerBatch(
            self.group_id,
            seen.ranges,
            seen.no_data_batch,
            seen.identities.get(self.group_id, {}),
            states,
            lambda: {tp: it for source in seen.sources for tp, it in reported_states(SESSION, source).items()},
            seen.epochs.get(self.group_id, {}),
            number_of(seen, self.checkpoint),
        )


def ledger(group_id: str, *, checkpoint: str, positions: LedgerTable) -> BatchLedger:
    """Stores the positions of a group beside the user's own output. Call it before the query is started.

    Args:
        group_id: the option ``group.id`` of the query's source.
        checkpoint: the ``checkpointLocation`` of the query: a path or a URI that the driver can read.
        positions: reads and writes the table of positions.

    Example::

        ledger = sg.ledgers.ledger("board", checkpoint="/data/board", positions=MyPositions())

        def write(rows, batch_id):
            batch = ledger.batch(batch_id)
            with database.transaction() as transaction:
                if batch.is_written(transaction.read_positions()):
                    return
                transaction.insert(rows.collect())
                transaction.write_positions(batch.positions)

        flights.writeStream.foreachBatch(write).option("checkpointLocation", "/data/board").start()
    """
    batches = BatchLedger(group_id, checkpoint)
    keep(_PositionsSink(positions), [group_id], checkpoint=checkpoint, writer=batches, sink_name=FOREACH_BATCH)
    return batches


@dataclass(frozen=True, slots=True)
class _PositionsSink:
    """The part of a :class:`streamgroups.ledgers.staging.StagingSink` that the source needs: the ledger."""

    positions: LedgerTable

    @property
    def output(self) -> str:
        return f"ledger:{type(self.positions).__name__}"

    def open(self, group_id: str) -> AbstractContextManager[_PositionsLedger]:
        return nullcontext(_PositionsLedger(self.positions))


class _PositionsLedger:
    """The ledger for the takeover of partitions by one member. Only ``foreachBatch`` writes output."""

    def __init__(self, positions: LedgerTable) -> None:
        self._positions = positions

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        rows = _by_partition(self._positions.read())
        return {tp: rows[tp].next_offset for tp in partitions if tp in rows}

    @contextmanager
    def transaction(self) -> Iterator[_PositionsTransaction]:
        transaction = _PositionsTransaction(self._positions.read())
        yield transaction
        if transaction.changed:
            self._positions.update(transaction.change)


class _PositionsTransaction:
    """Reads positions first. They are compared in the user's transaction that changes them."""

    def __init__(self, rows: LedgerPositions) -> None:
        self._rows = _by_partition(rows)
        self._read: dict[TopicPartition, LedgerPosition | None] = {}
        self.changed: dict[TopicPartition, LedgerPosition] = {}

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self._read |= {tp: self._rows.get(tp) for tp in partitions}
        return {tp: self._rows[tp].next_offset for tp in partitions if tp in self._rows}

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        found = _identities(self._rows)
        return {tp: found[tp] for tp in partitions if tp in found}

    def of(self, group_id: str) -> _PositionsTransaction:
        # The user's table contains no groups: BatchLedger.batch() rejects a query with several.
        return self

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        self.changed |= _by_partition(_rows(next_offsets, identities))

    def write(self, output: Any) -> None:
        raise NotImplementedError("foreachBatch writes")

    def change(self, rows: LedgerPositions) -> LedgerPositions:
        """Returns the changed rows.

        Raises:
            LedgerConflict: if another transaction has changed a position that was read.
        """
        now = _by_partition(rows)
        if conflicts := sorted(tp for tp, row in self._read.items() if now.get(tp) != row):
            raise LedgerConflict(
                f"Another transaction has changed the ledger positions of {listed(conflicts)}.",
                remedy="Try again: the ledger compares the positions again.",
            )
        return {(tp.topic, tp.partition): row for tp, row in self.changed.items()}


def _by_partition(rows: LedgerPositions) -> dict[TopicPartition, LedgerPosition]:
    return {TopicPartition(topic, partition): LedgerPosition(*row) for (topic, partition), row in rows.items()}


def _rows(
    next_offsets: Mapping[TopicPartition, int], identities: Mapping[TopicPartition, TopicIdentity]
) -> dict[tuple[str, int], LedgerPosition]:
    known = {tp: identities.get(tp, UNKNOWN) for tp in next_offsets}
    return {
        (tp.topic, tp.partition): LedgerPosition(n, known[tp].cluster_id, known[tp].topic_id)
        for tp, n in next_offsets.items()
    }


def _identities(rows: Mapping[TopicPartition, LedgerPosition]) -> dict[TopicPartition, TopicIdentity]:
    return {tp: TopicIdentity(row.cluster_id, row.topic_id) for tp, row in rows.items()}
