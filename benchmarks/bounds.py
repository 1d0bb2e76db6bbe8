"""The bounds of the ratios: how many times faster than its peer a measurement has to be. Pure functions.

Called by ``benchmarks.command``, which prints the lines below their bounds. With ``--check`` such a line is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.figures import Row


@dataclass(frozen=True, slots=True)
class Bound:
    """The lowest ratio of some lines.

    Args:
        line: a regular expression for the beginning of the name of a line.
        at_least: the lowest ratio.
    """

    line: str
    at_least: float


#: The first bound that matches a line holds. A line without one must not be slower than its peer.
BOUNDS: Sequence[Bound] = (
    # A local directory has no round trips.
    Bound(r".*, state on an object store", 0.0),
    # Each batch reads a list and two entries of the checkpoint, which Spark's own sink does not.
    Bound(r"Kafka to Kafka, trigger of [\d,]+ records, checkpoint on an object store", 1 / 1.2),
    Bound(r"stream, (value only|from_json)", 1.5),
    Bound(r"stream, .*, time from the payload", 1.5),
    Bound(r"trigger of [\d,]+ records while savepoints are created", 1 / 1.1),
    Bound(r"trigger of [\d,]+ records(, asynchronous progress)?, p", 1.2),
    Bound(r"trigger of [\d,]+ records, [\d,]+ keys in each partition, p", 1 / 1.15),
    Bound(r"start of a program", 1 / 1.1),
    Bound(r"Kafka to Kafka, by key", 1.8),
    Bound(r"Kafka to Delta", 1.5),
    # A restarted query starts a driver's thread, a member and Python processes, which Spark's source does not have.
    Bound(r"a batch fails: until the next one is done, supervised", 0.8),
    Bound(r"declared processor", 0.95),
    Bound(r"four processors in one worker, memory", 2.0),
    Bound(r"four processors in one worker", 0.9),
    Bound(r"trigger of a small processor beside a large one, p99", 0.5),
    # A savepoint reads the group and verifies each file.
    Bound(r"savepoint create, [\d,]+ open keys", 1 / 1.5),
    # The rest is the noise of the allocator.
    Bound(r"savepoint (create|restore), memory", 1 / 1.1),
    Bound(r"fork, ", 1 / 1.2),
)
_FASTER = Bound("", 1.0)


def bound_of(what: str) -> Bound:
    """The bound of a line.

    >>> bound_of("trigger of 100 records, p50").at_least, bound_of("batch read to noop").at_least
    (1.2, 1.0)
    >>> bound_of("trigger of 8,000 records, 10 keys in each partition, p50, state on an object store with 50 ms").at_least
    0.0
    """
    return next((bound for bound in BOUNDS if re.match(bound.line, what)), _FASTER)


def below(rows: Iterable[Row]) -> list[str]:
    """One sentence for each line whose ratio is below its bound.

    >>> from benchmarks.figures import S, compare, median_of
    >>> below(compare("Kafka to Delta", S, {"us": median_of([4.0]), "Spark": median_of([5.0])}, own="us"))
    ['Kafka to Delta, against Spark: 1.25, below 1.5']
    """
    return [
        f"{row.what}, against {row.peer}: {row.ratio:.2f}, below {bound.at_least}"
        for row in rows
        if row.ratio is not None and row.ratio < (bound := bound_of(row.what)).at_least
    ]
