"""The two topics of a join, whose partitions belong together in pairs.

Partition p of one topic and partition p of the other one are read by the same task, because records with equal keys are
in both. Used by :mod:`streamgroups.query.joined_states`, ``streamgroups_operators.joins`` and ``streamgroups_spark.joins``.
Source: SEMANTICS S9, S10, W18; co-partitioning in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition

#: The value of a state of a join with the topic of the other partition.
PARTNER = "partner"


@dataclass(frozen=True, slots=True)
class JoinedTopics:
    """The topics of a join.

    Args:
        left: the topic of the left records.
        right: the topic of the right records.
    """

    left: str
    right: str

    def partner(self, topic_partition: TopicPartition) -> TopicPartition:
        """The partition of the other topic with the same number.

        >>> JoinedTopics("orders", "payments").partner(TopicPartition("payments", 3))
        TopicPartition(topic='orders', partition=3)
        """
        other = self.right if topic_partition.topic == self.left else self.left
        return TopicPartition(other, topic_partition.partition)

    def pair(self, topic_partition: TopicPartition) -> tuple[TopicPartition, TopicPartition]:
        """The left and the right partition with this number."""
        number = topic_partition.partition
        return TopicPartition(self.left, number), TopicPartition(self.right, number)

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Checks that each partition has a partner.

        Args:
            partitions: all partitions that the group reads.

        Raises:
            InvalidOption: if the group reads other topics, or the topics have different numbers of partitions.
        """
        numbers: Mapping[str, set[int]] = {self.left: set(), self.right: set()}
        for tp in partitions:
            if tp.topic not in numbers:
                raise InvalidOption(
                    f"sg.join joins '{self.left}' and '{self.right}', but its stream also reads '{tp.topic}'.",
                    remedy=f"Set subscribe to '{self.left},{self.right}'.",
                )
            numbers[tp.topic].add(tp.partition)
        left, right = numbers[self.left], numbers[self.right]
        if left == right:
            return
        for topic, found in numbers.items():
            if not found:
                raise InvalidOption(
                    f"sg.join joins '{self.left}' and '{self.right}', but its stream does not read '{topic}'.",
                    remedy=f"Set subscribe to '{self.left},{self.right}'.",
                )
        raise InvalidOption(
            f"sg.join joins '{self.left}' with {len(left)} partitions and '{self.right}' with {len(right)} partitions. "
            "Records with equal keys must be in partitions with the same number.",
            remedy=f"Write one of them to a topic with {max(len(left), len(right))} partitions with sg.repartition, and "
            "join that topic.",
        )
