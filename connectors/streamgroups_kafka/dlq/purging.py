"""Deletes the first records of partitions.

Called by ``streamgroups dlq purge``. Source: KIP-107 (DeleteRecords).
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import DELETE
from streamgroups_kafka.client.partition_conversion import from_confluent, to_confluent


def delete_before(
    config: ClientConfig, next_offsets: Mapping[TopicPartition, int], *, timeout_s: float
) -> dict[TopicPartition, StreamGroupsError]:
    """Deletes all records before an offset of each partition.

    Args:
        config: the configuration of the client.
        next_offsets: the first offset of each partition that remains.
        timeout_s: how long to wait for the cluster, in seconds.

    Returns:
        The partitions whose records were not deleted, with the reasons.
    """
    admin = AdminClient(dict(config.for_admin()))
    requested = [to_confluent(tp, offset) for tp, offset in next_offsets.items()]
    failures = {}
    for partition, result in admin.delete_records(requested, request_timeout=timeout_s).items():
        try:
            result.result()
        except KafkaException as e:
            tp = from_confluent(partition)
            what = f"The records of {tp} could not be deleted"
            failures[tp] = to_streamgroups_error(
                e.args[0], what, topic=tp.topic, operations=DELETE, redact=config.redact
            )
    return failures
