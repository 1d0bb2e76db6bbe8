"""Encodes records from Arrow into Kafka's record batches.

Called in Spark's Python workers by the Kafka sinks. The native encoder (``native_encoder``) is used if it is available,
else kafka-python (``plain_encoder``). This module checks records, sizes and compression for both. Source: KIP-98
(message format 2), KIP-82 (headers); Kafka's ``max.message.bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.native import uses_native
from streamgroups_kafka.write.compression import NONE, Compression
from streamgroups_kafka.write.encoder import HEADER_BYTES, EncodedBatch, Encoder, ProducerIdentity
from streamgroups_kafka.write.first_cut import FirstCut
from streamgroups_kafka.write.native_encoder import NativeEncoder
from streamgroups_kafka.write.plain_encoder import PlainEncoder
from streamgroups_kafka.write.record_columns import record_columns

#: The error of the native encoder for a record whose length does not fit into 31 bits.
_BEYOND_THE_FORMAT = "too large for Kafka's format"


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The settings of record batches.

    Args:
        batch_bytes: the maximum size of a batch before compression. A larger record has its own batch.
        max_message_bytes: the maximum size of a batch after compression: the topic's ``max.message.bytes``.
        compression: the compression of records. A batch that would not become smaller is not compressed.

    Raises:
        InvalidOption: if a size is not positive or exceeds 2 GiB.
    """

    batch_bytes: int = 1 << 20
    max_message_bytes: int = 1_048_588
    compression: Compression = NONE

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "max_message_bytes"):
            if not 0 < getattr(self, name) < 1 << 31:
                raise InvalidOption(f"{name} is {getattr(self, name)}.", remedy="It is 1 to 2147483647 bytes.")


def encode(
    records: pa.RecordBatch,
    settings: BatchSettings,
    *,
    topic: str,
    now_ms: int,
    producer: ProducerIdentity | None = None,
    next_sequences: Mapping[int, int] | None = None,
    cut: FirstCut | None = None,
    too_large: dict[int, RecordRejected] | None = None,
) -> Sequence[EncodedBatch]:
    """Encodes rows into record batches of one topic.

    Args:
        records: the rows, in any order of partitions, with the columns of
            :func:`~streamgroups_kafka.write.record_columns.record_columns`.
        settings: the settings of the batches.
        topic: the topic, for errors.
        now_ms: the timestamp of records without one, in milliseconds since the epoch.
        producer: the identity of the producer; ``None`` to write without one.
        next_sequences: the sequence number of the first record of each partition; the default is 0.
        cut: where to cut the first batch of a partition that ``next_sequences`` does not contain.
        too_large: receives the error of each record that is too large, by its row. ``None``: the first one is raised.

    Returns:
        The batches, by partition, each with the order of the rows. A Produce request contains one batch of each
        partition. None if ``too_large`` received a record, because sequence numbers count it: encode the other rows again.

    Raises:
        RecordRejected: if a record is too large, or ``record_columns`` rejects it. The error contains the row.
        InvalidOption: if a column has the wrong type, or the native encoder is required but not available.
        ValueError: if the Arrow batch is malformed, or a sequence number is invalid.

    >>> rows = pa.record_batch({"partition": [1, 0, 1], "value": ["a", "b", "c"]})
    >>> [(b.partition, b.n_records) for b in encode(rows, BatchSettings(), topic="flights", now_ms=0)]
    [(0, 1), (1, 2)]
    """
    columns = record_columns(records, topic, now_ms)
    using = encoder()
    max_bytes = min(settings.batch_bytes, settings.max_message_bytes)
    batches = []
    try:
        plain = using.encode(columns, max_bytes, now_ms, producer, next_sequences or {}, cut)
    except ValueError as e:
        if _BEYOND_THE_FORMAT not in str(e):
            raise
        raise RecordRejected(
            f"Topic '{topic}', {e}.", remedy="Make the record smaller: the format stores lengths in 31 bits."
        ) from None
    for batch in plain:
        made = _compressed(batch, settings.compression, using)
        if len(made.data) > settings.max_message_bytes:
            error = _too_large(made, topic, settings)
            if too_large is None:
                raise error
            too_large[made.first_row] = error
        batches.append(made)
    return [] if too_large else batches


def encoder() -> Encoder:
    """Returns the encoder to use: see :func:`streamgroups_kafka.native.uses_native`."""
    return NativeEncoder() if uses_native("encoder") else PlainEncoder()


def _compressed(batch: EncodedBatch, compression: Compression, using: Encoder) -> EncodedBatch:
    if compression.number == 0:
        return batch
    plain_records = memoryview(batch.data)[HEADER_BYTES:]
    records = compression.compress(plain_records)
    # So a batch is never larger than without compression, and its size limit holds in both cases.
    if len(records) >= len(plain_records):
        return batch
    return replace(batch, data=using.with_compressed(batch.data, compression.number, records))


def _too_large(batch: EncodedBatch, topic: str, settings: BatchSettings) -> RecordRejected:
    """Returns the error for a batch above the limit. It has one record: larger batches are split."""
    place = TopicPartition(topic, batch.partition)
    by = "" if settings.compression.number == 0 else f", compressed with {settings.compression.name}"
    return RecordRejected(
        f"Row {batch.first_row}, for {place}, makes a record batch of {len(batch.data):,} bytes{by}; the "
        f"maximum is {settings.max_message_bytes:,} bytes.",
        remedy=(
            "Raise the topic's max.message.bytes and the sink's limit (kafka.max.request.size) to the same "
            "value, compress, or make the record smaller."
        ),
    )
