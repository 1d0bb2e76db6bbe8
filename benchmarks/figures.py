"""Results of measurements: figures with a spread, and rows that compare two figures. Pure functions without clock or
Spark.

Created by the families of measurements (``bulk``, ``small_batches`` ...), printed by ``tables``. A ratio above 1 always
means that streamgroups is faster, for speeds (records per second) and for durations (milliseconds).
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a figure.

    Args:
        name: the printed name.
        more_is_better: true of speeds, false of durations.
    """

    name: str
    more_is_better: bool


RECORDS_PER_S = Unit("records/s", more_is_better=True)
MB_PER_S = Unit("MB/s", more_is_better=True)
MS = Unit("ms", more_is_better=False)
S = Unit("s", more_is_better=False)
#: Memory.
MB = Unit("MiB", more_is_better=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number over several rounds.

    Args:
        value: the number to quote.
        low, high: the number of the lowest and of the highest round.
        rounds: the number of rounds.
    """

    value: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Missing:
    """The reason of a missing figure.

    Args:
        why: the reason as text.
        is_failure: whether the measurement failed. A figure that is unavailable or cannot exist is not a failure.
    """

    why: str
    is_failure: bool = True


Cell: TypeAlias = Figure | Missing


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: one measurement of ours and of one peer.

    Args:
        what: the name of the measurement.
        unit: the unit of both figures.
        own, other: the two figures.
        peer: the name of the peer.
        ratio: above 1 if we are faster; ``None`` without a comparison.
    """

    what: str
    unit: Unit
    own: Cell
    peer: str
    other: Cell
    ratio: float | None

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures as text."""
        return tuple(c.why for c in (self.own, self.other) if isinstance(c, Missing) and c.is_failure)


def median_of(rounds: Sequence[float]) -> Figure:
    """The median of one number per round, with the lowest and the highest round.

    >>> median_of([3.0, 1.0, 2.0])
    Figure(value=2.0, low=1.0, high=3.0, rounds=3)
    """
    return Figure(statistics.median(rounds), min(rounds), max(rounds), len(rounds))


def percentile_of(rounds: Sequence[Sequence[float]], percent: int) -> Figure:
    """A percentile of the samples of all rounds, with the same percentile of the lowest and of the highest round.

    >>> percentile_of([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], 50)
    Figure(value=4.0, low=2.0, high=6.0, rounds=2)
    """
    each = [percentile(samples, percent) for samples in rounds]
    pooled = [sample for samples in rounds for sample in samples]
    return Figure(percentile(pooled, percent), min(each), max(each), len(rounds))


def percentile(samples: Sequence[float], percent: int) -> float:
    """A percentile of the samples, interpolated between neighbours.

    Args:
        samples: the samples, at least one.
        percent: the percentile, 1 to 99.

    >>> percentile([10.0], 99), percentile([0.0, 100.0], 99)
    (10.0, 99.0)
    """
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def ratio(own: float, other: float, unit: Unit) -> float:
    """The factor by which we are faster.

    >>> ratio(300, 200, RECORDS_PER_S), ratio(300, 200, MS) < 1
    (1.5, True)
    """
    return own / other if unit.more_is_better else other / own


def compare(
    what: str,
    unit: Unit,
    found: Mapping[str, Cell],
    *,
    own: str,
    alternatives: Collection[str] = (),
    limits: Collection[str] = (),
) -> list[Row]:
    """Rows that compare us with every peer.

    Args:
        what: the name of the measurement.
        unit: the unit of all figures.
        found: a figure for each contestant.
        own: our name among them.
        alternatives: the names of one peer with several settings. Only the fastest has a ratio, and is first.
        limits: the names of peers that do less than the measured work. They have no ratio.

    Returns:
        one row for each peer.

    >>> figures = {"us": median_of([4.0]), "slow": median_of([9.0]), "fast": median_of([2.0])}
    >>> [(row.peer, row.ratio) for row in compare("read", S, figures, own="us", alternatives=("slow", "fast"))]
    [('fast', 0.5), ('slow', None)]
    >>> [row.ratio for row in compare("read", S, figures, own="us", limits=("fast",))]
    [2.25, None]
    """
    mine = found[own]
    measured = {name: cell.value for name, cell in found.items() if name in alternatives and isinstance(cell, Figure)}
    fastest = max(measured, key=lambda name: measured[name] if unit.more_is_better else -measured[name], default=None)
    peers = sorted((name for name in found if name != own), key=lambda name: (name in limits, name != fastest))
    rows = []
    for name in peers:
        other = found[name]
        compared = name == fastest or (name not in alternatives and name not in limits)
        both = isinstance(mine, Figure) and isinstance(other, Figure) and compared
        value = ratio(mine.value, other.value, unit) if both else None  # type: ignore[union-attr]
        rows.append(Row(what, unit, mine, name, other, value))
    return rows
