"""X2: compressed record batches hold the same records, in the framing that Kafka's clients read."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption
from streamgroups_kafka.write.compression import Compression
from streamgroups_kafka.write.encoder import HEADER_BYTES, ProducerIdentity
from streamgroups_kafka.write.record_batches import BatchSettings, encode
from unit_tests.records import (
    encoded,
    kafka_batches,
    one_column,
)


def _snappy_blocks(data: bytes) -> bytes:
    """Undoes snappy-java's framing; the first varint of a snappy block is its size."""
    assert data[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        block = data[at + 4 : at + 4 + size]
        n_bytes = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(_varint(block)))
        out += pa.decompress(block, n_bytes, codec="snappy", asbytes=True)
        at += 4 + size
    return out


def _varint(data: bytes) -> bytes:
    return data[: next(i for i, byte in enumerate(data) if byte < 0x80) + 1]


_UNDO: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": lambda data, _: gzip.decompress(data),
    "snappy": lambda data, _: _snappy_blocks(data),
    "lz4": lambda data, size: pa.decompress(data, size, codec="lz4", asbytes=True),
    "zstd": lambda data, size: pa.decompress(data, size, codec="zstd", asbytes=True),
}


def _values(n_rows: int, dice: random.Random) -> list[bytes]:
    """Some that shrink a lot and some that do not."""
    return [dice.randbytes(40) + b"flights of the day " * dice.randint(0, 20) for _ in range(n_rows)]


@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
@pytest.mark.parametrize("n_rows", [1, 40, 600])
def test_compressed_records_are_the_same_records(using: str, codec: str, number: int, n_rows: int) -> None:
    rows = one_column([*_values(n_rows, random.Random(n_rows)), b"a" * 1_000])
    who = ProducerIdentity(4, 2, transactional=True)
    plain = encode(rows, BatchSettings(), topic="t", now_ms=0, producer=who)
    made = encode(rows, BatchSettings(compression=Compression(codec)), topic="t", now_ms=0, producer=who)
    assert len(made) == len(plain)
    for of_plain, of_made in zip(plain, made, strict=True):
        assert len(of_made.data) < len(of_plain.data)
        (header,) = kafka_batches(of_made.data)
        assert header.validate_crc()
        assert header.compression_type == number
        assert header.is_transactional
        assert header.producer_id == 4
        records = of_plain.data[HEADER_BYTES:]
        assert _UNDO[codec](of_made.data[HEADER_BYTES:], len(records)) == records


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_both_encoders_compress_the_same(extension: Any, codec: str) -> None:
    rows = one_column(_values(100, random.Random(codec)))
    how = BatchSettings(compression=Compression(codec))
    assert encoded("native", rows, how) == encoded("plain", rows, how)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_parts_that_do_not_shrink_in_a_batch_that_does(using: str, codec: str) -> None:
    """Whole blocks of both kinds: none may become larger than the block size in the frame."""
    rows = one_column([random.Random(1).randbytes(200_000), b"a" * 300_000])
    (plain,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    (made,) = encode(rows, BatchSettings(compression=Compression(codec)), topic="t", now_ms=0)
    records = plain.data[HEADER_BYTES:]
    assert len(made.data) < 250_000
    assert _UNDO[codec](made.data[HEADER_BYTES:], len(records)) == records


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_what_does_not_shrink_is_left_as_it_is(using: str, codec: str) -> None:
    rows = one_column([random.Random(1).randbytes(100)])
    plain = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert encode(rows, BatchSettings(compression=Compression(codec)), topic="t", now_ms=0) == plain


def test_levels() -> None:
    data = memoryview(b"".join(_values(1_000, random.Random(3))))
    assert len(Compression("zstd", 19).compress(data)) < len(Compression("zstd", 1).compress(data))
    for name, level in [("zstd", 40), ("gzip", 10), ("gzip", 0), ("snappy", 1), ("none", 1), ("brotli", None)]:
        with pytest.raises(InvalidOption, match=name):
            Compression(name, level)
