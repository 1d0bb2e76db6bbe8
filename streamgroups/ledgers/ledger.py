"""May this batch be written? The compare-and-swap of a ledger, as a function.

Called by ``streamgroups.ledgers.commit`` inside the sink's own transaction. A ledger is the position of every source partition, kept where
the output is kept and moved in the transaction that writes it. So the question is never "which batch is this?" (a new checkpoint
counts from 0 again) but "is everything before it written, and nothing of it?". Source: SEMANTICS X2-X4.

Per partition, for a batch that reads ``[from, to)`` and a ledger that stands at ``p``:

==================  ==============  ============================================================================
``p`` is            the partition   because
==================  ==============  ============================================================================
``from``            is next         all before it is written, nothing of it is
``to``              is done         exactly this was written, or others reached the same end
between the two     overlaps        part of it is written
after ``to``        is passed       others have read on: this is a zombie, or an old replay
before ``from``     leaves a gap    ``[p, from)`` is not written: the ledger was moved back, or is another one
not there           is unknown      the ledger was emptied, or never opened for it
of another topic    is foreign      the topic was recreated, or it is another cluster's: whatever the number
==================  ==============  ============================================================================

All are next: commit. All are done: the batch was committed before. Anything else: fenced, and nothing is written; what is done
and what is not cannot be told apart in the output of a whole batch.

A query that joins streams reads for several groups. Its batch has one verdict for each group, and :func:`combine` makes one of them by
the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from streamgroups.errors import FencedBatch
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition


class RangeStatus(Enum):
    """How a range stands to the ledger; the value is what an error says of it."""

    NEXT = "is next"
    DONE = "was already written"
    OVERLAPS = "was partly written"
    PASSED = "is before the ledger position"
    LEAVES_A_GAP = "leaves a gap"
    UNKNOWN = "has no ledger position"
    FOREIGN = "belongs to another topic or cluster"


@dataclass(frozen=True, slots=True)
class Finding:
    """One range of a batch beside its ledger.

    Args:
        range: what the batch reads.
        position: where the ledger stands; ``None`` if it does not know the partition.
        identities: the topics that ledger and batch are of, if they differ.
    """

    range: OffsetRange
    position: int | None
    identities: tuple[TopicIdentity, TopicIdentity] | None = None

    @property
    def status(self) -> RangeStatus:
        """How the two stand to each other.

        >>> r = OffsetRange(TopicPartition("flights", 0), 10, 20)
        >>> [Finding(r, p).status.name for p in (10, 20, 15, 25, 5, None)]
        ['NEXT', 'DONE', 'OVERLAPS', 'PASSED', 'LEAVES_A_GAP', 'UNKNOWN']
        """
        position, begin, end = self.position, self.range.next_offset, self.range.end_offset
        if self.identities is not None:
            return RangeStatus.FOREIGN
        if position is None:
            return RangeStatus.UNKNOWN
        if position == begin:
            return RangeStatus.NEXT
        if position == end:
            return RangeStatus.DONE
        if position < begin:
            return RangeStatus.LEAVES_A_GAP
        return RangeStatus.OVERLAPS if position < end else RangeStatus.PASSED

    def __str__(self) -> str:
        if self.identities is not None:
            of_ledger, of_batch = self.identities
            return f"{self.range} {self.status.value} (ledger: {of_ledger}; batch: {of_batch})"
        where = (
            "the ledger does not contain the partition"
            if self.position is None
            else f"ledger position: {self.position}"
        )
        return f"{self.range} {self.status.value} ({where})"


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the output and move the ledger, both or neither.

    Args:
        next_offsets: where the ledger stands afterwards.
    """

    next_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The batch was committed before, and its answer was lost: write nothing."""


@dataclass(frozen=True, slots=True)
class NothingRead:
    """The batch reads no offset, so that nothing tells it from its replay: it must have no output either."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Write nothing and fail.

    Args:
        findings: every range of the batch, those that are next included.
    """

    findings: tuple[Finding, ...]

    def error(self, group_id: str) -> FencedBatch:
        """The refusal in words.

        >>> found = Finding(OffsetRange(TopicPartition("flights", 0), 10, 20), 25)
        >>> print(Fenced((found,)).error("billing").what)
        A batch of group 'billing' was rejected, and none of it was written: flights-0[10,20) is before the ledger position (ledger position: 25).
        """
        # If all that is wrong is that some are done, the others say no more than that.
        told = "; ".join(str(f) for f in self.findings if f.status is not RangeStatus.NEXT)
        return FencedBatch(
            f"A batch of group '{group_id}' was rejected, and none of it was written: {told}.", remedy=self._remedy()
        )

    def _remedy(self) -> str:
        statuses = {f.status for f in self.findings}
        if RangeStatus.UNKNOWN in statuses:
            return "If the ledger was emptied by mistake, restore it. Then restart the query, which copies the group's committed offsets to the ledger."
        if RangeStatus.LEAVES_A_GAP in statuses:
            return "Check that this is the ledger of the query and not an old copy. Then restart the query, which continues at the ledger position."
        return "Restart the query: it continues at the ledger position. A run that was replaced needs no action."


@dataclass(frozen=True, slots=True)
class CommitGroups:
    """Write the output and move the positions of every group, all or nothing.

    Args:
        next_offsets: where the ledger of each group stands afterwards.
    """

    next_offsets: Mapping[str, Mapping[TopicPartition, int]]


Verdict: TypeAlias = Commit | AlreadyDone | NothingRead | Fenced


def foreign_positions(
    stored: Mapping[TopicPartition, TopicIdentity], batch: Mapping[TopicPartition, TopicIdentity]
) -> dict[TopicPartition, tuple[TopicIdentity, TopicIdentity]]:
    """The partitions for which a ledger is of another topic or cluster than a batch (SEMANTICS S11).

    >>> p0 = TopicPartition("flights", 0)
    >>> list(foreign_positions({p0: TopicIdentity("c", "t1")}, {p0: TopicIdentity("c", "t1")}))
    []
    """
    return {tp: (stored[tp], it) for tp, it in batch.items() if tp in stored and stored[tp].differs_from(it)}


def judge(
    ranges: Iterable[OffsetRange],
    positions: Mapping[TopicPartition, int],
    foreign: Mapping[TopicPartition, tuple[TopicIdentity, TopicIdentity]] = MappingProxyType({}),
) -> Verdict:
    """What the ledger says to a batch.

    Args:
        ranges: what the batch reads, at most one range of each partition. Empty ones count for nothing.
        positions: where the ledger stands, read in the transaction that will write the batch.
        foreign: the partitions for which the ledger is of another topic than the batch, and both topics: :func:`foreign_positions`.

    Raises:
        ValueError: if two ranges are of one partition.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> batch = [OffsetRange(p0, 10, 20), OffsetRange(p1, 5, 6)]
    >>> judge(batch, {p0: 10, p1: 5})
    Commit(next_offsets={TopicPartition(topic='flights', partition=0): 20, TopicPartition(topic='flights', partition=1): 6})
    >>> judge(batch, {p0: 20, p1: 6})
    AlreadyDone()
    >>> [str(f) for f in judge(batch, {p0: 20, p1: 5}).findings]
    ['flights-0[10,20) was already written (ledger position: 20)', 'flights-1[5,6) is next (ledger position: 5)']
    """
    read = sorted(r for r in ranges if len(r))
    partitions = [r.topic_partition for r in read]
    if len(set(partitions)) < len(partitions):
        raise ValueError(f"a batch reads one range of each partition, not {', '.join(map(str, read))}")
    findings = tuple(Finding(r, positions.get(r.topic_partition), foreign.get(r.topic_partition)) for r in read)
    statuses = {f.status for f in findings}
    if not statuses:
        return NothingRead()
    if statuses == {RangeStatus.NEXT}:
        return Commit({r.topic_partition: r.end_offset for r in read})
    if statuses == {RangeStatus.DONE}:
        return AlreadyDone()
    return Fenced(findings)


def combine(verdicts: Mapping[str, Verdict]) -> CommitGroups | AlreadyDone | NothingRead:
    """The verdict on a batch that reads for several groups.

    ======================================  ==============================================================
    the groups that the batch reads for     the batch
    ======================================  ==============================================================
    all commit                              commits, in one transaction
    all are done                            is done
    some commit, some are done              is fenced: a tool has moved one of the groups, or its ledger
    any is fenced                           is fenced
    ======================================  ==============================================================

    A group of which the batch reads nothing has no say.

    Args:
        verdicts: of each group, from :func:`judge`.

    Raises:
        FencedBatch: as the table says. Nothing is written.

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
