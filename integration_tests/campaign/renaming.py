"""Other names for partitions in a history: two logs of one partition have the same offsets. Used by ``campaign.recreation`` and
``campaign.unclean_elections``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias

from integration_tests.history.events import Event
from streamgroups.partitions import OffsetRange, TopicPartition

#: Returns the name of a partition in the history.
Rename: TypeAlias = Callable[[TopicPartition], TopicPartition]


def renamed(value: Any, rename: Rename) -> Any:
    """An event, positions, a range or a partition with other names.

    >>> renamed({TopicPartition("in", 1): 7}, lambda tp: TopicPartition("old", tp.partition))
    {TopicPartition(topic='old', partition=1): 7}
    """
    if isinstance(value, TopicPartition):
        return rename(value)
    if isinstance(value, OffsetRange):
        return replace(value, topic_partition=rename(value.topic_partition))
    if isinstance(value, Mapping):
        return {renamed(tp, rename): n for tp, n in value.items()}
    if isinstance(value, tuple):
        return tuple(renamed(it, rename) for it in value)
    if isinstance(value, Event):
        values = {it.name: getattr(value, it.name) for it in fields(value)}
        return replace(
            value, **{n: renamed(v, rename) for n, v in values.items() if not isinstance(v, str | int | None)}
        )
    return value
