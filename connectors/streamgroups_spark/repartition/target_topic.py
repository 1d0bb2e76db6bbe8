"""Checks that the topic of a repartitioning exists with the right settings, or creates it.

Called by ``repartition.repartition``: it checks the topic when the query is built, and creates it at the start. A topic that a
broker creates by itself has one partition mostly, and the state of operators depends on the number. Source: SEMANTICS S12.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.acls import grant
from streamgroups.errors import InvalidOption, NotAuthorized, UnknownTopic
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.topic_changes import create_topic, reject_compacted
from streamgroups_kafka.client.config import ClientConfig


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """The topic of a repartitioning.

    Args:
        client: the connection.
        topic: the topic.
        partitions: its number of partitions. ``None``: the topic must exist, with any number.
    """

    client: ClientConfig
    topic: str
    partitions: int | None

    def partition_count(self) -> int:
        """Returns the number of partitions that the topic has, or will have.

        Raises:
            UnknownTopic: if it does not exist, and the number of partitions is not set.
            InvalidOption: if it exists with another number of partitions.
            StreamGroupsError: if the cluster does not respond or rejects the request.
        """
        existing = KafkaCluster(self.client).topics().get(self.topic)
        count = self.partitions if must_create(self.topic, existing, self.partitions) else existing
        assert count is not None, "must_create rejects it"
        return count

    def ensure(self) -> None:
        """Creates the topic if it does not exist.

        Raises:
            UnknownTopic: if it does not exist, and the number of partitions is not set.
            InvalidOption: if it exists with another number of partitions, or is compacted.
            StreamGroupsError: if the cluster does not respond or rejects the request.
        """
        cluster, topic, partitions = KafkaCluster(self.client), self.topic, self.partitions
        is_created = False
        if must_create(topic, cluster.topics().get(topic), partitions):
            assert partitions is not None, "must_create rejects it"
            try:
                # The broker's default can be another policy.
                is_created = create_topic(self.client, topic, partitions, settings={"cleanup.policy": "delete"})
            except NotAuthorized as e:
                # Kafka hides a topic that this user may not describe.
                remedy = f"{e.remedy}; if it exists: {grant('Write', 'Topic', [topic])}"
                raise NotAuthorized(e.what, remedy=remedy, topic=topic) from None
            # Another query may have created the topic at the same time, with another number.
            must_create(topic, cluster.topics().get(topic), partitions)
        if not is_created:
            reject_compacted(self.client, topic, "the broker deletes all records of a key except the last one")


def must_create(topic: str, existing: int | None, partitions: int | None) -> bool:
    """Whether a topic must be created.

    Args:
        topic: the topic.
        existing: its number of partitions. ``None``: it does not exist.
        partitions: the number of partitions to create it with, or that it must have. ``None``: any number.

    Raises:
        UnknownTopic: if it does not exist, and the number of partitions is not set.
        InvalidOption: if it has another number of partitions.

    >>> must_create("by-airport", None, 8), must_create("by-airport", 8, 8), must_create("by-airport", 3, None)
    (True, False, False)
    """
    if existing is None and partitions is None:
        raise UnknownTopic(
            f"Topic '{topic}' does not exist.",
            remedy="Set 'partitions' to create it, such as partitions=8, or create it with Kafka's tools. If it exists: "
            + grant("Write", "Topic", [topic]),
            topic=topic,
        )
    if existing is not None and partitions not in (None, existing):
        raise InvalidOption(
            f"Topic '{topic}' has {existing} partitions, but option 'partitions' is {partitions}. The state of operators "
            "depends on the number.",
            remedy=f"Set partitions={existing}, or use another topic.",
            topic=topic,
        )
    return existing is None
