"""What sources and sinks ask each other (``rpc``).

A sink asks about the batch that it writes (``batch_info``) and the source answers (``running_query``); before it starts, the source asks for the
ledger of its group, and the user's own process answers (``ledger_registry``). Source: SEMANTICS X2, X3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight
from streamgroups.partitions import OffsetRange
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.state import MemberSnapshot


@dataclass(frozen=True, slots=True)
class BatchRequest:
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
class LedgerRequest:
    """Which sink keeps the ledger of a query? Requested by its source, answered by the user's own process (``ledger_registry``).

    Args:
        group_id: the group that the source reads for.
        checkpoint: the query's, as Spark has resolved it; ``None`` if it is not known.
    """

    group_id: str
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """For how long has a batch been in flight? Asked by ``metrics_listener``; every source answers with a
    :class:`~streamgroups.monitoring.metrics.BatchFlight`."""


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
    group_metadata: ConsumerGroupMetadata | None
    mode: MembershipMode
    joins: bool


def facts_of(
    end: Mapping[str, Any],
    run: InFlight,
    snapshot: MemberSnapshot,
    written: InFlight,
    *,
    group_id: str,
    member: str,
    mode: MembershipMode,
    joins: bool,
) -> BatchFacts:
    """What a source says of the batch that Spark runs.

    Args:
        end: the offset at which it ends.
        run: its number, and all that it reads.
        snapshot: the ranges in flight and the group metadata of the member, of one moment.
        written: the batch that was written, or a part of it, when the query was restarted.
        group_id: the group that the source reads for.
        member: the source's name in it.
        mode: how the source is in the group.
        joins: whether it is a member at all.

    >>> from streamgroups.partitions import TopicPartition
    >>> r = OffsetRange(TopicPartition("flights", 0), 10, 20)
    >>> facts = facts_of({}, InFlight(3, (r,)), MemberSnapshot(InFlight(3, ()), None), InFlight(0, ()),
    ...                  group_id="board", member="a", mode=MembershipMode.SHARED, joins=True)
    >>> facts.ranges == (r,), facts.held
    (True, ())
    """
    # A batch that is finished is followed by one that reads nothing: Spark moves its watermark so.
    is_in_flight = snapshot.in_flight is not None and snapshot.in_flight.number == run.number
    planned = run.ranges if is_in_flight else ()
    return BatchFacts(
        end=end,
        group_id=group_id,
        member=member,
        ranges=planned,
        held=snapshot.in_flight.ranges if snapshot.in_flight is not None and planned else (),
        written=tuple(r for r in planned if r in written.ranges) if written.number == run.number else (),
        group_metadata=snapshot.group_metadata,
        mode=mode,
        joins=joins,
    )
