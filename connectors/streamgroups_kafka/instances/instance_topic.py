"""The topic of an instance: it is created with the required settings, and checked before each use.

Created by ``streamgroups_cli`` and ``streamgroups_spark.workers``. Implements :class:`streamgroups.instances.ports.InstanceLog`.
Source: KIP-4; Kafka's topic configuration.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streamgroups.cleanup_policy import check_compacted
from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups.instances.entries import check_name, topic_of
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S
from streamgroups_kafka.admin.topic_changes import create_topic, topic_settings
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import DESCRIBE
from streamgroups_kafka.instances.entry_reader import KafkaEntryReader
from streamgroups_kafka.instances.entry_writers import KafkaEntryWriter, KafkaManagerWriter

_SETTINGS = {
    "cleanup.policy": "compact",
    # Most records are heartbeats. Compaction leaves out the active segment, which a reader reads from its start.
    "segment.bytes": str(16 * 2**20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class KafkaInstanceLog:
    """See :class:`streamgroups.instances.ports.InstanceLog`.

    Args:
        config: the configuration of the client.
        instance: the name of the instance.
        timeout_s: how long a write waits for its acknowledgement, in seconds.

    Raises:
        InvalidOption: if the name is not valid.
    """

    def __init__(self, config: ClientConfig, instance: str, *, timeout_s: float = 10.0) -> None:
        self._config, self._timeout_s = config, timeout_s
        self.instance = check_name(instance, "an instance")
        self.topic = topic_of(instance)

    def create(self) -> bool:
        """See :meth:`streamgroups.instances.ports.InstanceLog.create`."""
        if create_topic(self._config, self.topic, 1, settings=_SETTINGS):
            return True
        self.check()
        return False

    def check(self) -> None:
        """See :meth:`streamgroups.instances.ports.InstanceLog.check`."""
        admin = AdminClient(dict(self._config.for_admin()))
        partitions = self._partitions(admin)
        if partitions != 1:
            raise InvalidOption(
                f"Topic '{self.topic}' has {partitions} partitions, and the topic of an instance has 1.",
                remedy=self._recreate,
                topic=self.topic,
            )
        policy = topic_settings(self._config, self.topic)["cleanup.policy"]
        check_compacted(self.topic, policy, "the definitions of its processors are deleted")

    def reader(self) -> KafkaEntryReader:
        """See :meth:`streamgroups.instances.ports.InstanceLog.reader`."""
        return KafkaEntryReader(self._config, self.topic)

    def writer(self) -> KafkaEntryWriter:
        """See :meth:`streamgroups.instances.ports.InstanceLog.writer`."""
        return KafkaEntryWriter(self._config, self.topic, self._timeout_s)

    def manager(self) -> KafkaManagerWriter:
        """See :meth:`streamgroups.instances.ports.InstanceLog.manager`."""
        return KafkaManagerWriter(self._config, self.instance, self._timeout_s)

    def _partitions(self, admin: AdminClient) -> int:
        # A request for the metadata of a topic by its name would create it, on a broker that creates topics by itself.
        described = admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_TIMEOUT_S)
        try:
            return len(described[self.topic].result().partitions)
        except KafkaException as e:
            if e.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopic(
                    f"The instance '{self.instance}' does not exist: the cluster has no topic '{self.topic}'.",
                    remedy=f"Create it with: streamgroups instance run {self.instance}",
                    topic=self.topic,
                ) from None
            what = f"Topic '{self.topic}' could not be described"
            raise to_streamgroups_error(
                e.args[0], what, topic=self.topic, operations=DESCRIBE, redact=self._config.redact
            ) from None

    @property
    def _recreate(self) -> str:
        return f"Delete the topic if it belongs to another program, or use another name. 'streamgroups instance run {self.instance}' creates it."
