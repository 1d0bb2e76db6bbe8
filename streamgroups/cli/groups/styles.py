"""Colours of the words in tables about groups; a word says all without its colour."""

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
    """The colour of a group's state.

    >>> state_style("Stable")
    'green'
    """
    return _STATES.get(state, "")
