"""Creates topics for tests.

Called by the fixture ``new_topic`` and by test programs. Source: KIP-631: the controller creates a topic, and brokers
receive its metadata afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamgroups_testkit.waits import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def create_topic(admin: AdminClient, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Creates a topic, and waits until its broker has the metadata.

    Args:
        admin: a client of the cluster.
        topic: the name.
        partitions: the number of partitions.
        config: the configuration of the topic.
    """
    from confluent_kafka.admin import NewTopic

    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(30)

    def has_leaders() -> bool:
        found = admin.list_topics(topic, timeout=30).topics[topic]
        return len(found.partitions) == partitions and all(it.leader >= 0 for it in found.partitions.values())

    wait_until(has_leaders, f"the broker has the metadata of topic {topic}", 30, 0.02)
