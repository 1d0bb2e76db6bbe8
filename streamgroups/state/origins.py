"""Where the state of a position is: part of each position of a member, and of the metadata of each commit.

Used by :mod:`streamgroups.groups` and by :mod:`streamgroups.state.state_lookup`. Source: SEMANTICS S10.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_time import GroupWindows, StateTime


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
        due_ms: when the operator must run without new records, in milliseconds since the epoch; ``None``: never.
        time: the event time of the state; ``None`` if the operator has none.
    """

    file: StateFileName
    next_offset: int
    due_ms: int | None = None
    time: StateTime | None = None


@dataclass(frozen=True, slots=True)
class Earlier:
    """A position that names the state of an earlier offset. A query reads the records in between again, without output.

    Args:
        file: the file of the state.
        next_offset: the offset of the state.
    """

    file: StateFileName
    next_offset: int


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A position without a state: a tool has set it, or the query has no operator with state."""


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """A position in a ledger, which stores a number instead of the name of the state.

    Args:
        fingerprint: see :func:`fingerprint`.
    """

    fingerprint: int


StateOrigin: TypeAlias = New | Named | Earlier | Unnamed | Fingerprinted
UNNAMED = Unnamed()
#: A ledger of offsets stores integers of 64 bits that are not negative.
_LIMIT = 1 << 63
#: A sum of two times of 18 digits is an integer of 64 bits.
_TIME = r"(?:-?[0-9]{1,18})?"
#: The end of the text of :class:`Earlier`.
_AGAIN = "@again"
#: The file, the offset, when the operator is due, and the event time of the state. It has the watermark, with the letter
#: ``i`` if it is that of the idle timeout, and the latest event time. Windows with the watermark of the group have two
#: further times.
_FORM = re.compile(
    r"(?P<file>[^@]+)@(?P<offset>[0-9]{1,19})(?:@(?P<due>(?:-?[0-9]{1,19})?))?"
    rf"(?P<time>@(?P<watermark>{_TIME})(?P<idle>i?)@(?P<event>{_TIME})(?P<group>@(?P<used>{_TIME})@(?P<end>{_TIME}))?)?",
    re.ASCII,
)


def fingerprint(origin: StateOrigin) -> int:
    """Returns the number by which a ledger stores a state. It is 0 if the origin contains no state file.

    >>> fingerprint(New()), fingerprint(UNNAMED)
    (0, 0)
    >>> 0 < fingerprint(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700)) < 2**63
    True
    """
    if isinstance(origin, Fingerprinted):
        return origin.fingerprint
    if not isinstance(origin, Named | Earlier):
        return 0
    digest = int.from_bytes(hashlib.sha256(str(origin.file).encode()).digest()[:8], "big")
    return digest % (_LIMIT - 1) + 1


def later(origin: StateOrigin) -> StateOrigin:
    """The origin of a later position with the same state. A query reads the records in between again, without output.

    >>> encode(later(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700)))
    '1732334879123-1f3a9c2b7d10-17-42.state@700@again'
    """
    return Earlier(origin.file, origin.next_offset) if isinstance(origin, Named) else origin


def encode(origin: StateOrigin) -> str:
    """The origin as text; empty for an origin that names no state.

    >>> encode(New()), encode(UNNAMED)
    ('empty', '')
    >>> encode(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700))
    '1732334879123-1f3a9c2b7d10-17-42.state@700'
    >>> encode(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700, 1732334880000))
    '1732334879123-1f3a9c2b7d10-17-42.state@700@1732334880000'
    >>> time = StateTime(1732334880000, 1732334879000, is_idle=True)
    >>> encode(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700, None, time))
    '1732334879123-1f3a9c2b7d10-17-42.state@700@@1732334880000i@1732334879000'
    >>> encode(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700, None, StateTime(5, 7, group=GroupWindows(3))))
    '1732334879123-1f3a9c2b7d10-17-42.state@700@@5@7@3@'
    >>> encode(Earlier(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700))
    '1732334879123-1f3a9c2b7d10-17-42.state@700@again'
    """
    if isinstance(origin, Earlier):
        return f"{origin.file}@{origin.next_offset}{_AGAIN}"
    if isinstance(origin, Named):
        due = "" if origin.due_ms is None else f"@{origin.due_ms}"
        time = "" if origin.time is None else f"{due or '@'}@{_text(origin.time)}"
        return f"{origin.file}@{origin.next_offset}{time or due}"
    return "empty" if isinstance(origin, New) else ""


def _text(time: StateTime) -> str:
    own = f"{_optional(time.watermark_ms)}{'i' if time.is_idle else ''}@{_optional(time.event_time_ms)}"
    return own + (f"@{_optional(time.group.watermark_ms)}@{_optional(time.group.next_end_ms)}" if time.group else "")


def _optional(time_ms: int | None) -> str:
    return "" if time_ms is None else str(time_ms)


def decode(text: str) -> StateOrigin:
    """Parses an origin. Text that is not an origin is :class:`Unnamed`: any client can write metadata.

    >>> decode("empty"), decode("by hand")
    (New(), Unnamed())
    """
    if text == "empty":
        return New()
    is_earlier = text.endswith(_AGAIN)
    found = _FORM.fullmatch(text.removesuffix(_AGAIN))
    if found is None:
        return UNNAMED
    try:
        file = StateFileName.parse(found["file"])
    except ValueError:
        return UNNAMED
    time = None
    if found["time"] is not None:
        group = None if found["group"] is None else GroupWindows(_number(found["used"]), _number(found["end"]))
        time = StateTime(_number(found["watermark"]), _number(found["event"]), bool(found["idle"]), group)
    named: StateOrigin = Named(file, int(found["offset"]), _number(found["due"]), time)
    if is_earlier:
        named = Earlier(file, int(found["offset"]))
    return named if encode(named) == text else UNNAMED


def _number(text: str | None) -> int | None:
    return int(text) if text else None
