"""Encodes record batches natively: the extension ``_native`` converts Arrow buffers to the bytes of batches.

Created by :mod:`streamgroups_kafka.write.record_batches`. Source: ``csrc/record_batch.h``; the Arrow PyCapsule
interface.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamgroups_kafka.write.encoder import EncodedBatch, Hashes, ProducerIdentity
from streamgroups_kafka.write.first_cut import FirstCut

_NO_SETTINGS = (-1, -1, False)
_NO_CUT = (-1, False)


class NativeEncoder:
    """See :class:`~streamgroups_kafka.write.encoder.Encoder`."""

    def __init__(self) -> None:
        # Imported by name, because the extension may be missing.
        self._native: Any = importlib.import_module("streamgroups_kafka._native")

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
        schema, array = columns.__arrow_c_array__()
        where = (cut.number, cut.is_last) if cut else _NO_CUT
        who = (producer.producer_id, producer.epoch, producer.transactional) if producer else _NO_SETTINGS
        return [
            EncodedBatch(partition, first_row, n_records, base_sequence if producer else None, data)
            for partition, first_row, n_records, base_sequence, data in self._native.encode(
                schema, array, max_bytes, now_ms, *who, dict(next_sequences), *where
            )
        ]

    def with_compressed(self, batch: bytes, codec: int, records: bytes) -> bytes:
        """See :meth:`Encoder.with_compressed`."""
        made: bytes = self._native.with_compressed(batch, codec, records)
        return made

    def murmur2_of_keys(self, keys: pa.Array) -> Hashes:
        """See :meth:`Encoder.murmur2_of_keys`."""
        return np.frombuffer(self._native.murmur2_of_keys(*keys.__arrow_c_array__()), np.uint32)
