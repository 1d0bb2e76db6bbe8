"""The common part of both fetchers: the settings, and the interface that ``range_reader`` calls.

Implemented by ``native_fetcher`` and ``plain_fetcher``; called by ``range_reader`` in Spark's workers. Source:
librdkafka's CONFIGURATION.md; Spark's ``DataSourceReader.read``.

The maximum memory of one task: the queue of the client (``queued.max.messages.kbytes``), one response in flight of each
broker (``fetch.max.bytes``), one Arrow batch under construction and one in transfer to Spark (``BATCH_BYTES`` and one
record each). The limit of a response counts compressed bytes, and librdkafka decompresses it at once: the records of one
response per partition come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import FAIL_ON_LOSS, LossPolicies
from streamgroups_kafka.client.config import ClientConfig

#: The bytes of keys, values and headers in an Arrow batch: large enough for a small cost per batch, small enough for
#: the CPU cache.
BATCH_BYTES = 8 * 1024 * 1024
#: How long to wait for a record before the deadline is checked.
POLL_MS = 200

#: An error of the client, of a partition or (``None``) of its connections.
PartitionError: TypeAlias = tuple[TopicPartition | None, KafkaError]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a reader.

    Args:
        client: the configuration of the client.
        group_id: the group id in quotas and logs of the broker. The reader does not join the group.
        on_data_loss: whether missing offsets are an error, or are skipped with a warning.
        timeout_ms: the time without progress after which a range is an error, in milliseconds.
        records_gaps: whether skipped offsets are recorded as gaps of the group.
        topic_ids: the ids of the topics, as far as they are known. Records of an earlier topic of the same name are never
            read.
        leader_epochs: the leader epochs of the ends of the partitions when the ranges were planned, as far as they are known. Records
            that were fetched before an unclean leader election are never read after it.
    """

    client: ClientConfig
    group_id: str
    on_data_loss: LossPolicies = FAIL_ON_LOSS
    timeout_ms: int = 120_000
    records_gaps: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


class Fetcher(Protocol):
    """Fetches the records of ranges, at most one range of each partition. Not shared between threads."""

    def fill(self) -> tuple[bool, Sequence[PartitionError]]:
        """Adds records until the batch is full, all ranges end, an error occurs, or no record arrives for ``POLL_MS``.

        Returns:
            Whether a record arrived or a range ended, and the errors.
        """
        ...

    def full(self) -> bool:
        """Whether the batch is full, so that the caller should take it."""
        ...

    def take(self) -> pa.RecordBatch:
        """Returns the records since the last call. The caller owns them."""
        ...

    def n_open(self) -> int:
        """The number of ranges that have not ended."""
        ...

    def remaining(self) -> Sequence[OffsetRange]:
        """The ranges that are still to be read."""
        ...

    def find(self, topic_partition: TopicPartition) -> OffsetRange | None:
        """What is still to be read of a partition; ``None`` if it has no range, or its range has ended."""
        ...

    def end(self, topic_partition: TopicPartition) -> None:
        """Ends an open range early."""
        ...

    def seek(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """Continues a range at another offset, or restarts it."""
        ...

    def bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Returns the earliest offset of a partition, and its end offset. Raises ``KafkaException``."""
        ...

    def close(self) -> None:
        """Ends fetching. Idempotent."""
        ...


#: Creates a fetcher. Raises ``KafkaException`` if the client cannot be created.
NewFetcher: TypeAlias = Callable[[Sequence[OffsetRange], pa.Schema, ReadSettings], Fetcher]

#: The ``kafka.*`` settings of the user override these. A reader lives as long as its ranges. So it must not wait for
#: more records than exist: ``fetch.wait.max.ms`` delays the EOF event. Nor must it pause when its queue is full.
_DEFAULTS: dict[str, str] = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "65536",
    "queued.min.messages": "100000",
}


def client_settings(settings: ReadSettings, defaults: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The configuration of a reading client: the settings of the user, else ``defaults``, else the defaults of all
    readers.

    Raises:
        TokenUnavailable: if there is no token for OAUTHBEARER.
        LoginRejected: if the token endpoint rejects the client.

    >>> settings = ReadSettings(ClientConfig.from_options({"bootstrap.servers": "broker:9092"}), "orders")
    >>> client_settings(settings)["fetch.wait.max.ms"]
    '20'
    """
    return {**_DEFAULTS, **(defaults or {}), **settings.client.for_reader(settings.group_id)}
