"""Creates a topic, through librdkafka's admin API.

Called by ``streamgroups_spark.repartition`` on the driver, before a query starts. Source: KIP-4 (CreateTopics), KIP-464
(the broker's default replication factor).
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroups.errors import BrokerUnreachable
from streamgroups.retry import comes_true
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S, KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error

#: The replication factor ``default.replication.factor`` of the broker.
_BROKERS_DEFAULT = -1
#: The brokers receive the metadata of a new topic one after the other.
_VISIBLE_S = 30.0


def create_topic(config: ClientConfig, topic: str, partitions: int) -> None:
    """Creates a topic with the settings of the broker, and waits until it is visible. It can exist already.

    Args:
        config: the configuration of the client.
        topic: the topic.
        partitions: its number of partitions.

    Raises:
        NotAuthorized: if the user may not create it.
        BrokerUnreachable: if no broker responds, or the topic is not visible in time.
        StreamGroupsError: if the broker rejects the topic for another reason.
    """
    admin = AdminClient(dict(config.for_admin()))
    new = NewTopic(topic, partitions, _BROKERS_DEFAULT)
    try:
        admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[topic].result()
    except KafkaException as e:
        if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            what = f"Topic '{topic}' could not be created"
            raise to_streamgroups_error(e.args[0], what, topic=topic, redact=config.redact) from None
    cluster = KafkaCluster(config)
    if not comes_true(lambda: topic in cluster.topics(), _VISIBLE_S, every_s=0.1, slowest_s=1):
        raise BrokerUnreachable(
            f"Topic '{topic}' is created, but no broker lists it after {_VISIBLE_S:.0f} s.",
            remedy="Check the brokers, and start the query again.",
            topic=topic,
        )
