"""The sizes of partitions on disk, which the planner uses for tasks of equal size.

``cluster`` calls it on the driver, at intervals. librdkafka does not have this request. It requires Describe on the
cluster. Without it the sizes are unknown, and nothing else changes. Source: KIP-113 (DescribeLogDirs).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.private_kafka_python import DescribeLogDirsRequest

logger = logging.getLogger(__name__)

#: Short, because the sizes are optional.
_TIMEOUT_S = 3.0


def stored_bytes(config: ClientConfig, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of each partition on the disks of brokers: the size of its largest replica. Raises no errors.

    Args:
        config: the configuration of the client.
        partitions: the partitions.

    Returns:
        The sizes in bytes, of those partitions that brokers report.
    """
    try:
        session = AdminSession(config, timeout_s=_TIMEOUT_S)
        try:
            return session.run("The sizes of partitions could not be requested", _sizes, session, partitions)
        finally:
            session.close()
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
    answers = await session.send_all({node: DescribeLogDirsRequest(topics=topics) for node in session.broker_ids})
    found: dict[TopicPartition, int] = {}
    for answer in answers.values():
        session.check(getattr(answer, "error_code", 0), "The sizes of partitions could not be requested")
        for directory in answer.results:
            session.check(directory.error_code, "The sizes of partitions could not be requested")
            for topic in directory.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.name, partition.partition_index)
                    found[tp] = max(found.get(tp, 0), partition.partition_size)
    return found
