"""Which batch the Kafka sink wrote last that had read nothing: a note on the board of one of the query's groups.

Used by ``kafka`` on the driver. The note is an offset that is committed in the transaction of the batch's output, to an auxiliary group without
members; so it becomes visible with the output, and what tells a zombie from a newer run is the transaction's epoch. Source: KIP-98, by which any group's
offsets can be in a transaction; :mod:`streamgroups.ledgers.no_data_batch`; SEMANTICS X2, X3.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from streamgroups.coordination.reset_protocol import no_data_group_of
from streamgroups.ledgers.ledger import AlreadyDone
from streamgroups.ledgers.no_data_batch import NoDataBatch, judge_no_data
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.metadata_store import RETRY_TIMEOUT_S, KafkaMetadataStore
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata


@dataclass(frozen=True, slots=True)
class NoDataEntry:
    """The note about one batch.

    Args:
        client: how to reach the cluster that is written to.
        group_id: the group on whose board it is.
        partitions: what the query reads, at least one: brokers want the note at a partition that there is. Which one changes if there
            are more of them, so it is looked for at all.
        batch: the batch that is to be written.
    """

    client: ClientConfig
    group_id: str
    partitions: tuple[TopicPartition, ...]
    batch: NoDataBatch

    def is_there(self, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> bool:
        """Whether the batch is written. An answer that a transaction may still change is waited for.

        Args:
            retry_timeout_s: for how long, in seconds.

        Raises:
            FencedBatch: if a later one is, or another one of its number.
            StreamGroupsError: if the broker does not answer, or refuses.
        """
        with closing(KafkaMetadataStore(self.client, retry_timeout_s=retry_timeout_s)) as metadata_store:
            found = metadata_store.read(no_data_group_of(self.group_id), self.partitions)
        metadata = {tp: c.metadata for tp, c in found.items()}
        notes = read_entries(no_data_group_of(self.group_id), metadata, lambda _, text: NoDataBatch.parse(text))
        of_query = [note for note in notes.values() if note.query_id == self.batch.query_id]
        noted = max(of_query, key=lambda note: note.batch_id, default=None)
        return isinstance(judge_no_data(self.batch, noted, group_id=self.group_id), AlreadyDone)

    @property
    def offsets(self) -> Mapping[TopicPartition, Committed]:
        """What is committed."""
        # Each checkpoint at a place of its own, if there are enough.
        place = self.partitions[zlib.crc32(self.batch.query_id.encode()) % len(self.partitions)]
        # confluent-kafka takes the text for one that ends with a NUL.
        return {place: Committed(self.batch.batch_id, self.batch.encode() + "\0")}

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """By which it is committed: nobody's, for the group has no members."""
        return ConsumerGroupMetadata(no_data_group_of(self.group_id), None, "")
