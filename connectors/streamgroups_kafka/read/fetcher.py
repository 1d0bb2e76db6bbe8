"""What both ways to fetch records share: the settings, and the interface that ``range_reader`` drives.

Implemented by ``native_fetcher`` and ``plain_fetcher``; called by ``range_reader`` in Spark's workers.

Memory of one task, at most: the client's queue (``queued.max.messages.kbytes``), one answer of each broker that is on its way
(``fetch.max.bytes``), one Arrow batch under construction and one on its way to Spark (``BATCH_BYTES`` and one record each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import FAIL_ON_LOSS, LossPolicies
from streamgroups_kafka.client.config import ClientConfig

#: Bytes of keys, values and headers per Arrow batch: enough to make the cost per batch small, few enough for the cache.
BATCH_BYTES = 8 * 1024 * 1024
#: How long to wait for a record before looking at the clock.
POLL_MS = 200

#: What the client said, of a partition or (None) of its connections.
PartitionError: TypeAlias = tuple[TopicPartition | None, KafkaError]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How to read ranges.

    Args:
        client: how to reach the cluster.
        group_id: the group in whose name the broker's quotas and logs see the reader; it does not join it.
        on_data_loss: whether offsets that are gone are an error, or are left out with a warning.
        timeout_ms: how long a range may give nothing before that is an error.
        records_gaps: whether offsets that are left out are recorded as gaps of the group.
    """

    client: ClientConfig
    group_id: str
    on_data_loss: LossPolicies = FAIL_ON_LOSS
    timeout_ms: int = 120_000
    records_gaps: bool = False


class Fetcher(Protocol):
    """Fetches the records of ranges, at most one of each partition. Not shared between threads."""

    def fill(self) -> tuple[bool, Sequence[PartitionError]]:
        """Adds records to the batch until it is full, all ranges end, something happens, or nothing comes for ``POLL_MS``.

        Returns:
            Whether a record came or a range ended, and what went wrong.
        """
        ...

    def full(self) -> bool:
        """Whether the batch should be taken."""
        ...

    def take(self) -> pa.RecordBatch:
        """The records since the last call; they are the caller's."""
        ...

    def n_open(self) -> int:
        """How many ranges are not at their end."""
        ...

    def remaining(self) -> Sequence[OffsetRange]:
        """What is still to be read."""
        ...

    def end(self, topic_partition: TopicPartition) -> None:
        """Gives a range up."""
        ...

    def go_on_at(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """Goes on with a range elsewhere, or anew."""
        ...

    def bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """The oldest offset that a partition has, and its end. Raises ``KafkaException``."""
        ...

    def close(self) -> None:
        """Ends fetching. Idempotent."""
        ...


class NewFetcher(Protocol):
    """Makes a fetcher. Raises ``KafkaException`` if the client cannot be made."""

    __name__: str

    def __call__(self, ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> Fetcher: ...


#: Overridden by the user's own ``kafka.*`` settings. A reader lives as long as its ranges: it should neither wait for more
#: records than there are (``fetch.wait.max.ms`` delays the EOF event by as much) nor pause when its queue is full.
_DEFAULTS: dict[str, str] = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "65536",
    "queued.min.messages": "100000",
}


def client_settings(settings: ReadSettings, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """The configuration of the client that reads: the user's own, else ``defaults``, else what is good for all readers.

    >>> settings = ReadSettings(ClientConfig.from_options({"bootstrap.servers": "broker:9092"}), "orders")
    >>> client_settings(settings)["fetch.wait.max.ms"]
    '20'
    """
    return {**_DEFAULTS, **(defaults or {}), **settings.client.for_reader(settings.group_id)}
