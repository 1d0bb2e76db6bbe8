"""Writing a batch exactly once, and taking partitions over, in a sink's own transaction.

Called by sinks that keep a ledger. The one place that joins the :class:`~streamgroups.ports.Ledger` with the rules of
:mod:`streamgroups.ledgers`. Source: SEMANTICS X2-X4, S5.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeVar

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.ledger import (
    AlreadyDone,
    CommitGroups,
    NothingRead,
    Verdict,
    combine,
    foreign_positions,
    judge,
)
from streamgroups.ledgers.no_data_batch import NoDataBatch, judge_no_data
from streamgroups.ledgers.recovery import TakeOver, take_over
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Ledger, LedgerTransaction

logger = logging.getLogger(__name__)

_Output = TypeVar("_Output")


def commit_batch(
    ledger: Ledger[_Output],
    reads: Mapping[str, Collection[OffsetRange]],
    output: _Output | None,
    *,
    quiet: NoDataBatch | None = None,
    identities: Mapping[str, Mapping[TopicPartition, TopicIdentity]] = MappingProxyType({}),
) -> CommitGroups | AlreadyDone | NothingRead:
    """Writes the output of a batch and moves the ledger, together or not at all.

    It may be called again after any failure: if the first call did commit, the second finds it done.

    Args:
        ledger: where the output goes.
        reads: all that the batch has read for each group, also what no longer belongs to this member: its records are in the output. Every group of
            the query is there, if only with nothing: the first by name keeps the entry of no-data batches.
        output: what to write; ``None`` for nothing.
        quiet: the batch, if it reads nothing and has output; ``None`` if nothing tells it from its replay.
        identities: for each group, the topics that the ranges are of.

    Returns:
        What the ledger said. Only after :class:`~streamgroups.ledgers.ledger.CommitGroups` was anything written.

    Raises:
        FencedBatch: if the ledger does not stand where the batch begins, or it was written by a later state of the checkpoint, or nothing tells
            the batch from its replay.
        LedgerConflict: if another transaction was faster; call it again.
        SinkUnreachable: if it is not known whether it was written; call it again.

    >>> from streamgroups.fakes import FakeLedger
    >>> ledger, p0 = FakeLedger("billing"), TopicPartition("flights", 0)
    >>> with ledger.transaction() as transaction:
    ...     transaction.advance({p0: 0})
    >>> for _ in range(2):
    ...     print(type(commit_batch(ledger, {"billing": [OffsetRange(p0, 0, 10)]}, "ten flights")).__name__)
    CommitGroups
    AlreadyDone
    >>> ledger.written
    ['ten flights']
    """
    with ledger.transaction() as transaction:
        groups = {group_id: transaction.of(group_id) for group_id in sorted(reads)}
        verdict = combine(
            {
                group_id: _judged(group, reads[group_id], identities.get(group_id, {}))
                for group_id, group in groups.items()
            }
        )
        if isinstance(verdict, NothingRead) and output is not None:
            verdict = _judge_no_data(groups, quiet)
        if isinstance(verdict, CommitGroups):
            if output is not None:
                transaction.write(output)
            for group_id, next_offsets in verdict.next_offsets.items():
                groups[group_id].advance(next_offsets, identities.get(group_id, {}))
    return verdict


def _judged(
    group: LedgerTransaction[_Output],
    ranges: Collection[OffsetRange],
    identities: Mapping[TopicPartition, TopicIdentity],
) -> Verdict:
    positions = group.positions([r.topic_partition for r in ranges])
    known = [tp for tp in positions if identities.get(tp, UNKNOWN) != UNKNOWN]
    return judge(ranges, positions, foreign_positions(group.identities(known) if known else {}, identities))


def _judge_no_data(
    groups: Mapping[str, LedgerTransaction[_Output]], quiet: NoDataBatch | None
) -> CommitGroups | AlreadyDone:
    group_id = min(groups)
    if quiet is None:
        raise FencedBatch(
            f"A batch of group '{group_id}' has output but has read no records: a replay of it could not be detected.",
            remedy="Write this query's output at least once.",
        )
    noted = quiet.in_ledger(groups[group_id].positions(quiet.positions.keys()))
    verdict = judge_no_data(quiet, noted, group_id=group_id)
    return verdict if isinstance(verdict, AlreadyDone) else CommitGroups({group_id: verdict.next_offsets})


def take_over_partitions(
    ledger: Ledger[_Output], owned: Mapping[TopicPartition, Owned], policy: OnRestart, *, group_id: str
) -> TakeOver:
    """Finds where partitions that came in are read on, opens the ledger for those it does not know, and moves it if it must.

    The caller sets the group's committed offsets to :attr:`TakeOver.follow`.

    Args:
        ledger: where the output goes.
        owned: what came in, with the group's committed offsets, or where to start.
        policy: who is right if a tool has moved the group.
        group_id: the group, for what is told.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every difference; nothing is changed.
        LedgerConflict: if another member was faster; call it again.
        SinkUnreachable: if the sink does not answer; call it again.

    >>> from streamgroups.fakes import FakeLedger
    >>> ledger, p0 = FakeLedger("billing"), TopicPartition("flights", 0)
    >>> _ = take_over_partitions(ledger, {p0: Owned(5)}, OnRestart.GROUP, group_id="billing")
    >>> ledger.positions([p0])
    {TopicPartition(topic='flights', partition=0): 5}
    """
    with ledger.transaction() as transaction:
        positions = transaction.positions(owned.keys())
        decided = take_over(owned, positions, policy, transaction.identities(positions.keys()))
        moved = {tp: to for tp, (_, to) in decided.move.items()}
        if decided.open_at or moved:
            new = {**decided.open_at, **moved}
            transaction.advance(new, {tp: owned[tp].identity for tp in new})
    for difference in decided.differences:
        wins = "the group" if difference.topic_partition in decided.move else "the ledger"
        logger.warning("Group '%s' and its ledger differ; the positions of %s are used: %s", group_id, wins, difference)
    return decided
