"""What both encoders do, and what they are told.

Implemented by :mod:`streamgroups_kafka.write.native_encoder` and :mod:`streamgroups_kafka.write.plain_encoder`, used by
:mod:`streamgroups_kafka.write.record_batches` and :mod:`streamgroups_kafka.write.partitioner`. Source: KIP-98 (message format 2, producer ids, epochs and sequences).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroups.errors import InvalidOption

#: Sequence numbers begin again at 0 after the largest int32.
SEQUENCES = 1 << 31
#: Of a batch, before its records.
HEADER_BYTES = 61

#: Of keys, one for each row.
Hashes: TypeAlias = npt.NDArray[np.uint32]

_MAX_EPOCH = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Who writes, as the broker knows it from InitProducerId.

    Args:
        producer_id: the id.
        epoch: the epoch; the broker refuses older ones than the newest.
        transactional: whether the records belong to a transaction.

    Raises:
        InvalidOption: if id or epoch is none that a broker gives out.
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
    """A record batch as it is sent in a Produce request.

    Args:
        partition: where it goes.
        first_row: which row of the input is its first record.
        n_records: how many records it holds.
        base_sequence: of its first record; ``None`` without a producer identity.
        data: the batch.
    """

    partition: int
    first_row: int
    n_records: int
    base_sequence: int | None
    data: bytes

    @property
    def next_sequence(self) -> int | None:
        """Of the first record after it; ``None`` without a producer identity.

        >>> EncodedBatch(0, 0, 3, 2**31 - 1, b"").next_sequence
        2
        """
        return None if self.base_sequence is None else (self.base_sequence + self.n_records) % SEQUENCES


class Encoder(Protocol):
    """Makes record batches of checked columns (see :func:`streamgroups_kafka.write.record_columns.record_columns`)."""

    def encode(
        self,
        columns: pa.RecordBatch,
        max_bytes: int,
        now_ms: int,
        producer: ProducerIdentity | None,
        next_sequences: Mapping[int, int],
    ) -> Sequence[EncodedBatch]:
        """Batches of at most ``max_bytes``, by partition and in each in the rows' order; a larger record is one of its own."""

    def with_compressed(self, batch: bytes, codec: int, records: bytes) -> bytes:
        """The batch with its records replaced by compressed ones, and the codec's number in its header."""

    def murmur2_of_keys(self, keys: pa.Array) -> Hashes:
        """The hashes of binary or string keys that pyarrow has validated, as Kafka's clients have them; 0 for one that is null.

        Raises ValueError for offsets that are not in order.
        """
