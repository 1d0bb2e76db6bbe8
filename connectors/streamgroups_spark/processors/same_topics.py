"""Rejects a processor that reads its own output by a second connection to the cluster of its source.

Called by ``running`` before each run. :mod:`streamgroups.processors.rules` rejects the same with one connection, without a
request, and dead letters in another connection. Source: SEMANTICS P1; KIP-78 (the id of a cluster).
"""

from __future__ import annotations

from collections.abc import Callable

from streamgroups.errors import InvalidOption
from streamgroups.processors.processor import Processor, Sink, SinkKind
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_spark.sinks.sink_options import parse_sink


def reject_same_topic(declared: Processor, cluster_id_of: Callable[[str], str]) -> None:
    """Rejects an output topic that is also read, or has dead letters, if its connection has the cluster of the source.

    Args:
        declared: the processor.
        cluster_id_of: returns the id of the cluster of a connection.

    Raises:
        InvalidOption: if there is such a topic.
        StreamGroupsError: if a cluster does not respond.
    """
    source, topic = declared.source, _topic(declared.sink)
    if declared.sink is None or topic is None or declared.sink.connection == source.connection:
        return
    other = "source" if source.reads(topic) else "dead_letters" if _topic(declared.dead_letters) == topic else None
    if other is None:
        return
    own = str(declared.sink.connection)
    if cluster_id_of(own) == cluster_id_of(source.connection):
        raise InvalidOption(
            f"Topic '{topic}' of 'sink' is also a topic of '{other}': the connections '{own}' and '{source.connection}' have the same "
            "cluster.",
            remedy="Use another topic.",
        )


def _topic(sink: Sink | None) -> str | None:
    topic = None if sink is None or sink.kind is not SinkKind.KAFKA else sink.arguments.get("topic")
    return topic if isinstance(topic, str) else None


def cluster_id_of(connection: str) -> str:
    """Returns the id of the cluster of a Kafka connection.

    Raises:
        StreamGroupsError: if the cluster does not respond.
    """
    client = parse_sink({"connection": connection, "topic": "any", "delivery": "at-least-once"}).client
    return KafkaCluster(client, read_committed=False, request_subscriptions=False).cluster_id()
