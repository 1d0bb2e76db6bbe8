"""Requests of a query that librdkafka does not have: the sizes of partitions, and the ends of leader epochs.

``cluster`` calls them on the driver. They are rare, so each has a connection of its own. The planner requests the sizes on
disk at intervals, for tasks of equal size. They require Describe on the cluster. The ends of leader epochs show whether a log
was truncated behind a position: they are requested when a position has an earlier leader epoch than its partition, and
require Describe on the topic. Source: KIP-113 (DescribeLogDirs); KIP-101, KIP-320 (OffsetForLeaderEpoch).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any

import kafka.errors

from streamgroups.errors import LoginRejected, StreamGroupsError
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.missing_acls import DESCRIBE
from streamgroups_kafka.client.private_kafka_python import (
    DescribeLogDirsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)

logger = logging.getLogger(__name__)

_SIZES = "The sizes of partitions could not be requested"
#: Short, because the sizes are optional.
_SIZES_TIMEOUT_S = 3.0
_ENDS = "The leader epochs of partitions could not be compared"
#: The broker ID of a consumer.
_CONSUMER = -1
#: The epoch or end of a log that has no epochs, for example of records from before Kafka 0.11.
_UNDEFINED = -1


def stored_bytes(config: ClientConfig, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of each partition on the disks of brokers: the size of its largest replica. Raises no errors.

    Args:
        config: the configuration of the client.
        partitions: the partitions.

    Returns:
        The sizes in bytes, of those partitions that brokers report.
    """
    try:
        with closing(AdminSession(config, timeout_s=_SIZES_TIMEOUT_S)) as session:
            return session.run(_SIZES, _sizes, session, partitions)
    except StreamGroupsError as e:
        logger.info("Tasks are sized by numbers of records. %s", e)
    except Exception as e:
        # The sizes are optional, so an error must not end a query.
        logger.warning(
            "Tasks are sized by numbers of records: the request for partition sizes failed (%s)",
            config.redact(f"{type(e).__name__}: {e}"),
        )
    return {}


async def _sizes(session: AdminSession, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=numbers)
        for topic, numbers in by_topic((tp, tp.partition) for tp in sorted(partitions)).items()
    ]
    answers = await session.send_all(
        {node: DescribeLogDirsRequest(topics=topics) for node in await session.broker_ids()}
    )
    found: dict[TopicPartition, int] = {}
    for answer in answers.values():
        session.check(getattr(answer, "error_code", 0), _SIZES)
        for directory in answer.results:
            session.check(directory.error_code, _SIZES)
            for topic in directory.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.name, partition.partition_index)
                    found[tp] = max(found.get(tp, 0), partition.partition_size)
    return found


def epoch_ends(
    config: ClientConfig, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """See :meth:`streamgroups.ports.Cluster.epoch_ends`.

    If the request cannot succeed, for example with a mechanism that only librdkafka supports, a warning is logged and all
    partitions are left out.

    Args:
        config: the configuration of the client.
        leader_epochs: the leader epochs whose ends are requested.
        current: the current leader epochs, as far as they are known.

    Raises:
        LoginRejected: if the brokers reject the login. A later run can have another password.
        StreamGroupsError: after transient errors: a later attempt can succeed.
    """
    try:
        with closing(AdminSession(config)) as session:
            return session.run(_ENDS, _ends, session, leader_epochs, current)
    except StreamGroupsError as e:
        if e.retriable or isinstance(e, LoginRejected):
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
        session.check(t.error_code, _ENDS, topic=t.name, operations=DESCRIBE)
        for p in t.partitions:
            tp = TopicPartition(t.name, p.partition_index)
            if tp in leader_epochs:
                session.check(p.error_code, _ENDS, topic=t.name, operations=DESCRIBE)
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
                session.check(p.error_code, _ENDS, topic=t.topic, operations=DESCRIBE)
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
