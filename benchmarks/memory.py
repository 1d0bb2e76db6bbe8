"""The growth of processes, from samples of their memory. Pure functions; ``soak`` takes the samples.

A straight line is fitted to the samples of each process after the warm-up (least squares), so that a single peak has
little weight.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

MIB = 2**20
#: A process with samples for less than this part of the time is not judged: it is too young, or it has ended.
_MIN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory of one process at one time.

    Args:
        at_s: the time of the sample, in seconds since the start.
        pid: the process.
        role: the role of the process.
        rss_bytes: its resident memory in bytes.
    """

    at_s: float
    pid: int
    role: str
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of one process after the warm-up.

    Args:
        role, pid: the process.
        first_mib, last_mib: its memory after the warm-up and at the end.
        mib_per_min: the slope between them; ``None`` if the process did not run most of the time.
    """

    role: str
    pid: int
    first_mib: float
    last_mib: float
    mib_per_min: float | None


def growths(samples: Iterable[Sample], warm_up_s: float, end_s: float) -> list[Growth]:
    """The growth of each process.

    Args:
        samples: the samples in order of time.
        warm_up_s: the end of the warm-up; earlier samples are ignored.
        end_s: the end of the sampling, in seconds since the start.

    Returns:
        one for each process with samples after the warm-up, by role.

    >>> leaking = [Sample(float(s), 1, "worker", (100 + s) * MIB) for s in range(0, 121, 10)]
    >>> [(g.first_mib, g.last_mib, round(g.mib_per_min or 0)) for g in growths(leaking, warm_up_s=60, end_s=120)]
    [(160.0, 220.0, 60)]
    """
    of: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.at_s >= warm_up_s:
            of[sample.role, sample.pid].append(sample)
    return [_growth(role, pid, found, end_s - warm_up_s) for (role, pid), found in sorted(of.items())]


def _growth(role: str, pid: int, found: list[Sample], window_s: float) -> Growth:
    first, last = found[0], found[-1]
    slope: float | None = None
    if len(found) > 2 and last.at_s - first.at_s >= _MIN_SHARE * window_s:
        line = statistics.linear_regression([s.at_s / 60 for s in found], [s.rss_bytes / MIB for s in found])
        slope = line.slope
    return Growth(role, pid, first.rss_bytes / MIB, last.rss_bytes / MIB, slope)


def objections(found: Iterable[Growth], roles: Iterable[str], limit_mib_per_min: float) -> list[str]:
    """The processes that grew or ended.

    Args:
        found: the growth of the processes.
        roles: the roles that must not grow. Each must have a process that ran the whole time.
        limit_mib_per_min: the permitted growth.

    >>> objections([Growth("worker", 1, 160.0, 220.0, 60.0)], ["worker", "runner"], 0.5)
    ['worker 1 grew by 60.00 MiB a minute', 'no runner lived through the whole time']
    """
    judged = [g for g in found if g.mib_per_min is not None]
    wrong = []
    for role in roles:
        of_role = [g for g in judged if g.role == role]
        if not of_role:
            wrong.append(f"no {role} lived through the whole time")
        wrong += [
            f"{role} {g.pid} grew by {g.mib_per_min:.2f} MiB a minute"
            for g in of_role
            if g.mib_per_min is not None and g.mib_per_min > limit_mib_per_min
        ]
    return wrong
