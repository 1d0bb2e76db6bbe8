"""How groups look: colours of words (a word says all without its colour), and numbers as little pictures."""

from __future__ import annotations

from collections.abc import Sequence

_STATES = {
    "Stable": "green",
    "Empty": "yellow",
    "Dead": "red",
    "PreparingRebalance": "magenta",
    "CompletingRebalance": "magenta",
    "Assigning": "magenta",
    "Reconciling": "magenta",
}


def state_style(state: str) -> str:
    """The colour of a group's state.

    >>> state_style("Stable")
    'green'
    """
    return _STATES.get(state, "")


_LAG_STATES = {"ok": "green", "warn": "yellow", "unknown": "bright_black"}
_BARS = "▁▂▃▄▅▆▇█"


def lag_state_style(state: str) -> str:
    """The colour of what a lag is doing.

    >>> lag_state_style("ok"), lag_state_style("stalled")
    ('green', 'bold red')
    """
    return _LAG_STATES.get(state, "bold red")


def time_state_style(state: str) -> str:
    """The colour of what a partition does to the watermark.

    >>> time_state_style("holds back"), time_state_style("ahead")
    ('yellow', '')
    """
    return {"holds back": "yellow", "idle": "bright_black", "no watermark": "bright_black"}.get(state, "")


def sparkline(values: Sequence[int], width: int) -> str:
    """The last values as bars, from nothing to the largest of them.

    >>> sparkline([0, 5, 10, 0], 8), sparkline([3, 3], 8), sparkline([], 8), sparkline([1, 2, 4], 2)
    ('▁▅█▁', '██', '', '▅█')
    """
    shown = list(values)[-width:]
    largest = max(shown, default=0)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // largest) if largest else 0] for value in shown)
