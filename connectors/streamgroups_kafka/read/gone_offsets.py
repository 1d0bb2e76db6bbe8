"""Handles offsets of ranges that the brokers no longer have.

Used by ``range_reader``. The retention of a topic applies to all its partitions at the same time, so a task can have thousands of
expired ranges. Their bounds are requested together, and their gaps are recorded together. Source: SEMANTICS S4, S7.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from streamgroups.errors import DataLoss
from streamgroups.groups.gaps import Cause, Gap, PartitionGap
from streamgroups.partitions import TopicPartition
from streamgroups.query.data_loss import OnDataLoss
from streamgroups.retry import retrying
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.read.fetcher import Fetcher, ReadSettings

if TYPE_CHECKING:
    from streamgroups_kafka.admin.cluster import KafkaCluster

logger = logging.getLogger(__name__)

#: How long the request for the bounds of partitions is repeated.
_BOUNDS_S = 10.0
#: How many partitions the client of the reader requests one by one. One request for more of them needs another client.
_MAX_SINGLE_BOUNDS = 4
#: How long a task waits for the metadata group for the gaps of its group.
_GAPS_S = 10.0


class GoneOffsets:
    """The missing offsets of one read. Not shared between threads.

    Args:
        settings: the settings of the reader.
    """

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._gaps: list[PartitionGap] = []
        self._cluster: KafkaCluster | None = None

    def pass_over(self, fetcher: Fetcher, partitions: Collection[TopicPartition]) -> bool:
        """Continues ranges after the offsets that do not exist, or ends them.

        Args:
            fetcher: the fetcher of the ranges.
            partitions: the open ranges whose next offset a broker does not have.

        Returns:
            Whether a range is now at a later offset, or has ended.

        Raises:
            DataLoss: if the policy of a partition is to fail.
            StreamGroupsError: if the bounds of a partition cannot be read.
        """
        # Offsets can be out of range because the leader has changed. Both clients then request the bounds from the former
        # one, whose error refreshes their metadata.
        if len(partitions) > _MAX_SINGLE_BOUNDS:
            bounds = self._bounds_of_all(partitions)
        else:
            bounds = {tp: retrying(_BOUNDS_S, every_s=0.1)(self._bounds, fetcher, tp) for tp in partitions}
        # Each range is handled: ``any`` alone stops at the first one.
        passed = [self._pass_over(fetcher, tp, *bounds[tp]) for tp in partitions]
        return any(passed)

    def _pass_over(self, fetcher: Fetcher, topic_partition: TopicPartition, earliest: int, end: int) -> bool:
        required = fetcher.find(topic_partition)
        if required is None:
            return False
        if earliest <= required.next_offset < end:
            # The offset exists: the error came from a broker that is not the leader.
            fetcher.seek(topic_partition, required.next_offset)
            return False
        group_id = self._settings.group_id
        gone = f"Group '{group_id}': {required} cannot be read, because {topic_partition} now contains [{earliest}, {end})."
        policy = self._settings.on_data_loss.of(topic_partition)
        if policy is OnDataLoss.FAIL:
            raise DataLoss(
                gone,
                remedy="Set onDataLoss=skip or onDataLoss=earliest to continue at an existing offset, or reset "
                "the offsets with streamgroups groups reset.",
            )
        logger.warning("%s The missing records are skipped (onDataLoss=%s).", gone, policy.value)
        is_expired = required.next_offset < earliest
        continues_at = min(earliest, required.end_offset) if is_expired else required.end_offset
        if self._settings.records_gaps:
            cause = Cause.EXPIRED if is_expired else Cause.TRUNCATED
            gap = Gap(required.next_offset, continues_at, cause, now_ms())
            self._gaps.append(PartitionGap(topic_partition, gap))
        if required.next_offset < earliest < required.end_offset:
            fetcher.seek(topic_partition, earliest)
        else:
            fetcher.end(topic_partition)
        return True

    def _bounds(self, fetcher: Fetcher, topic_partition: TopicPartition) -> tuple[int, int]:
        try:
            return fetcher.bounds(topic_partition)
        except KafkaException as e:
            raise to_streamgroups_error(
                e.args[0],
                f"The offsets of {topic_partition}",
                topic=topic_partition.topic,
                redact=self._settings.client.redact,
            ) from None

    def _bounds_of_all(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Requests the bounds with one request per broker. librdkafka's consumer has only requests for one partition."""
        if self._cluster is None:
            # Each worker waits for the imports of this module, and few read more than some expired ranges.
            from streamgroups_kafka.admin.cluster import KafkaCluster

            client = self._settings.client
            self._cluster = KafkaCluster(
                client,
                read_committed=client.isolation_level == "read_committed",
                attempts=1,
                retry_interval_ms=100,
                outage_s=_BOUNDS_S,
            )
        earliest, ends = self._cluster.beginning_offsets(partitions), self._cluster.end_offsets(partitions)
        return {tp: (earliest[tp], ends[tp]) for tp in partitions}

    def record_gaps(self) -> None:
        """Records the gaps of the read together: each record is a connection, and waits for its check.

        A task that ends before it has recorded them is repeated, and finds them again.
        """
        gaps, self._gaps = self._gaps, []
        if not gaps:
            return
        # Each worker waits for the imports of this module, and few have a gap to record.
        from streamgroups_kafka.admin.gap_records import GapRecords
        from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore

        settings = self._settings
        records = GapRecords(
            lambda: KafkaMetadataStore(settings.client, retry_timeout_s=_GAPS_S), settings.group_id, now_ms
        )
        records.record(gaps, alone=False)
