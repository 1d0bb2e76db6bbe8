"""Decides which failures of a broker are logged: the first at once, then one line in ten seconds, and the recovery
once.

Called by ``streamgroups_kafka.client.logs`` for all clients of a process that connect to one cluster. While a broker is
unreachable, each client repeats its connection attempts and would log each failure. Source: the log output of
librdkafka and kafka-python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The minimum interval between two lines, in milliseconds.
LINE_EVERY_MS = 10_000
#: Another broker may have answered a request that succeeds sooner after a failure. It does not end the outage.
SETTLED_MS = 1_000


@dataclass(frozen=True, slots=True)
class Outage:
    """Failures of a cluster that has not recovered yet.

    Args:
        since_ms: the time of the first failure.
        last_ms: the time of the last failure.
        suppressed: how many failures were not logged.
        unreported: how many of them followed the last line.
        is_logged: whether the outage was logged.
    """

    since_ms: int
    last_ms: int
    suppressed: int = 0
    unreported: int = 0
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of one cluster.

    Args:
        outage: the outage; ``None`` while requests succeed.
        last_line_ms: the time of the last logged failure; ``None`` before the first.
    """

    outage: Outage | None = None
    last_line_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FailureLine:
    """Log this failure.

    Args:
        suppressed: how many failures were not logged since the last line.
    """

    suppressed: int


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """Log that requests succeed again.

    Args:
        away_ms: how long requests failed.
        suppressed: how many failures were not logged in that time.
    """

    away_ms: int
    suppressed: int


def failed(state: LogState, now_ms: int) -> tuple[LogState, FailureLine | None]:
    """Handles a failure of a client to connect to a broker.

    Args:
        state: the state before it.
        now_ms: the current time of a monotonic clock.

    Returns:
        The new state, and the line to log; ``None`` to log nothing.

    >>> state, line = failed(LogState(), 0)
    >>> line
    FailureLine(suppressed=0)
    >>> state, line = failed(state, 5_000)
    >>> line is None
    True
    >>> failed(state, 10_000)[1]
    FailureLine(suppressed=1)
    """
    outage = replace(state.outage or Outage(now_ms, now_ms), last_ms=now_ms)
    if state.last_line_ms is not None and now_ms - state.last_line_ms < LINE_EVERY_MS:
        outage = replace(outage, suppressed=outage.suppressed + 1, unreported=outage.unreported + 1)
        return replace(state, outage=outage), None
    line = FailureLine(outage.unreported)
    return LogState(replace(outage, unreported=0, is_logged=True), now_ms), line


def succeeded(state: LogState, now_ms: int) -> tuple[LogState, RecoveryLine | None]:
    """Handles the response of a broker.

    Args:
        state: the state before it.
        now_ms: the current time of a monotonic clock.

    Returns:
        The new state, and the line to log; ``None`` to log nothing.

    >>> state, _ = failed(LogState(), 0)
    >>> state, _ = failed(state, 7_000)
    >>> succeeded(state, 7_500)[1] is None
    True
    >>> state, line = succeeded(state, 8_000)
    >>> line
    RecoveryLine(away_ms=8000, suppressed=1)
    >>> succeeded(state, 9_000)[1] is None
    True
    """
    outage = state.outage
    if outage is None or now_ms - outage.last_ms < SETTLED_MS:
        return state, None
    line = RecoveryLine(now_ms - outage.since_ms, outage.suppressed) if outage.is_logged else None
    return replace(state, outage=None), line
