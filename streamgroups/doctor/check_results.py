"""A finding: one thing that was looked at, what is in use, and whether it will do.

Made by the other modules of this package, shown by ``streamgroups doctor``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """How a finding stands, from good to bad."""

    OK = "ok"
    #: It works; something is slower, at risk or unknown.
    WARNING = "warning"
    #: Something will fail.
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Args:
        about: what was looked at, as one of few fixed words: ``python``, ``reader``, ``java`` ...
        state: whether it will do.
        what: a sentence.
        remedy: what to do next; empty only if there is nothing to do.
        in_use: the version, or the choice, that is in use; None if there is none.
    """

    about: str
    state: State
    what: str
    remedy: str = ""
    in_use: str | None = None


def ok(about: str, what: str, in_use: str | None = None) -> Finding:
    """A finding that needs nothing."""
    return Finding(about, State.OK, what, in_use=in_use)


def warning(about: str, what: str, remedy: str, in_use: str | None = None) -> Finding:
    """A finding that does not stop anything."""
    return Finding(about, State.WARNING, what, remedy, in_use)


def problem(about: str, what: str, remedy: str, in_use: str | None = None) -> Finding:
    """A finding that will make something fail."""
    return Finding(about, State.PROBLEM, what, remedy, in_use)


def worst(findings: Iterable[Finding]) -> State:
    """The state of the whole.

    >>> worst([ok("java", "17 or newer."), warning("reader", "Plain.", "Build it.")]).value
    'warning'
    """
    order = list(State)
    return max((finding.state for finding in findings), key=order.index, default=State.OK)
