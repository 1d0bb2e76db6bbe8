"""Which partition a record with a key goes to, as Kafka's own clients decide it.

Called in Spark's Python workers before output is shuffled by partition, so that records of one key go where any Java producer
sends them. Hashed natively where the extension is there, else by numpy. Source: Kafka's Java client,
``BuiltInPartitioner.partitionForKey``: ``toPositive(murmur2(key)) % numPartitions``.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.write.encoder import Hashes
from streamgroups_kafka.write.record_batches import encoder

_TYPES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
_MOST = 0x7FFF_FFFF
_POSITIVE = np.uint32(_MOST)


def partitions_of_keys(keys: pa.Array | pa.ChunkedArray, n_partitions: int | pa.Array) -> pa.Int32Array:
    """The partition of each key, as Kafka's default partitioner has it.

    Args:
        keys: binary or string, large or not; strings count by their UTF-8.
        n_partitions: how many partitions the topic has; an array of integers, one for each key, where topics differ.

    Returns:
        Partitions from 0; null for a key that is null, which any partition may have.

    Raises:
        InvalidOption: if the keys are of another type, or a number of partitions is none (below 1, over int32, or null).
        ValueError: if the Arrow data is malformed, or there are more or fewer numbers than keys.

    >>> partitions_of_keys(pa.array(["kafka", None, "foobar"]), 8).to_pylist()
    [4, None, 6]
    >>> partitions_of_keys(pa.array([b"kafka", b"kafka"]), pa.array([8, 3])).to_pylist()
    [4, 1]
    """
    if keys.type not in _TYPES and not pa.types.is_null(keys.type):
        raise InvalidOption(
            f"The keys are of type {keys.type}, which cannot be hashed.", remedy="Cast them to binary or string."
        )
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    hashes = np.concatenate([_hashes(chunk) for chunk in chunks] or [np.zeros(0, np.uint32)])
    partitions = (hashes & _POSITIVE) % _counts(has_key, n_partitions)
    return pa.array(partitions.astype(np.int32), pa.int32(), mask=~has_key if keys.null_count else None)


def _hashes(keys: pa.Array) -> Hashes:
    if pa.types.is_null(keys.type):
        return np.zeros(len(keys), np.uint32)
    # How long the buffers are, nobody looks at after this.
    keys.validate()
    return encoder(os.environ.get(ENCODER_VARIABLE, "")).murmur2_of_keys(keys)


def _counts(has_key: npt.NDArray[np.bool_], n_partitions: int | pa.Array) -> Hashes:
    """How many partitions each key can choose from. Where a key is null, that may be null as well."""
    if isinstance(n_partitions, int):
        counts = np.full(1, n_partitions)
    elif len(n_partitions) != len(has_key):
        raise ValueError(f"{len(n_partitions):,} partition counts for {len(has_key):,} keys")
    else:
        counts = np.where(has_key, n_partitions.fill_null(0).to_numpy(zero_copy_only=False), 1)
    wrong = counts[(counts < 1) | (counts > _MOST)]
    if len(wrong):
        raise InvalidOption(
            f"A topic cannot have {wrong[0]} partitions.", remedy="Use the number that the broker returns."
        )
    return counts.astype(np.uint32)
