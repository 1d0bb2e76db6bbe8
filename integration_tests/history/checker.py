"""The checker: decides the invariants by a history alone. Called by ``python -m integration_tests.history`` and by campaigns.

An invariant is decided only if the history records all events that its check needs (:attr:`Workload.recorded`). I10 needs the search
of all files of a campaign for its planted secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from integration_tests.history.anomalies import Anomaly, Report
from integration_tests.history.deliveries import check_ahead_of_deliveries, check_deliveries
from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    Delivered,
    Event,
    ExpectedRow,
    HighWater,
    LogsSearched,
    Position,
    Read,
    StateError,
    StateLoaded,
    StateWritten,
    Written,
    WrittenRow,
    name_of,
)
from integration_tests.history.outputs import check_outputs, check_rows
from integration_tests.history.positions import (
    check_ahead_of_output,
    check_commits,
    check_lag,
    check_monotone,
    check_reads,
    lag_is_undecided,
)
from integration_tests.history.secrets import check_secrets
from integration_tests.history.states import check_states, check_watermarks
from integration_tests.history.view import History


@dataclass(frozen=True, slots=True)
class _Check:
    """A check.

    Args:
        invariants: what it decides.
        needs: the events that it needs.
        find: finds the anomalies.
        undecided: returns why a history with these events does not decide it; empty if it does.
    """

    invariants: tuple[str, ...]
    needs: tuple[type[Event], ...]
    find: Callable[[History], Iterator[Anomaly]]
    undecided: Callable[[History], str] = lambda _: ""


def _without(event_classes: tuple[type[Event], ...], history: History) -> str:
    """Why a history without these events does not decide an invariant."""
    names = " or ".join(map(name_of, event_classes))
    return "" if any(isinstance(it, event_classes) for it in history.events) else f"it has no {names}"


_INPUT = (Acknowledged, Position)
_CHECKS = (
    _Check(("I1", "I2"), (*_INPUT, Written), check_outputs),
    _Check(("I1", "I2"), (*_INPUT, ExpectedRow, WrittenRow), check_rows),
    _Check(("I3",), (*_INPUT, HighWater, Written), check_ahead_of_output, partial(_without, (HighWater,))),
    _Check(("I1", "I2", "I5"), (*_INPUT, Delivered), check_deliveries),
    _Check(("I3",), (*_INPUT, Delivered), check_ahead_of_deliveries),
    _Check(("I4",), (Position,), check_monotone),
    _Check(("I6",), (Assigned, Commit), check_commits),
    _Check(("I7",), (*_INPUT, Read, Commit), check_reads),
    _Check(("I8",), _INPUT, check_lag, lag_is_undecided),
    _Check(("I9",), (*_INPUT, StateWritten), check_watermarks, partial(_without, (StateWritten,))),
    _Check(("I10",), (LogsSearched,), check_secrets),
    _Check(("S10",), (StateLoaded,), check_states, partial(_without, (StateLoaded, StateError))),
)


def check(events: Sequence[Event]) -> Report:
    """Decides the invariants.

    Args:
        events: the events of a history, in the order of their times.

    Raises:
        ValueError: if it does not have exactly one workload.

    >>> from integration_tests.history.events import Acknowledged, Position, Workload, Written
    >>> from streamgroups.partitions import TopicPartition
    >>> p = TopicPartition("t", 0)
    >>> events = [
    ...     Workload(0, "injector", "g", "t", True, True, None, 9_000, ("acknowledged", "position", "written")),
    ...     Acknowledged(1, "producer", p, (0, 1, 2), (0, 0, 0)),
    ...     Position(5, "observer", "g", {p: 3}),
    ...     Written(6, "reader", "output", p, (0, 2)),
    ... ]
    >>> [str(it) for it in check(events).anomalies]
    ['I1 lost write: 1 (t-0 at offset 1)']
    """
    history = History(events)
    anomalies: list[Anomaly] = []
    missing: dict[str, str] = {}
    decided: set[str] = set()
    for it in _CHECKS:
        if history.records(*it.needs) and (why := it.undecided(history)):
            missing.update(dict.fromkeys(it.invariants, why))
        elif history.records(*it.needs):
            anomalies += it.find(history)
            decided.update(it.invariants)
        else:
            absent = ", ".join(name_of(n) for n in it.needs if not history.records(n))
            missing.update(dict.fromkeys(it.invariants, f"not recorded: {absent}"))
    if history.workload.is_ordered and history.records(*_INPUT, Written):
        decided.add("I5")
    elif "I5" not in decided:
        missing["I5"] = "the output has no order"
    return Report(anomalies, {name: why for name, why in missing.items() if name not in decided}, len(events))
