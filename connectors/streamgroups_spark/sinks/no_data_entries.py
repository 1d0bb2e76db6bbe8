"""The metadata entry of the last no-data batch that the Kafka sink has written.

Used by ``sinks.kafka`` on the driver: for no-data batches, and for the other batches of queries with state of Spark. The entry is an offset of a metadata group, committed in the transaction of the
output. It becomes visible with the output, and the producer epoch of the transaction fences zombies. Source: KIP-98, by
which a transaction can contain offsets of any group; :mod:`streamgroups.ledgers.no_data_batch`; SEMANTICS X2, X3.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from streamgroups.checkpoints.restart_after_expiry import no_data_unknown
from streamgroups.coordination.reset_protocol import no_data_group_of
from streamgroups.coordination.unreadable_entries import unreadable
from streamgroups.errors import PositionsDiffer
from streamgroups.ledgers.compare_and_swap import AlreadyDone
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch, judge_no_data, reject_set_back
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.metadata_store import RETRY_TIMEOUT_S, KafkaMetadataStore
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata


@dataclass(frozen=True, slots=True)
class NoDataEntry:
    """The metadata entry of one batch.

    Args:
        client: the configuration for the output cluster.
        group_id: the group whose metadata group stores the entry.
        partitions: the partitions that the query reads, at least one. Brokers store the entry only at an existing
            partition. The partition of the entry can change with their number, so all are read.
        batch: the batch to write.
    """

    client: ClientConfig
    group_id: str
    partitions: tuple[TopicPartition, ...]
    batch: NoDataBatch

    def is_there(self, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> bool:
        """Returns whether the batch is written. Waits while an open transaction can still change the result.

        Args:
            retry_timeout_s: the timeout, in seconds.

        Raises:
            FencedBatch: if a later batch is written, or another one with the same number.
            PositionsDiffer: if the entry and the offsets of the group have expired, or the entry cannot be read, so that the result
                is unknown (SEMANTICS F5, G17).
            StreamGroupsError: if the broker does not respond, or rejects the request.
        """
        with closing(KafkaMetadataStore(self.client, retry_timeout_s=retry_timeout_s)) as metadata_store:
            found = metadata_store.read(no_data_group_of(self.group_id), self.partitions)
            # The batches before it have committed offsets of the group.
            if not found and not metadata_store.read(self.group_id, self.partitions):
                raise no_data_unknown(self.batch.batch_id, self.group_id)
        recorded = _last(found, self.group_id, self.partitions, self.batch.number)
        return isinstance(judge_no_data(self.batch, recorded, group_id=self.group_id), AlreadyDone)

    @property
    def offsets(self) -> Mapping[TopicPartition, Committed]:
        """The offsets to commit."""
        place = _place(self.partitions, self.batch.query_id)
        # confluent-kafka takes the text for one that ends with a NUL.
        return {place: Committed(self.batch.batch_id, self.batch.encode() + "\0")}

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The consumer group metadata of the commit. It names no member, because the group has none."""
        return ConsumerGroupMetadata(no_data_group_of(self.group_id), None, "")


def reject_repeated_output(
    client: ClientConfig, group_id: str, partitions: tuple[TopicPartition, ...], batch: QueryBatch
) -> None:
    """Rejects a batch with records if its checkpoint was set back behind a no-data batch.

    Args:
        client: the configuration for the output cluster.
        group_id: the group whose metadata group stores the entry.
        partitions: the partitions that the query reads.
        batch: the batch to write.

    Raises:
        FencedBatch: if the entry has this number, or a later one.
        PositionsDiffer: if the entry cannot be read.
        StreamGroupsError: if the broker does not respond, or rejects the request.
    """
    with closing(KafkaMetadataStore(client)) as metadata_store:
        last = _last(metadata_store.read(no_data_group_of(group_id), partitions), group_id, partitions, batch)
    reject_set_back(batch, None if last is None else last.batch_id, group_id=group_id)


def _place(partitions: tuple[TopicPartition, ...], query_id: str) -> TopicPartition:
    """Where the entry of a checkpoint is. Each checkpoint has its own partition, if there are enough."""
    return partitions[zlib.crc32(query_id.encode()) % len(partitions)]


def _last(
    found: Mapping[TopicPartition, Committed],
    group_id: str,
    partitions: tuple[TopicPartition, ...],
    batch: QueryBatch,
) -> NoDataBatch | None:
    """The last no-data batch of a query that is written.

    Raises:
        PositionsDiffer: if the entry of the query cannot be read. An unreadable entry elsewhere is that of another query.
    """
    metadata = {tp: c.metadata for tp, c in found.items()}
    entries = read_entries(no_data_group_of(group_id), metadata, lambda _, text: NoDataBatch.parse(text))
    place = _place(partitions, batch.query_id)
    if metadata.get(place) and place not in entries:
        what, remedy = unreadable(no_data_group_of(group_id), [place])
        raise PositionsDiffer(
            f"{what} Only this entry shows whether batch {batch.batch_id} of the checkpoint is written.",
            remedy=f"{remedy} Before that, read the end of the output topic: without the entry, the batch is written again.",
        )
    of_query = [entry for entry in entries.values() if entry.query_id == batch.query_id]
    return max(of_query, key=lambda entry: entry.batch_id, default=None)
