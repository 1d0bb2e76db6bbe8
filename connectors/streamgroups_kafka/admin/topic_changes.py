"""Creates topics, and reads their settings, through librdkafka's admin API.

Called by :mod:`streamgroups_kafka.admin.topics` for ``streamgroups topics``, and by ``streamgroups_spark`` on
the driver, before a query starts. Source: KIP-4 (CreateTopics), KIP-464 (the defaults of the broker).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from streamgroups.cleanup_policy import check_not_compacted
from streamgroups.errors import BrokerUnreachable, InvalidOption, StreamGroupsError
from streamgroups.retry import comes_true
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S, KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import CREATE, DESCRIBE_CONFIGS

logger = logging.getLogger(__name__)

#: The number of partitions, or the replication factor, that the broker has as its default.
_BROKERS_DEFAULT = -1
#: The brokers receive the metadata of a changed topic one after the other.
_VISIBLE_S = 30.0

#: Errors in the arguments of a new topic. The broker's text names the value.
_INVALID = {
    KafkaError.TOPIC_EXCEPTION: "Use letters, digits, '.', '_' and '-', at most 249 characters.",
    KafkaError.INVALID_PARTITIONS: "Use a number of partitions of at least 1.",
    KafkaError.INVALID_REPLICATION_FACTOR: "Use at most as many replicas as there are brokers, or the broker's default.",
    KafkaError.INVALID_CONFIG: "Check the names and values of the settings in Kafka's topic configuration.",
    KafkaError.POLICY_VIOLATION: "The policy of the brokers decides: see 'create.topic.policy.class.name'.",
}


def create_topic(
    config: ClientConfig,
    topic: str,
    partitions: int | None,
    *,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> bool:
    """Creates a topic, and waits until it is visible. It can exist already.

    Args:
        config: the configuration of the client.
        topic: the topic.
        partitions: its number of partitions. ``None`` for the broker's default.
        replication_factor: its number of replicas. ``None`` for the broker's default.
        settings: settings of the topic, such as ``retention.ms``.

    Returns:
        Whether it was created; ``False`` if it existed.

    Raises:
        InvalidOption: if the broker rejects an argument.
        NotAuthorized: if the user may not create it, or may not describe it afterwards.
        BrokerUnreachable: if no broker responds, or the topic is not visible in time.
        StreamGroupsError: if the broker rejects the topic for another reason.
    """
    admin = AdminClient(dict(config.for_admin()))
    new = NewTopic(
        topic,
        _BROKERS_DEFAULT if partitions is None else partitions,
        _BROKERS_DEFAULT if replication_factor is None else replication_factor,
        config=dict(settings or {}),
    )
    created = True
    try:
        admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[topic].result()
    except KafkaException as e:
        # Without the permission to create it, a broker does not report that the topic exists.
        exists = e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS or (
            e.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and topic in KafkaCluster(config).topics()
        )
        if not exists:
            raise _creation_error(e.args[0], topic, config) from None
        created = False
    cluster = KafkaCluster(config)
    # The list of topics does not contain a topic that the user may not describe. A request for its id is rejected.
    if not comes_true(
        lambda: topic in cluster.topics() or bool(cluster.identities([topic])), _VISIBLE_S, every_s=0.1, slowest_s=1
    ):
        raise BrokerUnreachable(
            f"Topic '{topic}' is created, but no broker lists it after {_VISIBLE_S:.0f} s.",
            remedy="Check the brokers, and start the query again.",
            topic=topic,
        )
    return created


def topic_settings(config: ClientConfig, topic: str) -> dict[str, str]:
    """Returns the settings of a topic, by their names.

    Raises:
        NotAuthorized: if this user may not read them.
        StreamGroupsError: if the topic does not exist, or the brokers do not respond.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(dict(config.for_admin()))
    try:
        found = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
    except KafkaException as e:
        what = f"The settings of topic '{topic}' could not be read"
        raise to_streamgroups_error(
            e.args[0], what, topic=topic, operations=DESCRIBE_CONFIGS, redact=config.redact
        ) from None
    return {name: str(entry.value) for name, entry in found.items()}


def reject_compacted(config: ClientConfig, topic: str, consequence: str) -> None:
    """Rejects a topic in which a record replaces earlier ones with its key.

    Logs a warning if the policy cannot be read, such as without the permission.

    Args:
        config: the configuration of the client.
        topic: the topic. It exists.
        consequence: the consequence of compaction, for the error.

    Raises:
        InvalidOption: if the topic is compacted.
        StreamGroupsError: if the brokers do not respond.
    """
    try:
        policy = topic_settings(config, topic).get("cleanup.policy", "")
    except StreamGroupsError as e:
        if e.retriable:
            raise
        logger.warning("The topic '%s' must not be compacted, but its cleanup.policy is unknown. %s", topic, e)
        return
    check_not_compacted(topic, policy, consequence)


def _creation_error(error: KafkaError, topic: str, config: ClientConfig) -> StreamGroupsError:
    what = f"Topic '{topic}' could not be created"
    if error.code() in _INVALID:
        reason = config.redact(error.str()).strip().rstrip(".")
        return InvalidOption(f"{what}: {reason}.", remedy=_INVALID[error.code()], topic=topic)
    return to_streamgroups_error(error, what, topic=topic, operations=CREATE, redact=config.redact)
