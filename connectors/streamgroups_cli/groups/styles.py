"""The styles of groups: colours of words (which are clear without colour, too), and numbers as small charts.

``groups list`` and ``groups watch`` use it.
"""

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
    """Returns the colour of a group's state.

    >>> state_style("Stable")
    'green'
    """
    return _STATES.get(state, "")


_LAG_STATES = {"ok": "green", "warn": "yellow", "unknown": "bright_black"}
_BARS = "▁▂▃▄▅▆▇█"


def lag_state_style(state: str) -> str:
    """Returns the colour of a lag state.

    >>> lag_state_style("ok"), lag_state_style("stalled")
    ('green', 'bold red')
    """
    return _LAG_STATES.get(state, "bold red")


def time_state_style(state: str) -> str:
    """Returns the colour of a partition's effect on the watermark.

    >>> time_state_style("holds back"), time_state_style("ahead")
    ('yellow', '')
    """
    return {"holds back": "yellow", "idle": "bright_black", "no watermark": "bright_black"}.get(state, "")


def sparkline(values: Sequence[int], width: int) -> str:
    """Returns the last values as bars, from 0 to the maximum of them.

    >>> sparkline([0, 5, 10, 0], 8), sparkline([3, 3], 8), sparkline([], 8), sparkline([1, 2, 4], 2)
    ('▁▅█▁', '██', '', '▅█')
    """
    shown = list(values)[-width:]
    largest = max(shown, default=0)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // largest) if largest else 0] for value in shown)
