"""What sources and sinks ask each other (``rendezvous``).

A sink asks about the batch that it writes (``batch_seen``) and the source answers (``running_query``); before it starts, the source asks for the
ledger of its group, and the user's own process answers (``kept_ledgers``). Source: SEMANTICS X2, X3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.groups.joining import MembershipMode
from streamgroups.partitions import OffsetRange
from streamgroups_kafka.group_claim import GroupClaim


@dataclass(frozen=True, slots=True)
class BatchQuestion:
    """Who runs the batch that ends here?

    Args:
        end: the offset as Spark has logged it for the source.
        to_commit: whether whoever asks commits the source's offsets next, in a transaction of its own.
    """

    end: Mapping[str, Any]
    to_commit: bool = False


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """The batch that ends here is written, and its offsets are committed with it. Nobody answers.

    Args:
        end: the offset as Spark has logged it for the source.
    """

    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerQuestion:
    """Which sink keeps the ledger of a group? Asked by the source, answered by the user's own process (``kept_ledgers``).

    Args:
        group_id: the group that the source reads for.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """A batch as its source knows it now.

    Args:
        end: the offset at which it ends.
        group_id: the group that the source reads for.
        member: the source's name in it.
        ranges: what the batch reads; nothing if Spark runs it only to move its watermark.
        held: what of that is still the member's.
        written: what of that the sink has committed already, before a restart.
        claim: by which the group knows the member; ``None`` if nobody can be sure that it still does.
        mode: how the source is in the group.
        joins: whether it is a member at all: with the option ``assign`` it is not.
    """

    end: Mapping[str, Any]
    group_id: str
    member: str
    ranges: tuple[OffsetRange, ...]
    held: tuple[OffsetRange, ...]
    written: tuple[OffsetRange, ...]
    claim: GroupClaim | None
    mode: MembershipMode
    joins: bool
