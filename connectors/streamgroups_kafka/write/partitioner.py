"""Selects the partition of a record with a key, as Kafka's clients do.

Called in Spark's Python workers before output is shuffled by partition. So records with one key are in the partition to
which Java producers send them. The native extension computes the hashes if it is available, else kafka-python. Source: Kafka's
Java client, ``BuiltInPartitioner.partitionForKey``: ``toPositive(murmur2(key)) % numPartitions``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups_kafka.write.encoder import Hashes
from streamgroups_kafka.write.record_batches import encoder

_TYPES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
_MOST = 0x7FFF_FFFF
_POSITIVE = np.uint32(_MOST)


def partitions_of_keys(keys: pa.Array | pa.ChunkedArray, n_partitions: int | pa.Array) -> pa.Int32Array:
    """Returns the partition of each key, as Kafka's default partitioner does.

    Args:
        keys: binary or string, large or not. Strings are hashed as UTF-8.
        n_partitions: the number of partitions of the topic. If topics differ, an array of integers, one for each key.

    Returns:
        Partitions from 0; null for a null key, which any partition may have.

    Raises:
        InvalidOption: if the keys have another type, or a number of partitions is invalid (below 1, over int32, or
            null).
        ValueError: if the Arrow data is malformed, or the number of partition counts differs from that of the keys.

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
    # Later steps do not check the lengths of the buffers.
    keys.validate()
    return encoder().murmur2_of_keys(keys)


def _counts(has_key: npt.NDArray[np.bool_], n_partitions: int | pa.Array) -> Hashes:
    """The number of partitions for each key. It may be null if the key is null."""
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
