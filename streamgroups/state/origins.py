"""Where the state of a position is: part of each position of a member, and of the metadata of each commit.

Used by :mod:`streamgroups.groups` and by :mod:`streamgroups.state.lookup`. Source: SEMANTICS S10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.state.names import StateFileName


@dataclass(frozen=True, slots=True)
class New:
    """A starting position: no member has read the partition before, and the state is empty."""


@dataclass(frozen=True, slots=True)
class Named:
    """A position that names its state.

    Args:
        file: the file of the state.
        next_offset: the offset of the state. It is before the position if the records in between do not exist any
            more, and otherwise the position.
    """

    file: StateFileName
    next_offset: int


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A position without a state: a tool has set it, or the query has no operator with state."""


StateOrigin: TypeAlias = New | Named | Unnamed
UNNAMED = Unnamed()


def encode(origin: StateOrigin) -> str:
    """The origin as text; empty for :class:`Unnamed`.

    >>> encode(New()), encode(UNNAMED)
    ('empty', '')
    >>> encode(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700))
    '1732334879123-1f3a9c2b7d10-17-42.state@700'
    """
    if isinstance(origin, Named):
        return f"{origin.file}@{origin.next_offset}"
    return "empty" if isinstance(origin, New) else ""


def decode(text: str) -> StateOrigin:
    """Parses an origin. Text that is not an origin is :class:`Unnamed`: any client can write metadata.

    >>> decode("empty"), decode("by hand")
    (New(), Unnamed())
    """
    if text == "empty":
        return New()
    file, _, next_offset = text.rpartition("@")
    if not (next_offset.isascii() and next_offset.isdecimal() and len(next_offset) < 20):
        return UNNAMED
    try:
        return Named(StateFileName.parse(file), int(next_offset))
    except ValueError:
        return UNNAMED
