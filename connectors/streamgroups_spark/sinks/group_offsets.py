"""Adds offsets of a group to a transaction, with the consumer group metadata of the member that reads.

Used by ``sinks.kafka`` for the end of a batch, and by ``sinks.letters.before_output`` for its unchanged start. The broker rejects the
metadata of a member or a generation that it has replaced. Source: KIP-447; SEMANTICS X2, X3, X9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamgroups.errors import FencedMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.retry import comes_true
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_spark.messages.batch import BatchFacts
from streamgroups_spark.sinks.batch_info import BatchInfo

#: How long a source may take to receive the next generation of the group after the last one was rejected.
_NEXT_GENERATION_S = 30.0
_AGAIN_S = 0.05


def commit_offsets(
    transactions: Transactions,
    transaction: OpenTransaction,
    source: BatchFacts,
    offsets: Mapping[TopicPartition, Committed],
    request: Callable[[], BatchInfo],
) -> None:
    """Adds offsets of a source to a transaction. Retries with a newer generation in which the member still owns all ranges.

    Args:
        transactions: the transactions of the writer.
        transaction: the transaction.
        source: the facts of the source about the batch.
        offsets: the offsets.
        request: requests the facts about the batch again.

    Raises:
        FencedMember: if the group has fenced the member, or a newer run is active.
        FencedBatch: if the group has revoked partitions of the batch.
        StreamGroupsError: see :meth:`Transactions.commit_offsets`.
    """
    group_metadata = source.group_metadata
    while True:
        assert group_metadata is not None, "batch_info waits for it"
        try:
            return transactions.commit_offsets(transaction, offsets, group_metadata)
        except FencedMember:
            newer = _next_group_metadata(source, group_metadata, request)
            if newer is None:
                raise
            group_metadata = newer


def _next_group_metadata(
    source: BatchFacts, rejected: ConsumerGroupMetadata, request: Callable[[], BatchInfo]
) -> ConsumerGroupMetadata | None:
    newest = rejected

    def is_newer() -> bool:
        nonlocal newest
        of_source = (it.group_metadata for it in request().sources if it.end == source.end)
        group_metadata = next(of_source, None)
        assert group_metadata is not None, "batch_info waits for it"
        newest = group_metadata
        return newest != rejected

    return newest if comes_true(is_newer, _NEXT_GENERATION_S, every_s=_AGAIN_S) else None
