"""The event time by which a query plans the batches of its operator.

Used by ``streamgroups.query.operator_states``. :class:`OperatorTime` serves an operator whose states each have their own
event time, or none. ``streamgroups.query.group_time`` follows the watermark of the group, and
``streamgroups.query.imported_time`` also that of another group. Source: SEMANTICS W2, W10, S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.event_time.explanation import StreamExplanation, explain_partitions
from streamgroups.event_time.stored_time import time_of
from streamgroups.event_time.watermark import NOT_YET, Watermark
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.query.alignment import EventTimes


class OperatorTime:
    """The event time of an operator that does not use the watermark of the group."""

    def check(self) -> None:
        """Checks an imported watermark before the first batch.

        Raises:
            InvalidOption: if the query imports the watermark of a group without event time.
        """

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        """Returns the watermark of the group.

        Args:
            owned: the partitions of the query, with the states of their positions.
            read: the partitions with records in the next batch of the query.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        return NOT_YET

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes | None:
        """Returns the event time of each partition of the group, for ``maxDrift``; ``None`` without group time.

        Args:
            owned: the partitions of the query, with the states of their positions.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        return None

    def explain(self, group_id: str, member: str, owned: Mapping[TopicPartition, Owned]) -> StreamExplanation | None:
        """Explains the event time of the partitions; ``None`` if none has one. Safe to call from any thread.

        Args:
            group_id: the consumer group.
            member: the member of the group.
            owned: the partitions of the query, with the states of their positions.
        """
        if all(time_of(it.state) is None for it in owned.values()):
            return None
        return explain_partitions(group_id, member, {tp: it.state for tp, it in owned.items()})
