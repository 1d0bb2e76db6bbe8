"""Which failures of a broker are logged: the first at once, then one line in ten seconds, and the end of it once.

Called by ``streamgroups_kafka.client.logs``, for all clients of a process that reach one cluster: while a broker is away each of them tries to
connect again and again, and has as many lines to say about it. A function of the state, what happened, and the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: At most one line in this time, in milliseconds.
LINE_EVERY_MS = 10_000
#: A request that succeeds sooner after a failure may have been answered by another broker: it ends nothing.
SETTLED_MS = 1_000


@dataclass(frozen=True, slots=True)
class Outage:
    """Failures that nothing has ended yet.

    Args:
        since_ms: when the first came.
        last_ms: when the last came.
        suppressed: how many were not logged.
        unreported: how many of them came after the last line.
        is_logged: whether there was a line about it.
    """

    since_ms: int
    last_ms: int
    suppressed: int = 0
    unreported: int = 0
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class LogState:
    """What is known of one cluster.

    Args:
        outage: ``None`` while all is well.
        last_line_ms: when the last failure was logged; ``None`` if none was.
    """

    outage: Outage | None = None
    last_line_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FailureLine:
    """Log this failure.

    Args:
        suppressed: how many were not logged since the last line.
    """

    suppressed: int


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """Log that requests succeed again.

    Args:
        away_ms: for how long they failed.
        suppressed: how many failures were not logged in that time.
    """

    away_ms: int
    suppressed: int


def failed(state: LogState, now_ms: int) -> tuple[LogState, FailureLine | None]:
    """A client could not reach a broker.

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
    """A broker answered a request.

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
