"""The verdicts of an audit: on ranges of offsets, by commits, gaps, dead letters and the ledger of a sink.

Called by :mod:`streamgroups.groups.offset_audit`, which describes the rules. Source: SEMANTICS O6, S7, X2, X9.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.committed_ranges import CommittedRanges, Entry, Kind
from streamgroups.groups.gaps import Cause, Gap
from streamgroups.groups.offset_records import OffsetRecord
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.times import utc


class Verdict(Enum):
    """The verdict on a range of offsets. Each offset of an audit has exactly one."""

    #: It is in one committed batch.
    ONCE = "once"
    #: It is in several committed batches, with a reset between them.
    REPEATED = "repeated"
    #: A reset has skipped it.
    SKIPPED = "skipped"
    #: It expired before the group read it, and the gap is recorded.
    GAP = "gap"
    #: The evidence does not show whether it is in one batch.
    UNKNOWN = "unknown"
    #: The group has passed it, and it is in no committed batch, dead letter or gap.
    MISSING = "missing"
    #: It is in several committed batches, or several times in a queue of dead letters, without a reset.
    DOUBLE = "double"


#: The verdicts that an operator must examine.
FINDINGS = frozenset({Verdict.MISSING, Verdict.DOUBLE})


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter of the group.

    Args:
        offset: the offset of its source record.
        id: its id.
    """

    offset: int
    id: str


@dataclass(frozen=True, slots=True)
class LedgerFact:
    """The position of a partition in the ledger of a sink.

    Args:
        next_offset: the position; ``None`` if the ledger has none.
        reset: the last reset that it contains.
    """

    next_offset: int | None
    reset: AppliedReset = NO_RESET


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one partition.

    Args:
        topic_partition: the partition.
        commits: the records of its committed offset, in the order of the log. No record is missing after the first one.
        gaps: its recorded gaps.
        gaps_not_kept: how many earlier gaps are counted only.
        letters: the dead letters of the group. Those of records before the evidence are ignored.
        ledger: the position of the ledger, read after ``commits``; ``None`` without one.
        has_other_consumers: whether clients without marks can be consumers of the group. Their ranges are unknown then.
        has_unreadable_gaps: whether recorded gaps cannot be read. A range without a reason is unknown then.
    """

    topic_partition: TopicPartition
    commits: Sequence[OffsetRecord]
    gaps: Sequence[Gap] = ()
    gaps_not_kept: int = 0
    letters: Sequence[Letter] = ()
    ledger: LedgerFact | None = None
    has_other_consumers: bool = False
    has_unreadable_gaps: bool = False


@dataclass(frozen=True, slots=True)
class AuditedRange:
    """Neighbouring offsets with the same verdict.

    Args:
        offsets: the range.
        verdict: the verdict.
        time_ms: the time of the commit from which the verdict follows.
        detail: the reason, as a text for operators. Empty for :attr:`Verdict.ONCE`.
    """

    offsets: OffsetRange
    verdict: Verdict
    time_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A range, and the number of batches that contain it."""

    found: AuditedRange
    batches: int


# ---- commits ---------------------------------------------------------------------------------------------------------


def segments(committed: CommittedRanges, facts: Facts) -> Iterator[Segment]:
    """A sweep: between two neighbouring edges all offsets have the same entries."""
    entries, gaps = committed.entries, _expired(facts, committed)
    last = max((it.end for it in entries if it.kind is not Kind.PERMIT), default=0)
    position = last if committed.position is None else committed.position
    bounds = [position, *(it.begin for it in entries), *(it.end for it in entries), *(n for gap in gaps for n in gap)]
    edges = sorted({min(n, last) for n in bounds})
    waiting = deque(sorted(range(len(entries)), key=lambda i: entries[i].begin))
    active: list[int] = []
    for begin, end in pairwise(edges):
        while waiting and entries[waiting[0]].begin <= begin:
            insort(active, waiting.popleft())
        active = [i for i in active if entries[i].end > begin]
        here = [entries[i] for i in active]
        batches = sum(it.kind in _READ for it in here)
        # The group reads these offsets yet: a reset went back, or a client without marks.
        if not batches and begin >= position:
            continue
        is_expired = any(a <= begin < b for a, b in gaps)
        found = _verdict(here, is_expired=is_expired, possible=_possible_reason(facts))
        if found is not None:
            verdict, time_ms, detail = found
            yield Segment(
                AuditedRange(OffsetRange(facts.topic_partition, begin, end), verdict, time_ms, detail), batches
            )


_READ = (Kind.COMMITTED, Kind.UNSURE)


def _expired(facts: Facts, committed: CommittedRanges) -> list[tuple[int, int]]:
    return [
        (gap.from_offset, gap.to_offset)
        for gap in facts.gaps
        if gap.cause is Cause.EXPIRED
        and gap.from_offset is not None
        and gap.from_offset < gap.to_offset
        and (None in (gap.before.topic_id, committed.topic_id) or gap.before.topic_id == committed.topic_id)
    ]


def _possible_reason(facts: Facts) -> str:
    """What can be the reason of a change without one; empty if there is nothing."""
    if facts.has_unreadable_gaps:
        return "a recorded gap that cannot be read can be the reason"
    return "an earlier gap that is counted, but not stored, can be the reason" if facts.gaps_not_kept else ""


def _verdict(entries: Sequence[Entry], *, is_expired: bool, possible: str) -> tuple[Verdict, int, str] | None:
    """The verdict on one segment, the time of the commit from which it follows, and the reason."""
    committed = [it for it in entries if it.kind in _READ]
    changes = [it for it in entries if it.kind in (Kind.SKIP, Kind.JUMP)]
    if not committed and not changes:
        return None
    time_ms = max(it.time_ms for it in committed or changes)
    if pair := _committed_twice(entries):
        times = " and at ".join(str(utc(it.time_ms)) for it in pair)
        return Verdict.DOUBLE, pair[1].time_ms, f"committed at {times}, without a reset between both"
    if is_expired:
        return Verdict.GAP, time_ms, "expired"
    if reason := _unsure(entries):
        return Verdict.UNKNOWN, time_ms, reason
    if committed:
        resets = [it.detail for it in entries if it.kind is Kind.PERMIT]
        return (Verdict.REPEATED, time_ms, resets[-1]) if len(committed) > 1 else (Verdict.ONCE, time_ms, "")
    change = changes[-1]
    if change.kind is Kind.SKIP:
        return Verdict.SKIPPED, change.time_ms, change.detail
    if possible:
        return Verdict.UNKNOWN, change.time_ms, possible
    return Verdict.MISSING, change.time_ms, change.detail


def _unsure(entries: Sequence[Entry]) -> str:
    """Why it is unknown whether a batch has read the offsets once; empty if it is known."""
    for of in _between_resets(entries):
        kinds = {it.kind for it in of}
        if Kind.UNSURE in kinds:
            return "committed by a client that does not name where it began to read"
        if {Kind.BEFORE, Kind.COMMITTED} <= kinds:
            return "read again without a reset, and commits before are not stored any more"
    return ""


def _between_resets(entries: Sequence[Entry]) -> list[list[Entry]]:
    found: list[list[Entry]] = [[]]
    for it in entries:
        if it.kind is Kind.PERMIT:
            found.append([])
        else:
            found[-1].append(it)
    return found


def _committed_twice(entries: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """The last two commits without a reset between them."""
    committed = ([it for it in of if it.kind is Kind.COMMITTED] for of in _between_resets(entries))
    pairs = [(of[-2], of[-1]) for of in committed if len(of) > 1]
    return pairs[-1] if pairs else None


# ---- dead letters and ledgers ----------------------------------------------------------------------------------------


def with_letters(segments: Iterable[Segment], facts: Facts) -> Iterator[AuditedRange]:
    """A record with a dead letter is not missing. A letter that exists more often than its batch is double."""
    copies: dict[int, Counter[str]] = {}
    for letter in facts.letters:
        copies.setdefault(letter.offset, Counter())[letter.id] += 1
    waiting = deque(sorted(copies))
    for segment in segments:
        it, tp = segment.found, facts.topic_partition
        begin, end = it.offsets.next_offset, it.offsets.end_offset
        while waiting and waiting[0] < begin:
            waiting.popleft()
        while waiting and waiting[0] < end:
            at = waiting.popleft()
            changed = _of_letter(it, max(copies[at].values()), max(segment.batches, 1))
            if changed is not None:
                if begin < at:
                    yield replace(it, offsets=OffsetRange(tp, begin, at))
                yield replace(changed, offsets=OffsetRange(tp, at, at + 1))
                begin = at + 1
        if begin < end:
            yield replace(it, offsets=OffsetRange(tp, begin, end))


def _of_letter(found: AuditedRange, copies: int, batches: int) -> AuditedRange | None:
    if copies > batches and found.verdict is not Verdict.UNKNOWN:
        return replace(found, verdict=Verdict.DOUBLE, detail=f"its dead letter exists {copies} times")
    if found.verdict is Verdict.MISSING:
        return replace(found, verdict=Verdict.ONCE, detail="")
    return None


def with_ledger(ranges: Iterable[AuditedRange], committed: CommittedRanges, facts: Facts) -> Iterator[AuditedRange]:
    """A sink writes its ledger before the group commits. So committed offsets at and after its position have no output."""
    ledger = facts.ledger
    # An owner applies the reset of a tool to the ledger when it continues there.
    if ledger is None or committed.is_set_by_tool or not ledger.reset.contains(committed.reset):
        yield from ranges
        return
    for it in ranges:
        offsets = it.offsets
        if it.verdict not in (Verdict.ONCE, Verdict.REPEATED):
            yield it
        elif ledger.next_offset is None:
            yield replace(it, verdict=Verdict.UNKNOWN, detail="the ledger has no position of the partition")
        else:
            cut = min(max(ledger.next_offset, offsets.next_offset), offsets.end_offset)
            if offsets.next_offset < cut:
                yield replace(it, offsets=replace(offsets, end_offset=cut))
            if cut < offsets.end_offset:
                detail = f"committed by the group, and not in the ledger, whose position is {ledger.next_offset}"
                yield replace(it, offsets=replace(offsets, next_offset=cut), verdict=Verdict.MISSING, detail=detail)
