"""Decides whether a query can continue at the target of a reset, and what that costs.

``streamgroups groups reset`` and ``import`` show it before anything changes. Source: SEMANTICS S10, O1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.errors import StateDamaged, StateMismatch, StateMissing, StreamGroupsError
from streamgroups.partitions import Bounds
from streamgroups.state.state_lookup import Choice, Position


@dataclass(frozen=True, slots=True)
class Continues:
    """A query continues with a state.

    Args:
        choice: the state.
        read_again: the number of offsets before the target that the query reads again, without output.
    """

    choice: Choice
    read_again: int


@dataclass(frozen=True, slots=True)
class Stops:
    """A query with ``onMissingState=fail`` stops.

    Args:
        error: the error that it raises.
    """

    error: StreamGroupsError


Continuation: TypeAlias = Continues | Stops


def continuation(position: Position, bounds: Bounds, find: Callable[[Position], Choice]) -> Continuation:
    """Decides from which state a query continues.

    Args:
        position: the target of the reset.
        bounds: the earliest offset and the end of the partition.
        find: finds the state of a position, and raises an error if no state leads there.

    >>> from streamgroups.partitions import TopicPartition
    >>> from streamgroups.state.state_lookup import Empty
    >>> from streamgroups.state.origins import UNNAMED
    >>> target = Position(TopicPartition("flights", 0), 12, UNNAMED)
    >>> continuation(target, Bounds(0, 20), lambda _: Empty(read_from=10))
    Continues(choice=Empty(read_from=10), read_again=2)
    >>> print(continuation(target, Bounds(11, 20), lambda _: Empty(read_from=10)).error.what)
    flights-0: the records from offset 10 to 12 bring its state to the target, and those before offset 11 are deleted.
    """
    try:
        choice = find(position)
    except (StateMissing, StateDamaged, StateMismatch) as e:
        return Stops(e)
    target, tp = position.next_offset, position.topic_partition
    if choice.read_from < min(bounds.beginning_offset, target):
        return Stops(
            StateMissing(
                f"{tp}: the records from offset {choice.read_from} to {target} bring its state to the target, and those "
                f"before offset {bounds.beginning_offset} are deleted.",
                remedy="Reset the group to an offset at which a batch has ended.",
                topic=tp.topic,
                partition=tp.partition,
            )
        )
    return Continues(choice, target - choice.read_from)
