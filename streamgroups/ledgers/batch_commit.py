"""Writes a batch exactly once, and takes partitions over, in the transaction of a sink.

Called by ``streamgroups_spark.sinks.ledger_writer`` and ``streamgroups.query.ledger_positions`` for sinks that keep a ledger. It
connects the port :class:`~streamgroups.ports.Ledger` with the rules of :mod:`streamgroups.ledgers`. Source: SEMANTICS
X2-X4, S5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import FencedBatch
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.compare_and_swap import (
    AlreadyDone,
    Commit,
    CommitGroups,
    NothingRead,
    Verdict,
    combine,
    foreign_positions,
    judge,
)
from streamgroups.ledgers.fences import epoch_partition, fence_partitions, fences, new_epochs, stored_resets
from streamgroups.ledgers.ledger_states import StateChange, fingerprints, state_partition, stored_state
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch, judge_no_data, reject_set_back
from streamgroups.ledgers.recovery import TakeOver, restored_states, take_over
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Ledger, LedgerTransaction
from streamgroups.printable import listed

logger = logging.getLogger(__name__)

_Output = TypeVar("_Output")


def commit_batch(
    ledger: Ledger[_Output],
    reads: Mapping[str, Collection[OffsetRange]],
    output: _Output | None,
    *,
    no_data_batch: NoDataBatch | None = None,
    number: QueryBatch | None = None,
    identities: Mapping[str, Mapping[TopicPartition, TopicIdentity]] = MappingProxyType({}),
    states: Mapping[str, Mapping[TopicPartition, StateChange]] = MappingProxyType({}),
    epochs: Mapping[str, Mapping[TopicPartition, int]] = MappingProxyType({}),
) -> CommitGroups | AlreadyDone | NothingRead:
    """Writes the output of a batch and advances the ledger in one transaction.

    It may be called again after any failure. If the first call has committed, the second one returns
    :class:`~streamgroups.ledgers.compare_and_swap.AlreadyDone`.

    Args:
        ledger: the ledger of the sink.
        reads: all ranges of the batch for each group, including those of partitions that this member has lost: their
            records are in the output. It contains every group of the query, also without ranges. The first group by
            name stores the entry of no-data batches.
        output: the output to write; ``None`` for no output.
        no_data_batch: the batch, if it reads no records and has output; ``None`` if its replay cannot be detected.
        number: the number of a batch with records, if the query keeps state. ``None`` if it is unknown: a checkpoint that was set
            back behind a no-data batch is then not detected.
        identities: for each group, the topics of the ranges.
        states: for each group, how the batch changes the states of its partitions, if it has an operator with state in
            the stage that reads.
        epochs: for each group, the ownership epochs of its partitions when the batch was planned.

    Returns:
        The verdict of the ledger. Output is written only with :class:`~streamgroups.ledgers.compare_and_swap.CommitGroups`.

    Raises:
        FencedBatch: if the batch does not begin at the position of the ledger, another owner has taken a partition over, or a later
            state of the checkpoint has written it. Also if its replay cannot be detected, or the checkpoint was set back behind a
            no-data batch.
        LedgerConflict: if another transaction was faster. Call it again.
        SinkUnreachable: if the result is unknown. Call it again.

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
                group_id: _judged(
                    group_id,
                    group,
                    reads[group_id],
                    identities.get(group_id, {}),
                    states.get(group_id, {}),
                    epochs.get(group_id, {}),
                    # The first group contains the entry of no-data batches.
                    number if group_id == min(groups) else None,
                )
                for group_id, group in groups.items()
            }
        )
        if isinstance(verdict, NothingRead) and output is not None:
            verdict = _judge_no_data(groups, no_data_batch)
        if isinstance(verdict, CommitGroups):
            if output is not None:
                transaction.write(output)
            for group_id, next_offsets in verdict.next_offsets.items():
                groups[group_id].advance(next_offsets, identities.get(group_id, {}))
    return verdict


def _judged(
    group_id: str,
    group: LedgerTransaction[_Output],
    ranges: Collection[OffsetRange],
    identities: Mapping[TopicPartition, TopicIdentity],
    states: Mapping[TopicPartition, StateChange],
    epochs: Mapping[TopicPartition, int],
    number: QueryBatch | None,
) -> Verdict:
    read = [r.topic_partition for r in ranges]
    fenced = [epoch_partition(tp) for tp in read if tp in epochs]
    entry = [] if number is None else [number.no_data_partition]
    positions = group.positions([*read, *map(state_partition, states), *fenced, *entry])
    known = [tp for tp in positions if identities.get(tp, UNKNOWN) != UNKNOWN]
    foreign = foreign_positions(group.identities(known) if known else {}, identities)
    verdict = judge(ranges, positions, foreign, states, epochs)
    if number is not None and isinstance(verdict, Commit | NothingRead):
        reject_set_back(number, positions.get(number.no_data_partition), group_id=group_id)
    return verdict


def _judge_no_data(
    groups: Mapping[str, LedgerTransaction[_Output]], no_data_batch: NoDataBatch | None
) -> CommitGroups | AlreadyDone:
    group_id = min(groups)
    if no_data_batch is None:
        raise FencedBatch(
            f"A batch of group '{group_id}' has output but has read no records: a replay of it could not be detected.",
            remedy="Write this query's output at least once.",
        )
    recorded = no_data_batch.in_ledger(groups[group_id].positions(no_data_batch.positions.keys()))
    verdict = judge_no_data(no_data_batch, recorded, group_id=group_id)
    return verdict if isinstance(verdict, AlreadyDone) else CommitGroups({group_id: verdict.next_offsets})


def take_over_partitions(
    ledger: Ledger[_Output],
    owned: Mapping[TopicPartition, Owned],
    policy: OnRestart,
    *,
    group_id: str,
    is_owner: Callable[[Collection[TopicPartition]], bool],
    has_states: bool = False,
) -> TakeOver:
    """Determines where reading of assigned partitions continues.

    Opens the ledger for partitions without a position, and changes its positions if necessary. From then on the ledger rejects
    earlier owners of the partitions. The caller sets the committed offsets of the group to :attr:`TakeOver.follow`.

    Args:
        ledger: the ledger of the sink.
        owned: the assigned partitions, with the committed offsets of the group or their starting positions.
        policy: which positions apply after a tool has reset the group. A restored savepoint applies under each policy.
        group_id: the group, for log messages.
        is_owner: returns whether the broker describes this member as the owner of these partitions now.
        has_states: whether the ledger contains the states of positions.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every difference. Also if the ledger lacks the reset of a member's
            commit, or if a restored state is not one of the position of the ledger. Nothing is changed.
        FencedMember: if a partition has another owner in the meantime. Nothing is changed.
        LedgerConflict: if another member was faster. Call it again.
        SinkUnreachable: if the sink does not answer. Call it again.

    >>> from streamgroups.fakes import FakeLedger
    >>> ledger, p0 = FakeLedger("billing"), TopicPartition("flights", 0)
    >>> owned = {p0: Owned(5, epoch=7)}
    >>> taken = take_over_partitions(ledger, owned, OnRestart.GROUP, group_id="billing", is_owner=lambda _: True)
    >>> taken.epochs
    {TopicPartition(topic='flights', partition=0): 7}
    >>> ledger.positions([p0])
    {TopicPartition(topic='flights', partition=0): 5}
    """
    with ledger.transaction() as transaction:
        states = map(state_partition, owned) if has_states else ()
        found = transaction.positions([*owned, *states, *fence_partitions(owned)])
        positions = {tp: n for tp, n in found.items() if tp in owned}
        epochs = new_epochs(owned, found, is_owner, group_id=group_id)
        resets = stored_resets(owned, found)
        decided = take_over(
            owned, positions, policy, transaction.identities(positions.keys()), resets, group_id=group_id
        )
        new = {**decided.open_at, **{tp: to for tp, (_, to) in decided.move.items()}}
        kept = {tp: it for tp, it in owned.items() if tp not in new}
        restored = restored_states(kept, positions, resets) if has_states else {}
        marks = fingerprints({**{tp: owned[tp].state for tp in new}, **restored}) if has_states else {}
        fenced = fences({tp: replace(it, epoch=epochs[tp], reset=decided.resets[tp]) for tp, it in owned.items()})
        transaction.advance({**new, **marks, **fenced}, {tp: owned[tp].identity for tp in new})
        stored = {tp: stored_state(tp, found, it.state, it.next_offset) for tp, it in kept.items()}
        states_of = {tp: state for tp, state in stored.items() if state is not None}
        decided = replace(decided, states={**states_of, **restored}, epochs=epochs)
    of_group = [it for it in decided.differences if it.topic_partition in decided.move]
    of_ledger = [it for it in decided.differences if it.topic_partition not in decided.move]
    for wins, differences in (("the group", of_group), ("the ledger", of_ledger)):
        if differences:
            logger.warning(
                "Group '%s' and its ledger differ; the positions of %s are used: %s",
                group_id,
                wins,
                listed(differences, separator="; "),
            )
    return decided
