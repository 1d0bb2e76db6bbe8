"""Checks of positions, reads and commits (I3, I4, I6, I7, I8). Called by :mod:`~integration_tests.history.checker`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from integration_tests.history.anomalies import Anomaly, Name, merged
from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    FaultHealed,
    FaultInjected,
    HighWater,
    Moved,
    Position,
    Read,
    Revoked,
)
from integration_tests.history.view import History
from streamgroups.partitions import OffsetRange, TopicPartition


def check_ahead_of_output(history: History) -> Iterator[Anomaly]:
    """I3: the output that an observer reads after the committed offsets has all records before them."""
    highs = [it for it in history.events if isinstance(it, HighWater)]
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    i = 0
    for position in history.of(Position):
        while i < len(highs) and highs[i].time_ms < position.time_ms:
            i += 1
        if i == len(highs):
            break
        for tp, n in position.offsets.items():
            missing = history.acknowledged_in(tp, highs[i].offsets.get(tp, 0), n)
            # Dead letters and gaps are not in the output.
            letters = {*history.sink("letters", tp)} if missing else set()
            found[tp].update(it for it in missing if it not in letters and not history.is_excused(tp, it))
    for tp, offsets in sorted(found.items()):
        yield from merged(Name.AHEAD_OF_OUTPUT, "I3", tp, offsets)


def check_monotone(history: History) -> Iterator[Anomaly]:
    """I4: an observed position is before an earlier one only after a reset to it or to an offset before it."""
    last: dict[TopicPartition, int] = {}
    resets = {tp: list(it) for tp, it in history.resets.items()}
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for position in history.of(Position):
        for tp, n in position.offsets.items():
            if n < last.get(tp, 0):
                requested = [it for it in resets.get(tp, ()) if it.requested_ms <= position.time_ms]
                reason = next((it for it in requested if it.next_offset <= n), None)
                if reason is None:
                    found[tp].add(n)
                else:
                    # The requests before it were replaced, or applied between two observations.
                    resets[tp] = resets[tp][resets[tp].index(reason) + 1 :]
            last[tp] = n
    for tp, offsets in sorted(found.items()):
        yield from merged(Name.NON_MONOTONIC_POSITION, "I4", tp, offsets)


def check_commits(history: History) -> Iterator[Anomaly]:
    """I6: a commit that was accepted has begun while its process was the owner of the partitions.

    An owner that is alive releases a partition before the next owner receives it. A killed or frozen one does not, so only its
    commits after the next assignment are violations.
    """
    owners: dict[TopicPartition, str] = {}
    begun: dict[str, tuple[Commit, list[TopicPartition]]] = {}
    found: defaultdict[TopicPartition, list[Commit]] = defaultdict(list)
    for it in history.events:
        if isinstance(it, Assigned) and it.group == history.workload.group:
            owners.update(dict.fromkeys(it.offsets, it.process))
        elif isinstance(it, Revoked) and it.group == history.workload.group:
            for tp in it.offsets:
                if owners.get(tp) == it.process:
                    del owners[tp]
        elif isinstance(it, Commit) and it.group == history.workload.group:
            if it.phase == "begun":
                begun[it.process] = it, [tp for tp in it.offsets if owners.get(tp, it.process) != it.process]
            elif it.phase == "accepted" and it.process in begun:
                first, foreign = begun.pop(it.process)
                for tp in foreign:
                    found[tp].append(first)
    for tp, commits in sorted(found.items()):
        first = commits[0]
        detail = f"{tp} by {first.process}, up to offset {first.offsets[tp]}"
        yield Anomaly(Name.SPLIT_OWNERSHIP, "I6", len(commits), detail)


def check_reads(history: History) -> Iterator[Anomaly]:
    """I7: each record before the position was read, does not exist any more, or was skipped by a reset.

    A record that is visible more often than batches have read it, or than commits have contained it, is the output of an attempt
    that was not committed.
    """
    ranges: defaultdict[TopicPartition, list[OffsetRange]] = defaultdict(list)
    for it in history.of(Read):
        for r in it.ranges:
            ranges[r.topic_partition].append(r)
    committed = _committed(history)
    for tp in history.partitions:
        n_reads = _n_reads(ranges[tp])
        n_commits = n_reads if committed.get(tp) is None else _n_reads(committed[tp] or [])
        below = history.acknowledged_in(tp, 0, history.final.get(tp, 0))
        yield from merged(
            Name.SKIPPED_READ, "I7", tp, (n for n in below if not n_reads.get(n) and not history.is_excused(tp, n))
        )
        copies: defaultdict[int, int] = defaultdict(int)
        for n in history.sink("output", tp):
            copies[n] += 1
        yield from merged(
            Name.ABORTED_READ,
            "I2",
            tp,
            (n for n, count in copies.items() if count > max(1, min(n_reads.get(n, 0), n_commits.get(n, 0)))),
        )


def _committed(history: History) -> dict[TopicPartition, list[OffsetRange] | None]:
    """The ranges of all commits that may have taken effect; ``None`` for a partition whose commits do not name a batch.

    A commit has the positions after its batch. The last batch of its process that ends there has its beginning.
    """
    read: defaultdict[tuple[str, TopicPartition], dict[int, OffsetRange]] = defaultdict(dict)
    found: dict[TopicPartition, list[OffsetRange] | None] = {}
    for it in history.events:
        if isinstance(it, Read) and it.group == history.workload.group:
            for r in it.ranges:
                read[it.process, r.topic_partition][r.end_offset] = r
        elif isinstance(it, Commit) and it.group == history.workload.group:
            for tp, end in it.offsets.items():
                batch, ranges = read[it.process, tp].get(end), found.setdefault(tp, [])
                if batch is None or ranges is None:
                    found[tp] = None
                elif it.phase == "begun":
                    ranges.append(batch)
                elif it.phase in ("rejected", "unchanged") and batch in ranges:
                    ranges.remove(batch)
    return found


def _n_reads(ranges: list[OffsetRange]) -> dict[int, int]:
    """How many batches have read each offset."""
    found: defaultdict[int, int] = defaultdict(int)
    for r in ranges:
        for n in range(r.next_offset, r.end_offset):
            found[n] += 1
    return found


def check_lag(history: History) -> Iterator[Anomaly]:
    """I8: the group has read all records within a time after the last fault and the last record."""
    ends = _ends(history)
    if _is_all_read(history):
        return
    for tp, n in sorted(ends.items()):
        unseen = history.acknowledged_in(tp, history.final.get(tp, 0), n)
        yield from merged(Name.UNSEEN, "I8", tp, unseen)
    if ends and all(history.final.get(tp, 0) >= n for tp, n in ends.items()):
        yield Anomaly(Name.UNSEEN, "I8", 1, f"not within {history.workload.max_lag_ms} ms")


def lag_is_undecided(history: History) -> str:
    """Why a history does not decide I8: it ends before the time limit, and the group has not read all records."""
    last_ms = max((it.time_ms for it in history.of(Position)), default=0)
    if _is_all_read(history) or last_ms > _settled_ms(history) + history.workload.max_lag_ms:
        return ""
    return "the history ends before the time limit"


def _is_all_read(history: History) -> bool:
    """Whether an observer has seen all positions at their ends, within the time limit."""
    ends, settled_ms = _ends(history), _settled_ms(history)
    return any(
        settled_ms <= position.time_ms <= settled_ms + history.workload.max_lag_ms
        and all(position.offsets.get(tp, 0) >= n for tp, n in ends.items())
        for position in history.of(Position)
    )


def _ends(history: History) -> dict[TopicPartition, int]:
    return {tp: offsets[-1] + 1 for tp, offsets in history.acknowledged.items()}


def _settled_ms(history: History) -> int:
    """The time of the last fault, record or reset."""
    settling = (FaultInjected, FaultHealed, Acknowledged, Moved)
    return max((it.time_ms for it in history.events if isinstance(it, settling)), default=0)
