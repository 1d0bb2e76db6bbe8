"""The board: what members of a group tell each other, kept in auxiliary Kafka groups that nobody ever joins.

Read and written through the port :class:`streamgroups.ports.Board`, by ``streamgroups_kafka.cursor_session`` (as a member) and
``streamgroups_kafka.group_desk`` (as whoever looks at a group or moves it). There are two, so that no note can wipe out
another:

* ``<group>.streamgroups``, written by the owner of a partition only: its name, its lease, and which order it has obeyed.
* ``<group>.streamgroups.resets``, written by whoever moves the group: one :class:`Order` per partition.

Every note is a committed offset with JSON as its metadata, which a broker limits to 4,096 bytes. Source:
SEMANTICS G8, G9, G15.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.partitions import TopicPartition

_BOARD = ".streamgroups"
_RESETS = ".streamgroups.resets"
_VERSION = 1


def board_of(group: str) -> str:
    """The auxiliary group that owners write to.

    >>> board_of("billing")
    'billing.streamgroups'
    """
    return group + _BOARD


def resets_of(group: str) -> str:
    """The auxiliary group that orders are written to.

    >>> resets_of("billing")
    'billing.streamgroups.resets'
    """
    return group + _RESETS


def is_auxiliary(group: str) -> bool:
    """Whether a group is one of these, and so no group that anybody reads with.

    >>> is_auxiliary("billing"), is_auxiliary("billing.streamgroups")
    (False, True)
    """
    return group.endswith((_BOARD, _RESETS))


@dataclass(frozen=True, slots=True)
class Note:
    """What the owner of a partition writes about itself.

    Args:
        instance: the owner's name.
        used_ms: when it last made a request, milliseconds since the epoch.
        until_ms: until when it is in the group if it makes none any more.
        obeyed: the id of the last order it has obeyed for this partition.

    >>> note = Note("worker-1", 1_000, 31_000)
    >>> Note.parse(note.encode()) == note
    True
    """

    instance: str
    used_ms: int
    until_ms: int
    obeyed: str = ""

    def encode(self) -> str:
        """As metadata."""
        return _json({"instance": self.instance, "used": self.used_ms, "until": self.until_ms, "obeyed": self.obeyed})

    @classmethod
    def parse(cls, metadata: str) -> Note | None:
        """Reads metadata back; ``None`` if it is no note, or one of a newer version."""
        raw = _read(metadata)
        try:
            return cls(str(raw["instance"]), int(raw["used"]), int(raw["until"]), str(raw["obeyed"]))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Order:
    """Somebody moves a partition of the group: its owner is to go on at ``next_offset``.

    Args:
        id: tells this order from all others.
        next_offset: where to go on.
        void: whether the order only cancels the one before it.

    >>> order = Order("5f2c", 100)
    >>> Order.parse(order.next_offset, order.encode()) == order
    True
    """

    id: str
    next_offset: int
    void: bool = False

    def encode(self) -> str:
        """As metadata; the offset is committed beside it."""
        return _json({"order": self.id, "void": self.void})

    @classmethod
    def parse(cls, next_offset: int, metadata: str) -> Order | None:
        """Reads an order back; ``None`` if it is none, or one of a newer version."""
        raw = _read(metadata)
        try:
            return cls(str(raw["order"]), next_offset, bool(raw["void"]))
        except (KeyError, TypeError):
            return None


def pending(
    orders: Mapping[TopicPartition, Order], obeyed: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Order]:
    """The orders that are still to be obeyed.

    Args:
        orders: the last one for each partition.
        obeyed: the id of the order that was last obeyed for each partition.

    >>> p = TopicPartition("flights", 0)
    >>> list(pending({p: Order("5f2c", 100)}, {p: "5f2c"}))
    []
    """
    return {tp: order for tp, order in orders.items() if not order.void and obeyed.get(tp, "") != order.id}


def _json(fields: dict[str, object]) -> str:
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":"))


def _read(metadata: str) -> dict[str, Any]:
    try:
        # confluent-kafka commits the NUL that ends the text in C along with it; only its own reader takes it away again.
        raw = json.loads(metadata.rstrip("\0"))
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) and raw.get("v") == _VERSION else {}
