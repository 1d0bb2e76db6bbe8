"""The interface of both encoders, with their arguments and results.

Implemented by :mod:`streamgroups_kafka.write.native_encoder` and :mod:`streamgroups_kafka.write.plain_encoder`, used by
:mod:`streamgroups_kafka.write.record_batches` and :mod:`streamgroups_kafka.write.partitioner`. Source: KIP-98 (message
format 2, producer ids, epochs and sequences).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups_kafka.write.first_cut import FirstCut

#: Sequence numbers restart at 0 after the largest int32.
SEQUENCES = 1 << 31
#: The size of the header of a batch.
HEADER_BYTES = 61

#: The hashes of keys, one for each row.
Hashes: TypeAlias = npt.NDArray[np.uint32]

_MAX_EPOCH = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The identity of a producer, from InitProducerId.

    Args:
        producer_id: the producer id.
        epoch: the producer epoch. The broker rejects epochs older than the newest.
        transactional: whether the records belong to a transaction.

    Raises:
        InvalidOption: if the id or the epoch is out of range.
    """

    producer_id: int
    epoch: int
    transactional: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.producer_id < 1 << 63 and 0 <= self.epoch <= _MAX_EPOCH):
            raise InvalidOption(
                f"Producer id {self.producer_id} with epoch {self.epoch} is invalid.",
                remedy="Use the values that the broker returned.",
            )


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch in the format of a Produce request.

    Args:
        partition: the partition.
        first_row: the row of the input that is its first record.
        n_records: the number of records.
        base_sequence: the sequence number of its first record; ``None`` without a producer identity.
        data: the bytes of the batch.
    """

    partition: int
    first_row: int
    n_records: int
    base_sequence: int | None
    data: bytes

    @property
    def next_sequence(self) -> int | None:
        """The sequence number of the next batch; ``None`` without a producer identity.

        >>> EncodedBatch(0, 0, 3, 2**31 - 1, b"").next_sequence
        2
        """
        return None if self.base_sequence is None else (self.base_sequence + self.n_records) % SEQUENCES


class Encoder(Protocol):
    """Encodes the columns of :func:`streamgroups_kafka.write.record_columns.record_columns` as record batches."""

    def encode(
        self,
        columns: pa.RecordBatch,
        max_bytes: int,
        now_ms: int,
        producer: ProducerIdentity | None,
        next_sequences: Mapping[int, int],
        cut: FirstCut | None,
    ) -> Sequence[EncodedBatch]:
        """Returns batches of at most ``max_bytes``, by partition, each with the order of the rows. A larger record has
        its own batch. The first batches of partitions without a sequence number are cut.
        """

    def with_compressed(self, batch: bytes, codec: int, records: bytes) -> bytes:
        """Returns the batch with compressed records, and with the id of the codec in its header."""

    def murmur2_of_keys(self, keys: pa.Array) -> Hashes:
        """Returns Kafka's hashes of binary or string keys that pyarrow has validated; 0 for a null key.

        Raises ValueError for offsets that are not in order.
        """
