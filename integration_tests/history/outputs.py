"""Checks of the outputs: lost writes, duplicates, aborted reads and order (I1, I2, I5). Called by
:mod:`~integration_tests.history.checker`.

Without a reset, the output of a partition is one run: each acknowledged record once, in the order of its offset. Each reset begins
another run at its target, so the order of the output shows which records a reset explains (:func:`walk`). Rows of windows and
outputs without an order are only counted. Then a reset explains one more copy of each record from its target to the end of the
partition at the time when it was applied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from integration_tests.history.anomalies import Anomaly, Name, merged
from integration_tests.history.events import ExpectedRow, UnknownWritten, WrittenRow
from integration_tests.history.view import History, PartitionReset
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class Walk:
    """The differences of an ordered output from its runs, as offsets.

    Args:
        lost: the records that a run leaves out.
        repeated: the records that are in a run twice.
        late: the records that a run has after later ones.
    """

    lost: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)


def walk(written: Sequence[int], expected: Sequence[int], targets: Sequence[int]) -> Walk:
    """Compares an output with its runs.

    Args:
        written: the offsets in the output, in the order of their commits.
        expected: the offsets of a run from the beginning, ascending.
        targets: the targets of the resets, in their order.

    >>> walk([0, 1, 2, 1, 2, 3], [0, 1, 2, 3], [1])
    Walk(lost=[], repeated=[], late=[])
    >>> walk([0, 2, 1, 1], [0, 1, 2, 3], [])
    Walk(lost=[], repeated=[1], late=[1])
    >>> walk([0, 1, 0, 1], [0, 1], [1, 0])
    Walk(lost=[], repeated=[], late=[])
    """
    found, left_out, remaining, place = Walk(), set[int](), list(targets), 0
    for offset in written:
        i = bisect_left(expected, offset)
        if i == len(expected) or expected[i] != offset:
            continue  # An aborted read.
        # The runs of earlier targets are empty: resets can follow each other without a batch between them.
        begun = next((n for n, target in enumerate(remaining) if bisect_left(expected, target) == i), None)
        if i != place and begun is not None:
            # The records that the earlier run has left out stay lost: the reset continues after them, or reads them again.
            found.lost.extend(sorted(left_out - {*expected[i:]}))
            left_out, place = set(), i
            del remaining[: begun + 1]
        if i >= place:
            left_out.update(expected[place:i])
            place = i + 1
        elif offset in left_out:
            left_out.remove(offset)
            found.late.append(offset)
        else:
            found.repeated.append(offset)
    found.lost.extend(sorted(left_out))
    return found


def check_outputs(history: History) -> Iterator[Anomaly]:
    """Finds the anomalies of all sinks."""
    unknown = Counter(it.sink for it in history.of(UnknownWritten))
    for sink, n in sorted(unknown.items()):
        yield Anomaly(Name.ABORTED_READ, "I2", n, f"{sink} has records without an acknowledged input")
    for tp in history.partitions:
        output, letters = history.sink("output", tp), history.sink("letters", tp)
        resets = history.resets.get(tp, [])
        yield from _lost(history, tp, resets)
        yield from _repeated(history, tp, output, letters, resets)
        known = {*history.acknowledged[tp]}
        aborted = {*output, *letters} - known
        if history.workload.is_atomic and tp in history.final:
            # Output and positions become visible together. So output after the last position is that of no commit.
            aborted |= {n for n in (*output, *letters) if n >= history.final[tp]}
        yield from merged(Name.ABORTED_READ, "I2", tp, aborted)


def _walked(history: History, tp: TopicPartition, resets: Sequence[PartitionReset]) -> Walk:
    letters = {*history.sink("letters", tp)}
    end = history.final.get(tp, 0)
    expected = [n for n in history.acknowledged[tp] if n not in letters and not history.is_excused(tp, n)]
    # Records after the position can be written, and need not be.
    written = [n for n in history.sink("output", tp) if n not in letters]
    below = expected[: bisect_left(expected, max([end, *(n + 1 for n in written)]))]
    return walk(written, below, [it.next_offset for it in resets])


def _lost(history: History, tp: TopicPartition, resets: Sequence[PartitionReset]) -> Iterator[Anomaly]:
    visible = {*history.sink("output", tp), *history.sink("letters", tp)}
    below = history.acknowledged_in(tp, 0, history.final.get(tp, 0))
    lost = {n for n in below if n not in visible and not history.is_excused(tp, n)}
    if history.workload.is_ordered:
        found = _walked(history, tp, resets)
        lost.update(found.lost)
        yield from merged(Name.NON_MONOTONIC_WRITE, "I5", tp, found.late)
    yield from merged(Name.LOST_WRITE, "I1", tp, lost)


def _repeated(
    history: History,
    tp: TopicPartition,
    output: Sequence[int],
    letters: Sequence[int],
    resets: Sequence[PartitionReset],
) -> Iterator[Anomaly]:
    counts, of_letters = Counter(output), Counter(letters)
    found = {n for n, count in of_letters.items() if count > 1 + copies(resets, n)}
    found |= counts.keys() & of_letters.keys()
    if history.workload.is_ordered:
        found.update(_walked(history, tp, resets).repeated)
    else:
        found |= {n for n, count in counts.items() if count > 1 + copies(resets, n)}
    yield from merged(Name.DUPLICATE, "I2", tp, found)


def copies(resets: Sequence[PartitionReset], offset: int) -> int:
    """How many further copies of a record the resets explain."""
    return sum(it.next_offset <= offset < it.end_offset for it in resets)


def check_rows(history: History) -> Iterator[Anomaly]:
    """Compares the rows of the output with those of the plain program (I1, I2, S10)."""
    expected = {it.row: it for it in history.of(ExpectedRow)}
    counts = Counter(it.row for it in history.of(WrittenRow))
    different = [it for it in history.of(WrittenRow) if it.row not in expected or it.result != expected[it.row].result]
    lost = [
        row
        for row, it in expected.items()
        if it.is_last and row not in counts and it.offset < history.final.get(it.topic_partition, 0)
    ]
    repeated = [
        row
        for row, n in counts.items()
        if (it := expected.get(row)) and n > 1 + copies(history.resets.get(it.topic_partition, ()), it.offset)
    ]
    yield from _of_rows(Name.LOST_WRITE, "I1", lost)
    yield from _of_rows(Name.DUPLICATE, "I2", repeated)
    yield from _of_rows(Name.STALE_STATE, "S10", [it.row for it in different])


def _of_rows(name: Name, invariant: str, rows: Sequence[str]) -> Iterator[Anomaly]:
    if rows:
        yield Anomaly(name, invariant, len(rows), f"row {sorted(rows)[0]}")
