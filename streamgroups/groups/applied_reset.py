"""The last reset that a position contains: part of the mark of a commit, of a ledger, and of a checkpoint.

Used by :mod:`streamgroups.groups.commit_metadata`, :mod:`streamgroups.ledgers` and :mod:`streamgroups.checkpoints`. A position
and the reset that it contains change together, in one write that the broker or the ledger fences. So a reset is applied once,
by any owner of the partition. Source: SEMANTICS G8, S5, S6, F2.

Numbers order the resets of one partition. A member counts on from the position that it resets. A tool also uses the time, since
it may lack the number: the committed offset can have expired, and a ledger can be ahead of the group.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition

#: A ledger of offsets stores integers of 63 bits.
_FORM = re.compile(r"(?P<number>[0-9]{1,18})\.(?P<id>[1-9a-f][0-9a-f]{0,15})", re.ASCII)
_BITS = 63


@dataclass(frozen=True, slots=True)
class AppliedReset:
    """A reset that a position contains.

    Args:
        number: orders the resets of one partition. 0 if the position contains none.
        id: identifies the reset: that of a :class:`~streamgroups.coordination.reset_protocol.ResetRequest`, or of a change by a
            tool. Empty if the position contains none.

    >>> first = AppliedReset(7, "5f2c")
    >>> first.then("a1"), AppliedReset.parse(first.encode()) == first
    (AppliedReset(number=8, id='a1'), True)
    """

    number: int = 0
    id: str = ""

    def then(self, id_: str, not_before: int = 0) -> AppliedReset:
        """The next reset of the same position.

        Args:
            id_: the id of the next reset.
            not_before: the minimum of its number. A tool passes the time in milliseconds since the epoch.
        """
        return AppliedReset(max(self.number + 1, not_before), id_)

    def moved_back(self, id_: str) -> AppliedReset:
        """Records that a position was set to an earlier offset without a reset, because of data loss.

        It is another reset than that of a checkpoint, so a restart does not take the position for one whose commit is missing. An
        earlier reset stays the applied one: the id is the same.

        Args:
            id_: the id, if the position contains no reset.

        >>> AppliedReset(7, "5f2c").moved_back("a1"), NO_RESET.moved_back("a1")
        (AppliedReset(number=8, id='5f2c'), AppliedReset(number=1, id='a1'))
        """
        return self.then(self.id or id_)

    def contains(self, other: AppliedReset) -> bool:
        """Whether a position with this reset was set by ``other``, or by a later reset.

        >>> AppliedReset(8, "a1").contains(AppliedReset(7, "5f2c")), AppliedReset(8, "a1").contains(AppliedReset(8, "b2"))
        (True, False)
        """
        return self == other or self.number > other.number

    def encode(self) -> str:
        """As a part of a mark; empty if the position contains no reset."""
        return f"{self.number}.{self.id}" if self.id else ""

    @classmethod
    def parse(cls, text: str) -> AppliedReset:
        """Parses a part of a mark; :data:`NO_RESET` if it is empty or invalid."""
        found = _FORM.fullmatch(text)
        return cls(int(found["number"]), found["id"]) if found and int(found["id"], 16) < 1 << _BITS else NO_RESET

    @property
    def id_bits(self) -> int:
        """The id as an integer of 63 bits, for stores that contain integers only. 0 without an id."""
        return int(self.id, 16) if self.id else 0

    @classmethod
    def from_bits(cls, number: int, id_bits: int) -> AppliedReset:
        """The reset with this number and :attr:`id_bits`.

        >>> AppliedReset.from_bits(7, AppliedReset(7, "5f2c").id_bits)
        AppliedReset(number=7, id='5f2c')
        """
        return cls(number, f"{id_bits:x}") if id_bits else NO_RESET


#: The reset of a position that no reset has set.
NO_RESET = AppliedReset()


def new_reset_id() -> str:
    """A new id of a reset: a random number of 63 bits in hexadecimal digits, which is not 0."""
    return f"{secrets.randbits(_BITS) or 1:x}"


def first_reset(partitions: Collection[TopicPartition], id_: str) -> dict[TopicPartition, AppliedReset]:
    """How a reset by a client without marks is recorded, if no ledger contains earlier ones.

    Args:
        partitions: the partitions that it has reset.
        id_: the id of the reset.
    """
    return {tp: NO_RESET.then(id_) for tp in partitions}


def is_reset_id(text: str) -> bool:
    """Whether a text has the form of :func:`new_reset_id`.

    >>> is_reset_id("5f2c"), is_reset_id("x"), is_reset_id("")
    (True, False, False)
    """
    return AppliedReset.parse(f"0.{text}") != NO_RESET
