"""The result of a check: its subject, the version in use, its state and a remedy.

The other modules of this package create the results; ``streamgroups doctor`` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """The state of a check result, from good to bad."""

    OK = "ok"
    #: It works, but is slower, at risk or unknown.
    WARNING = "warning"
    #: Something will fail.
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report.

    Args:
        about: the subject, one of a few fixed words: ``python``, ``reader``, ``java`` ...
        state: the state.
        what: a sentence.
        remedy: what to do next; empty only if nothing needs to be done.
        in_use: the version, or the choice, that is in use; None without one.
    """

    about: str
    state: State
    what: str
    remedy: str = ""
    in_use: str | None = None


def ok(about: str, what: str, in_use: str | None = None) -> CheckResult:
    """Returns a result without a remedy."""
    return CheckResult(about, State.OK, what, in_use=in_use)


def warning(about: str, what: str, remedy: str, in_use: str | None = None) -> CheckResult:
    """Returns a result for a minor defect: everything works, but slower or at risk."""
    return CheckResult(about, State.WARNING, what, remedy, in_use)


def problem(about: str, what: str, remedy: str, in_use: str | None = None) -> CheckResult:
    """Returns a result for a defect that causes a failure."""
    return CheckResult(about, State.PROBLEM, what, remedy, in_use)


def worst(results: Iterable[CheckResult]) -> State:
    """Returns the state of the whole report.

    >>> worst([ok("java", "17 or newer."), warning("reader", "Plain.", "Build it.")]).value
    'warning'
    """
    order = list(State)
    return max((result.state for result in results), key=order.index, default=State.OK)
