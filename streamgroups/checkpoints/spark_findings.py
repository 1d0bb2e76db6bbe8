"""Decides what is wrong with a Spark checkpoint: gaps in its logs, and state files that do not exist.

Called by ``streamgroups checkpoint verify``, which reads the files. Source: ``MicroBatchExecution``, which writes each number
once and deletes the lowest ones (``spark.sql.streaming.minBatchesToRetain``). SEMANTICS C5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile

#: The logs and the state are cleaned at different times, so the state of the first batches in the log can be deleted.
_MAX_CLEANED = 3
#: The maximum number of files of a log that are reported as missing: any number can be the name of a file.
_MAX_GAPS = 1_000


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A file of a checkpoint with a problem.

    Args:
        path: its path below the checkpoint.
        text: the problem, a predicate.
        batches: the batches that cannot be restored because of it.
    """

    path: str
    text: str
    batches: tuple[int, ...] = ()


def gaps(planned: Sequence[int], committed: Sequence[int]) -> list[Problem]:
    """Returns the files that the logs lack.

    Args:
        planned: the batches in the offset log, in order.
        committed: the batches in the commit log, in order.

    >>> [it.path for it in gaps([4, 5, 7, 8], [4, 5, 6])]
    ['offsets/6', 'commits/7']
    """
    missing = [f"offsets/{n}" for n in _missing(planned)]
    if not planned:
        return [Problem(f"offsets/{n}", "does not exist, and the batch is committed") for n in committed]
    missing += [f"commits/{n}" for n in _missing(committed)]
    last = committed[-1] if committed else planned[0] - 1
    missing += [f"commits/{n}" for n in range(last + 1, min(planned[-1], last + 1 + _MAX_GAPS))]
    missing += [f"offsets/{n}" for n in committed if n > planned[-1]]
    return [Problem(path, "does not exist: the log has a gap") for path in missing]


def without_cleaned(missing: Collection[Problem], planned: Sequence[int], last: int | None) -> list[Problem]:
    """Leaves out the state files that Spark has deleted with the batches before the first one in the log.

    Args:
        missing: the state files that do not exist.
        planned: the batches in the offset log, in order.
        last: the last committed batch.

    >>> old, new = Problem("state/0/0/8.delta", "does not exist", (7,)), Problem("state/0/0/20.delta", "does not exist", (19,))
    >>> without_cleaned([old, new], range(6, 106), 105) == [new]
    True
    """
    if not planned or planned[0] == 0:
        return list(missing)
    without_state = {batch for it in missing for batch in it.batches}
    # The first batch in the log cannot be restored: Spark needs the offsets of the batch before.
    possible = range(planned[0] + 1, planned[0] + _MAX_CLEANED)
    cleaned = set(takewhile(lambda batch: batch in without_state and batch != last, possible))
    return [it for it in missing if not cleaned.issuperset(it.batches)]


def by_file(found: Mapping[tuple[str, str], Iterable[int]]) -> list[Problem]:
    """Returns one problem for each file and text, with all of its batches.

    >>> by_file({("state/0/0/8.delta", "does not exist"): [8, 7]})
    [Problem(path='state/0/0/8.delta', text='does not exist', batches=(7, 8))]
    """
    return [Problem(path, text, tuple(sorted(batches))) for (path, text), batches in sorted(found.items())]


def spans(batches: Collection[int]) -> str:
    """Returns numbers as spans, for messages.

    >>> spans([3, 4, 5, 9]), spans([])
    ('3 to 5, 9', 'none')
    """
    ordered = sorted(batches)
    if not ordered:
        return "none"
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def _missing(numbers: Sequence[int]) -> list[int]:
    between = (n for before, after in pairwise(numbers) for n in range(before + 1, after))
    return list(islice(between, _MAX_GAPS))
