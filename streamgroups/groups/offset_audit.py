"""Audits the commits of a group: whether each offset is in exactly one committed batch, dead letter or gap.

Called by :mod:`streamgroups_admin.groups.auditing` for ``streamgroups groups audit`` and for the exporter. Pure: it reads facts about
one partition, and returns a verdict for each range of offsets. The time that it takes grows with the commits, not with the records.
Source: SEMANTICS O6; F2, G12, S7, X2.

A commit names an offset, and where its owner began to read (:class:`~streamgroups.groups.commit_metadata.CommitMark`). From both
follows the range that the owner has read and committed. A position can also change without such a range:

==============================  =================================================================================
the position changes            the offsets between both positions
==============================  =================================================================================
forward, by a reset             are skipped: the mark of the position names the reset
back, by a reset                may be committed again: they are repeated
forward, by a gap               expired before the group read them
forward, without a reason       are missing
back, without a reason          are double, if they are committed again
by a client without marks       have no reason: such a client is a tool that resets a group, or another consumer
==============================  =================================================================================

An unknown range is not a correct one: nothing shows that it was read once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from streamgroups.groups.committed_ranges import committed_ranges
from streamgroups.groups.offset_verdicts import (
    FINDINGS,
    AuditedRange,
    Facts,
    LedgerFact,
    Letter,
    Verdict,
    segments,
    with_ledger,
    with_letters,
)
from streamgroups.partitions import TopicPartition

__all__ = [
    "FINDINGS",
    "AuditedRange",
    "Evidence",
    "Facts",
    "GroupAudit",
    "LedgerFact",
    "Letter",
    "PartitionAudit",
    "Verdict",
    "audit",
]


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """The audit of one partition.

    Args:
        topic_partition: the partition.
        ranges: all offsets of the window, in order.
        position: the committed offset; ``None`` without one.
        evidence_from_ms: the time of the first commit that is still stored; ``None`` without one.
        is_whole: whether the evidence begins before the window, or at the first offset.
        letters: how many dead letters are in the window.
        forms: the forms of the programs that have committed. Empty texts for unknown ones.
    """

    topic_partition: TopicPartition
    ranges: tuple[AuditedRange, ...]
    position: int | None
    evidence_from_ms: int | None
    is_whole: bool
    letters: int = 0
    forms: frozenset[str] = frozenset()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """The number of offsets of each verdict."""
        counted = Counter[Verdict]()
        for it in self.ranges:
            counted[it.verdict] += len(it.offsets)
        return {verdict: counted[verdict] for verdict in Verdict}


class Evidence(Enum):
    """The evidence of the commits of a group about its output."""

    #: The Kafka sink commits the offsets in the transaction of the output.
    TRANSACTION = "transaction"
    #: The sink has a ledger, and its positions were compared.
    LEDGER = "ledger"
    #: The sink has a ledger, and it was not compared.
    LEDGER_NOT_COMPARED = "ledger not compared"
    #: The output does not change together with the positions: a batch can have written it several times.
    COMMITS_ONLY = "commits only"


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """The audit of a group.

    Args:
        group_id: the group.
        since_ms: the beginning of the window, in milliseconds since the epoch; 0 for all stored commits.
        partitions: its partitions, in order.
        has_ledger: whether the ledger of a sink was compared.
    """

    group_id: str
    since_ms: int
    partitions: tuple[PartitionAudit, ...]
    has_ledger: bool = False

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """The number of offsets of each verdict."""
        return {verdict: sum(it.counts[verdict] for it in self.partitions) for verdict in Verdict}

    @property
    def has_findings(self) -> bool:
        """Whether an offset is missing or double."""
        return any(self.counts[verdict] for verdict in FINDINGS)

    @property
    def is_complete(self) -> bool:
        """Whether each offset of the window has a verdict that is not unknown."""
        covers = not self.since_ms or all(it.is_whole for it in self.partitions)
        return covers and not self.counts[Verdict.UNKNOWN]

    @property
    def evidence(self) -> Evidence:
        """The evidence about the output: the weakest evidence of all programs of the group.

        >>> p0 = TopicPartition("flights", 0)
        >>> def of(*forms: str) -> GroupAudit:
        ...     return GroupAudit("board", 0, (PartitionAudit(p0, (), 0, 0, True, forms=frozenset(forms)),))
        >>> [of(*forms).evidence.value for forms in (["none -> kafka:a"], ["none -> delta:/a", "none -> kafka:a"], ["none"])]
        ['transaction', 'ledger not compared', 'commits only']
        """
        forms = {form for it in self.partitions for form in it.forms}
        outputs = {form.partition(" -> ")[2] for form in forms}
        if not outputs or "" in outputs:
            return Evidence.COMMITS_ONLY
        if all(it.startswith("kafka:") for it in outputs):
            return Evidence.TRANSACTION
        return Evidence.LEDGER if self.has_ledger else Evidence.LEDGER_NOT_COMPARED


def audit(facts: Facts, since_ms: int = 0) -> PartitionAudit:
    """Audits one partition.

    Args:
        facts: the facts.
        since_ms: the beginning of the window, in milliseconds since the epoch. Verdicts that follow from earlier commits are left out.

    >>> from streamgroups.groups.commit_metadata import CommitMark
    >>> from streamgroups.groups.offset_records import OffsetRecord
    >>> p0 = TopicPartition("flights", 0)
    >>> def commit(time_ms: int, end: int, begin: int) -> OffsetRecord:
    ...     return OffsetRecord(p0, end, CommitMark(False, from_offset=begin, epoch=begin).encode(), time_ms)
    >>> found = audit(Facts(p0, [commit(1, 5, 0), commit(2, 9, 0), commit(3, 20, 12), commit(4, 30, 18)]))
    >>> [f"{it.offsets.next_offset}-{it.offsets.end_offset} {it.verdict.value}" for it in found.ranges]
    ['0-9 once', '9-12 missing', '12-18 once', '18-20 double', '20-30 once']
    """
    committed = committed_ranges(facts.commits, since_ms, has_other_consumers=facts.has_other_consumers)
    by_commits = (it for it in segments(committed, facts) if it.found.time_ms >= since_ms)
    ranges = tuple(_merged(with_ledger(with_letters(by_commits, facts), committed, facts)))
    letters = _count_within(ranges, facts.letters)
    first_ms = facts.commits[0].time_ms if facts.commits else None
    is_whole = first_ms is not None and (first_ms < since_ms or committed.begin == 0)
    return PartitionAudit(
        facts.topic_partition, ranges, committed.position, first_ms, is_whole, letters, frozenset(committed.forms)
    )


def _count_within(ranges: Sequence[AuditedRange], letters: Iterable[Letter]) -> int:
    """The number of letters whose records are in the ranges."""
    begins = [it.offsets.next_offset for it in ranges]
    found = 0
    for letter in letters:
        i = bisect_right(begins, letter.offset) - 1
        found += i >= 0 and letter.offset < ranges[i].offsets.end_offset
    return found


def _merged(ranges: Iterable[AuditedRange]) -> Iterator[AuditedRange]:
    """Joins neighbours with the same verdict and reason. The time is the later one."""
    last: AuditedRange | None = None
    for it in ranges:
        if last is not None and _are_one(last, it):
            offsets = replace(last.offsets, end_offset=it.offsets.end_offset)
            last = replace(last, offsets=offsets, time_ms=max(last.time_ms, it.time_ms))
            continue
        if last is not None:
            yield last
        last = it
    if last is not None:
        yield last


def _are_one(a: AuditedRange, b: AuditedRange) -> bool:
    return a.offsets.end_offset == b.offsets.next_offset and (a.verdict, a.detail) == (b.verdict, b.detail)
