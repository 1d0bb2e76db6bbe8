"""Requests the ids of topics and of their cluster, through librdkafka's admin API.

Used by ``cluster``, and by ``instances.entry_reader``, which must not wait for a response. Source: KIP-516 (topic ids), KIP-78
(cluster ids); SEMANTICS S7, S11.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streamgroups.identity import TopicIdentity
from streamgroups_kafka.client.responses import PartRejected

#: The placeholder for a missing topic id, from brokers before 2.8: the UUID of zeros.
_NO_ID = "A" * 22


class RequestedIdentities:
    """The ids of topics, as they were requested. Both requests run concurrently.

    Args:
        admin: the client.
        names: the names of the topics, at least one.
        timeout_s: the timeout of the requests, in seconds.
    """

    def __init__(self, admin: AdminClient, names: Collection[str], timeout_s: float) -> None:
        self._topics = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        self._cluster = admin.describe_cluster(request_timeout=timeout_s)

    @property
    def are_there(self) -> bool:
        """Whether :meth:`result` returns or raises at once."""
        return self._cluster.done() and all(it.done() for it in self._topics.values())

    def result(self) -> dict[str, TopicIdentity]:
        """Waits for the responses, and returns the ids of the topics that exist.

        Raises:
            PartRejected: if this user may not describe a topic.
            KafkaException: if a request fails.
        """
        found = {}
        for name, future in self._topics.items():
            try:
                topic_id = _printed(future.result().topic_id)
            except KafkaException as e:
                code = e.args[0].code()
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise PartRejected(e.args[0], [name], name) from None
                if code != KafkaError._UNSUPPORTED_FEATURE:
                    raise
                topic_id = _NO_ID
            found[name] = None if topic_id == _NO_ID else topic_id
        cluster_id = self._cluster.result().cluster_id or None
        return {name: TopicIdentity(cluster_id, topic_id) for name, topic_id in found.items()}


def _printed(topic_id: object) -> str:
    """Formats an id as Kafka's tools do. librdkafka uses another alphabet of base64.

    >>> _printed("//7+w")
    '__7-w'
    """
    return str(topic_id).replace("+", "-").replace("/", "_")
