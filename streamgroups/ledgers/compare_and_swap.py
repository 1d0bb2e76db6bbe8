"""Decides whether a batch may be written: the compare-and-swap of a ledger, as a function.

Called by ``streamgroups.ledgers.batch_commit`` inside the transaction of the sink. A ledger contains the position of every
source partition. It is stored with the output, and the transaction that writes the output advances it. The number of a
batch decides nothing, since a new checkpoint counts from 0 again. The condition is that all records before the batch
are written, and none of the batch. Source: SEMANTICS X2-X4.

Per partition, for a batch that reads ``[from, to)`` and a ledger at position ``p``:

==================  ==============  ============================================================================
``p`` is            the partition   because
==================  ==============  ============================================================================
``from``            is next         all records before it are written, none of the range
``to``              is done         exactly this range was written, or others reached the same end
between the two     overlaps        part of the range is written
after ``to``        is passed       others have read further: this is a zombie, or an old replay
before ``from``     leaves a gap    ``[p, from)`` is not written: the ledger was set back, or is another one
missing             is unknown      the ledger was emptied, or never opened for the partition
anything            is taken over   the ledger has the ownership epoch of another owner: this is a zombie, or the
                                    ledger was restored (:mod:`streamgroups.ledgers.fences`)
``from`` or ``to``  has another     an operator with state: another run has changed the state at this position
                    state
of another topic    is foreign      the topic was recreated, or is one of another cluster: whatever the number
==================  ==============  ============================================================================

If all ranges are next, the batch commits. If all are done, it was committed before. In all other cases it is fenced,
and nothing is written: the output of a batch cannot be divided into done and missing parts.

A query that joins streams reads for several groups. Its batch has one verdict for each group, and :func:`combine`
derives one verdict from them by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from streamgroups.errors import FencedBatch
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.fences import epoch_partition, is_current
from streamgroups.ledgers.ledger_states import StateChange, state_partition
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed


class RangeStatus(Enum):
    """The status of a range in relation to the ledger. The value is the text of errors."""

    NEXT = "is next"
    DONE = "was already written"
    OVERLAPS = "was partly written"
    PASSED = "is before the ledger position"
    LEAVES_A_GAP = "leaves a gap"
    UNKNOWN = "has no ledger position"
    FOREIGN = "belongs to another topic or cluster"
    ANOTHER_STATE = "continues from another state than that of the ledger"
    TAKEN_OVER = "was taken over by another owner"


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """One range of a batch, compared with the ledger.

    Args:
        range: the range of the batch.
        position: the position of the ledger; ``None`` if it has none for the partition.
        identities: the topics of ledger and batch, if they differ.
        states: the fingerprint in the ledger, and the change by the batch; ``None`` without an operator with state.
        epochs: the ownership epochs of ledger and batch, if they differ.
    """

    range: OffsetRange
    position: int | None
    identities: tuple[TopicIdentity, TopicIdentity] | None = None
    states: tuple[int, StateChange] | None = None
    epochs: tuple[int, int] | None = None

    @property
    def status(self) -> RangeStatus:
        """The status of the range in relation to the position.

        >>> r = OffsetRange(TopicPartition("flights", 0), 10, 20)
        >>> [ComparedRange(r, p).status.name for p in (10, 20, 15, 25, 5, None)]
        ['NEXT', 'DONE', 'OVERLAPS', 'PASSED', 'LEAVES_A_GAP', 'UNKNOWN']
        """
        position, begin, end = self.position, self.range.next_offset, self.range.end_offset
        if self.identities is not None:
            return RangeStatus.FOREIGN
        if position is None:
            return RangeStatus.UNKNOWN
        if self.epochs is not None:
            return RangeStatus.TAKEN_OVER
        if self.states is not None and position in (begin, end):
            return self._status_by_state()
        if position == begin:
            return RangeStatus.NEXT
        if position == end:
            return RangeStatus.DONE
        if position < begin:
            return RangeStatus.LEAVES_A_GAP
        return RangeStatus.OVERLAPS if position < end else RangeStatus.PASSED

    def _status_by_state(self) -> RangeStatus:
        assert self.states is not None
        stored, change = self.states
        if self.position == self.range.next_offset and stored == change.before:
            return RangeStatus.NEXT
        if self.position == self.range.end_offset and (
            stored == change.after or (change.after is None and len(self.range))
        ):
            return RangeStatus.DONE
        return RangeStatus.ANOTHER_STATE

    def __str__(self) -> str:
        if self.identities is not None:
            of_ledger, of_batch = self.identities
            return f"{self.range} {self.status.value} (ledger: {of_ledger}; batch: {of_batch})"
        if self.status is RangeStatus.TAKEN_OVER and self.epochs is not None:
            of_ledger_epoch, of_batch_epoch = self.epochs
            return f"{self.range} {self.status.value} (ownership epoch of the ledger: {of_ledger_epoch}; of the batch: {of_batch_epoch})"
        where = (
            "the ledger does not contain the partition"
            if self.position is None
            else f"ledger position: {self.position}"
        )
        return f"{self.range} {self.status.value} ({where})"


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the output and advance the ledger in one transaction.

    Args:
        next_offsets: the positions of the ledger afterwards.
    """

    next_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The batch was committed before, and the response was lost: write nothing."""


@dataclass(frozen=True, slots=True)
class NothingRead:
    """The batch reads no offset, so its replay cannot be detected by positions. It must not have output."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Write nothing and fail.

    Args:
        compared: every range of the batch, including those that are next.
    """

    compared: tuple[ComparedRange, ...]

    def error(self, group_id: str) -> FencedBatch:
        """The error for the user.

        >>> found = ComparedRange(OffsetRange(TopicPartition("flights", 0), 10, 20), 25)
        >>> print(Fenced((found,)).error("billing").what)
        A batch of group 'billing' was rejected, and none of it was written: flights-0[10,20) is before the ledger position (ledger position: 25).
        """
        # Ranges that are next are no reason for the error.
        details = listed((f for f in self.compared if f.status is not RangeStatus.NEXT), separator="; ")
        return FencedBatch(
            f"A batch of group '{group_id}' was rejected, and none of it was written: {details}.", remedy=self._remedy()
        )

    def _remedy(self) -> str:
        statuses = {f.status for f in self.compared}
        if RangeStatus.UNKNOWN in statuses:
            return "If the ledger was emptied by mistake, restore it. Then restart the query, which copies the group's committed offsets to the ledger."
        if RangeStatus.LEAVES_A_GAP in statuses:
            return "Check that this is the ledger of the query and not an old copy. Then restart the query, which continues at the ledger position."
        return "Restart the query: it continues at the ledger position. A run that was replaced needs no action."


@dataclass(frozen=True, slots=True)
class CommitGroups:
    """Write the output and advance the positions of every group in one transaction.

    Args:
        next_offsets: the positions of the ledger of each group afterwards.
    """

    next_offsets: Mapping[str, Mapping[TopicPartition, int]]


Verdict: TypeAlias = Commit | AlreadyDone | NothingRead | Fenced


def foreign_positions(
    stored: Mapping[TopicPartition, TopicIdentity], batch: Mapping[TopicPartition, TopicIdentity]
) -> dict[TopicPartition, tuple[TopicIdentity, TopicIdentity]]:
    """The partitions whose position in a ledger belongs to another topic or cluster than the batch (SEMANTICS S11).

    >>> p0 = TopicPartition("flights", 0)
    >>> list(foreign_positions({p0: TopicIdentity("c", "t1")}, {p0: TopicIdentity("c", "t1")}))
    []
    """
    return {tp: (stored[tp], it) for tp, it in batch.items() if tp in stored and stored[tp].differs_from(it)}


def judge(
    ranges: Iterable[OffsetRange],
    positions: Mapping[TopicPartition, int],
    foreign: Mapping[TopicPartition, tuple[TopicIdentity, TopicIdentity]] = MappingProxyType({}),
    states: Mapping[TopicPartition, StateChange] = MappingProxyType({}),
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Verdict:
    """The verdict of the ledger on a batch.

    Args:
        ranges: the ranges of the batch, at most one of each partition. Empty ranges are ignored without a state.
        positions: the positions of the ledger, read in the transaction that will write the batch.
        foreign: the partitions whose ledger position is of another topic than the batch, and both topics:
            :func:`foreign_positions`.
        states: how the batch changes the states of its partitions, if it has an operator with state.
        epochs: the ownership epochs of the partitions when the batch was planned. ``positions`` contains those of the ledger.

    Raises:
        ValueError: if two ranges are of one partition.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> batch = [OffsetRange(p0, 10, 20), OffsetRange(p1, 5, 6)]
    >>> judge(batch, {p0: 10, p1: 5})
    Commit(next_offsets={TopicPartition(topic='flights', partition=0): 20, TopicPartition(topic='flights', partition=1): 6})
    >>> judge(batch, {p0: 20, p1: 6})
    AlreadyDone()
    >>> [str(f) for f in judge(batch, {p0: 20, p1: 5}).compared]
    ['flights-0[10,20) was already written (ledger position: 20)', 'flights-1[5,6) is next (ledger position: 5)']
    """
    read = sorted(r for r in ranges if len(r) or r.topic_partition in states)
    partitions = [r.topic_partition for r in read]
    if len(set(partitions)) < len(partitions):
        raise ValueError(f"a batch reads one range of each partition, not {listed(read)}")
    compared = tuple(_compared(r, positions, foreign, states, epochs) for r in read)
    statuses = {f.status for f in compared}
    if not statuses:
        return NothingRead()
    if statuses == {RangeStatus.NEXT}:
        marks = {state_partition(tp): it.after for tp, it in states.items() if it.after is not None}
        return Commit({r.topic_partition: r.end_offset for r in read} | marks)
    if statuses == {RangeStatus.DONE}:
        return AlreadyDone()
    return Fenced(compared)


def _compared(
    r: OffsetRange,
    positions: Mapping[TopicPartition, int],
    foreign: Mapping[TopicPartition, tuple[TopicIdentity, TopicIdentity]],
    states: Mapping[TopicPartition, StateChange],
    epochs: Mapping[TopicPartition, int],
) -> ComparedRange:
    tp = r.topic_partition
    differ = tp in epochs and not is_current(tp, epochs[tp], positions)
    change = states.get(tp)
    compared = None if change is None else (positions.get(state_partition(tp), 0), change)
    fences = (positions.get(epoch_partition(tp), 0), epochs[tp]) if differ else None
    return ComparedRange(r, positions.get(tp), foreign.get(tp), compared, fences)


def combine(verdicts: Mapping[str, Verdict]) -> CommitGroups | AlreadyDone | NothingRead:
    """The verdict on a batch that reads for several groups.

    ======================================  ==============================================================
    the groups that the batch reads for     the batch
    ======================================  ==============================================================
    all commit                              commits, in one transaction
    all are done                            is done
    some commit, some are done              is fenced: a tool has reset one of the groups, or its ledger
    any is fenced                           is fenced
    ======================================  ==============================================================

    A group without ranges in the batch does not count.

    Args:
        verdicts: the verdict of :func:`judge` for each group.

    Raises:
        FencedBatch: as in the table. Nothing is written.

    >>> done, commit = AlreadyDone(), Commit({TopicPartition("fares", 0): 6})
    >>> combine({"fares": commit, "flights": NothingRead()}).next_offsets
    {'fares': {TopicPartition(topic='fares', partition=0): 6}}
    >>> combine({"fares": commit, "flights": done})
    Traceback (most recent call last):
    streamgroups.errors.FencedBatch: A batch of groups fares and flights was rejected, and none of it was written: the ledger contains its output for \
group flights, but not for fares. Restart the query: it continues at the ledger position.
    """
    for group_id, verdict in sorted(verdicts.items()):
        if isinstance(verdict, Fenced):
            raise verdict.error(group_id)
    commits = {g: v.next_offsets for g, v in sorted(verdicts.items()) if isinstance(v, Commit)}
    done = sorted(g for g, v in verdicts.items() if isinstance(v, AlreadyDone))
    if commits and done:
        raise FencedBatch(
            f"A batch of groups {' and '.join(sorted([*commits, *done]))} was rejected, and none of it was written: "
            f"the ledger contains its output for group {', '.join(done)}, but not for {', '.join(commits)}.",
            remedy="Restart the query: it continues at the ledger position.",
        )
    if commits:
        return CommitGroups(commits)
    return AlreadyDone() if done else NothingRead()
