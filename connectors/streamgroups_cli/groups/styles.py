"""The colours of words about groups, which are clear without colour, too.

``groups list`` and ``groups watch`` use it.
"""

from __future__ import annotations

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
