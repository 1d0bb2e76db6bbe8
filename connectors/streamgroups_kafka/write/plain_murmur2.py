"""Computes Murmur2 with Kafka's seed over an Arrow array of keys, with numpy.

Called by :mod:`streamgroups_kafka.write.plain_encoder` where the extension is missing; ``csrc/murmur2.c`` is
equivalent. Source: Kafka's Java client, ``Utils.murmur2`` (32 bits; words are little-endian on all machines).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamgroups_kafka.write.encoder import Hashes

_SEED = 0x9747B28C
_FACTOR = np.uint32(0x5BD1E995)

_Places = npt.NDArray[np.int64]


def murmur2_of_keys(keys: pa.Array) -> Hashes:
    """Returns the hashes of keys; 0 for a null key.

    Args:
        keys: binary or string, large or not. pyarrow's ``validate`` must have succeeded.

    Raises:
        ValueError: if the offsets are not in order.

    >>> [hex(h) for h in murmur2_of_keys(pa.array(["kafka", None, ""]))]
    ['0xd067cf64', '0x0', '0x106e08d9']
    """
    hashes = np.zeros(len(keys), np.uint32)
    if not len(keys):
        return hashes
    _, offsets, data = keys.buffers()
    width = np.int64 if keys.type in (pa.large_binary(), pa.large_string()) else np.int32
    ends = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    sizes = np.diff(ends)
    if ends[0] < 0 or sizes.min() < 0:
        raise ValueError("offsets that are not in order")
    rows = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    bytes_ = np.frombuffer(data if data is not None else b"", np.uint8)
    # Keys of the same length have the same number of words, so they are processed together, word by word.
    by_size = rows[np.argsort(sizes[rows], kind="stable")]
    for alike in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1):
        if len(alike):
            hashes[alike] = _of_one_size(bytes_, ends[alike], int(sizes[alike[0]]))
    return hashes


def _of_one_size(data: npt.NDArray[np.uint8], starts: _Places, size: int) -> Hashes:
    hashes: Hashes = np.full(len(starts), (_SEED ^ size) & 0xFFFFFFFF, np.uint32)
    n_in_words = size & ~3
    for at in range(0, n_in_words, 4):
        mixed = _word(data, starts + at, 4) * _FACTOR
        mixed ^= mixed >> np.uint32(24)
        hashes = hashes * _FACTOR ^ mixed * _FACTOR
    if size & 3:
        hashes = (hashes ^ _word(data, starts + n_in_words, size & 3)) * _FACTOR
    hashes ^= hashes >> np.uint32(13)
    hashes *= _FACTOR
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _word(data: npt.NDArray[np.uint8], places: _Places, size: int) -> Hashes:
    """Returns up to four bytes from each place on as a little-endian number."""
    number: Hashes = np.zeros(len(places), np.uint32)
    for i in range(size):
        number |= data[places + i].astype(np.uint32) << np.uint32(8 * i)
    return number
