"""The ends of leader epochs, which show whether a log was truncated behind a position.

``cluster`` calls it on the driver, when a position has an earlier leader epoch than its partition. librdkafka does not have
this request. It requires Describe on the topic. Source: KIP-101, KIP-320 (OffsetForLeaderEpoch).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import kafka.errors

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.missing_acls import DESCRIBE
from streamgroups_kafka.client.private_kafka_python import MetadataRequest, OffsetForLeaderEpochRequest

logger = logging.getLogger(__name__)

_WHAT = "The leader epochs of partitions could not be compared"
#: The broker ID of a consumer.
_CONSUMER = -1
#: The epoch or end of a log that has no epochs, for example of records from before Kafka 0.11.
_UNDEFINED = -1


def epoch_ends(
    config: ClientConfig, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """See :meth:`streamgroups.ports.Cluster.epoch_ends`.

    If the request cannot succeed, for example with a login that only librdkafka supports, a warning is logged and all
    partitions are left out.

    Args:
        config: the configuration of the client.
        leader_epochs: the leader epochs whose ends are requested.
        current: the current leader epochs, as far as they are known.

    Raises:
        StreamGroupsError: after transient errors: a later attempt can succeed.
    """
    try:
        session = AdminSession(config)
        try:
            return session.run(_WHAT, _ends, session, leader_epochs, current)
        finally:
            session.close()
    except StreamGroupsError as e:
        if e.retriable:
            raise
        logger.warning("A truncation of the log is not detected after this change of leaders. %s", e)
    return {}


async def _ends(
    session: AdminSession, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    names = sorted({tp.topic for tp in leader_epochs})
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    metadata = await session.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    by_leader: defaultdict[int, list[tuple[TopicPartition, Any]]] = defaultdict(list)
    for t in metadata.topics:
        session.check(t.error_code, _WHAT, topic=t.name, operations=DESCRIBE)
        for p in t.partitions:
            tp = TopicPartition(t.name, p.partition_index)
            if tp in leader_epochs:
                session.check(p.error_code, _WHAT, topic=t.name, operations=DESCRIBE)
                # A leader of another epoch responds with an error, and the next attempt reads the metadata again.
                fence = max(p.leader_epoch, current.get(tp, _UNDEFINED))
                by_leader[p.leader_id].append((tp, _partition(tp, fence, leader_epochs[tp])))
    found: dict[TopicPartition, int] = {}
    try:
        responses = await session.send_all({leader: _request(requested) for leader, requested in by_leader.items()})
    except kafka.errors.IncompatibleBrokerVersion:
        return {}
    for response in responses.values():
        for t in response.topics:
            for p in t.partitions:
                session.check(p.error_code, _WHAT, topic=t.topic, operations=DESCRIBE)
                if _UNDEFINED not in (p.leader_epoch, p.end_offset):
                    found[TopicPartition(t.topic, p.partition)] = p.end_offset
    return found


def _partition(tp: TopicPartition, fence: int, leader_epoch: int) -> Any:
    return OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
        partition=tp.partition, current_leader_epoch=fence, leader_epoch=leader_epoch
    )


def _request(requested: list[tuple[TopicPartition, Any]]) -> Any:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = [topic(topic=name, partitions=partitions) for name, partitions in by_topic(requested).items()]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
