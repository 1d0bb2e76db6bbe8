"""Encodes record batches and hashes keys with kafka-python, record by record: the results are those of the native encoder.

Created by :mod:`streamgroups_kafka.write.record_batches` where the extension is missing. Source: KIP-98 (message format
2).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamgroups_kafka.client.private_kafka_python import DefaultRecordBatchBuilder, calc_crc32c, murmur2
from streamgroups_kafka.write.encoder import HEADER_BYTES, EncodedBatch, Hashes, ProducerIdentity
from streamgroups_kafka.write.first_cut import FirstCut

_MAGIC = 2
_CODEC_MASK = 0x07
_AT_LENGTH, _AT_CRC, _AT_ATTRIBUTES = 8, 17, 21

_Headers: TypeAlias = list[tuple[str, bytes | None]]
_Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, _Headers]


class PlainEncoder:
    """See :class:`~streamgroups_kafka.write.encoder.Encoder`."""

    def encode(
        self,
        columns: pa.RecordBatch,
        max_bytes: int,
        now_ms: int,
        producer: ProducerIdentity | None,
        next_sequences: Mapping[int, int],
        cut: FirstCut | None,
    ) -> Sequence[EncodedBatch]:
        """See :meth:`Encoder.encode`."""
        by_partition: dict[int, list[_Record]] = {}
        for partition, record in zip(columns.column("partition").to_pylist(), _records(columns, now_ms), strict=True):
            by_partition.setdefault(partition, []).append(record)
        batches: list[EncodedBatch] = []
        for partition, records in sorted(by_partition.items()):
            next_sequence = next_sequences.get(partition, 0)
            n_done = 0
            while n_done < len(records):
                batch = _batch(partition, records, n_done, max_bytes, producer, next_sequence)
                if cut is not None and n_done == 0 and partition not in next_sequences:
                    limit = cut.limit(batch.n_records, is_only=batch.n_records == len(records))
                    batch = _batch(partition, records[:limit], 0, max_bytes, producer, next_sequence)
                batches.append(batch)
                next_sequence = batch.next_sequence or 0
                n_done += batch.n_records
        return batches

    def with_compressed(self, batch: bytes, codec: int, records: bytes) -> bytes:
        """See :meth:`Encoder.with_compressed`."""
        made = bytearray(batch[:HEADER_BYTES] + records)
        (attributes,) = struct.unpack_from(">h", made, _AT_ATTRIBUTES)
        struct.pack_into(">h", made, _AT_ATTRIBUTES, attributes & ~_CODEC_MASK | codec)
        struct.pack_into(">i", made, _AT_LENGTH, len(made) - _AT_LENGTH - 4)
        struct.pack_into(">I", made, _AT_CRC, calc_crc32c(memoryview(made)[_AT_ATTRIBUTES:]))
        return bytes(made)

    def murmur2_of_keys(self, keys: pa.Array) -> Hashes:
        """See :meth:`Encoder.murmur2_of_keys`."""
        is_large = keys.type in (pa.large_binary(), pa.large_string())
        values = keys.cast(pa.large_binary() if is_large else pa.binary())
        # It checks the offsets, which a conversion to Python objects does not.
        values.validate(full=True)
        return np.array([0 if key is None else murmur2(key) for key in values.to_pylist()], np.uint32)


def _records(columns: pa.RecordBatch, now_ms: int) -> list[_Record]:
    """Returns rows as (row, timestamp, key, value, headers)."""

    def column(name: str, to: Callable[[pa.Array], pa.DataType], if_missing: Any) -> Any:
        if name not in columns.schema.names:
            return repeat(if_missing, columns.num_rows)
        values = columns.column(name)
        return values.cast(to(values)).to_pylist()

    return list(
        zip(
            range(columns.num_rows),
            column("timestamp", lambda _: pa.int64(), now_ms),
            column("key", lambda _: pa.large_binary(), None),
            column("value", lambda _: pa.large_binary(), None),
            ([tuple(h.values()) for h in listed or ()] for listed in column("headers", _headers_type, None)),
            strict=True,
        )
    )


def _headers_type(headers: pa.Array) -> pa.DataType:
    """Returns the type of headers with values as bytes."""
    name, value = headers.type.value_type
    return pa.large_list(pa.struct([name, pa.field(value.name, pa.large_binary())]))


def _batch(
    partition: int,
    records: Sequence[_Record],
    first: int,
    max_bytes: int,
    producer: ProducerIdentity | None,
    base_sequence: int,
) -> EncodedBatch:
    """Encodes as many records as fit into one batch, from ``first`` on."""
    who = (producer.producer_id, producer.epoch, base_sequence) if producer else (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, bool(producer and producer.transactional), *who, max_bytes)
    n_records = 0
    for _, time_ms, key, value, headers in islice(records, first, None):
        if builder.append(n_records, time_ms, key, value, headers) is None:
            break
        n_records += 1
    return EncodedBatch(
        partition, records[first][0], n_records, base_sequence if producer else None, bytes(builder.build())
    )
