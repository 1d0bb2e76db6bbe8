"""C5: where compressed state files end."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.checkpoints.spark_compression import (
    Compression,
    End,
    compression_named,
    compression_of,
    end_of_snappy,
    end_of_zstd,
    snappy_block_size,
)

_BLOCK_BYTES = 1 << 10
CONTENTS = st.binary(max_size=3_000) | st.integers(0, 300_000).map(lambda n: bytes(n))


def snappy(content: bytes, block_bytes: int = _BLOCK_BYTES) -> bytes:
    """The stream of snappy-java."""
    stream = b"\x82SNAPPY\0" + bytes([0, 0, 0, 1]) * 2
    for begin in range(0, len(content), block_bytes):
        block = pa.compress(content[begin : begin + block_bytes], codec="snappy", asbytes=True)
        stream += len(block).to_bytes(4, "big") + block
    return stream


def zstd(content: bytes) -> bytes:
    """A frame without the size of its content, as in Spark's files."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(content)
    return bytes(out.getvalue())


@given(st.lists(CONTENTS, min_size=1, max_size=3), st.data())
def test_C5_each_part_of_a_zstd_frame_is_truncated(contents: list[bytes], data: st.DataObject) -> None:
    frames = [pa.compress(contents[0], codec="zstd", asbytes=True), *map(zstd, contents[1:])]
    whole = b"".join(frames)
    assert end_of_zstd(io.BytesIO(whole).read) is End.COMPLETE
    first = len(b"".join(frames[:-1])) + 1
    end = data.draw(st.integers(first, len(whole) - 1))
    assert end_of_zstd(io.BytesIO(whole[:end]).read) is End.TRUNCATED


@given(st.binary(min_size=1, max_size=6_000), st.data())
def test_C5_each_part_of_a_snappy_stream_is_truncated_or_unknown(content: bytes, data: st.DataObject) -> None:
    whole = snappy(content)
    is_full = len(content) % _BLOCK_BYTES == 0
    assert end_of_snappy(io.BytesIO(whole).read) is (End.UNKNOWN if is_full else End.COMPLETE)
    end = data.draw(st.integers(0, len(whole) - 1))
    found = end_of_snappy(io.BytesIO(whole[:end]).read)
    ends_of_blocks = {len(snappy(content[:n])) for n in range(_BLOCK_BYTES, len(content), _BLOCK_BYTES)}
    assert found is (End.UNKNOWN if end in ends_of_blocks else End.TRUNCATED)


@given(st.binary(max_size=100))
def test_any_content_has_a_result(content: bytes) -> None:
    for start in (b"", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"):
        assert end_of_zstd(io.BytesIO(start + content).read) in End
    assert end_of_snappy(io.BytesIO(snappy(b"") + content).read) in End


def test_frames_without_content_are_skipped() -> None:
    skipped = b"\x5f\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert end_of_zstd(io.BytesIO(skipped + zstd(b"x")).read) is End.COMPLETE
    assert end_of_zstd(io.BytesIO(skipped[:-1]).read) is End.TRUNCATED


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lz4"])
def test_a_compression_has_names_and_a_magic_number(codec: str) -> None:
    names = {"zstd": "ZStd", "snappy": "Snappy", "lz4": "LZ4"}
    for name in (codec, codec.upper(), f"org.apache.spark.io.{names[codec]}CompressionCodec"):
        assert compression_named(name) is Compression(codec)
    start = {"zstd": zstd(b"x"), "snappy": snappy(b"x"), "lz4": b"LZ4Block"}[codec]
    assert compression_of(start) is Compression(codec)
    assert compression_of(start[:3]) is None


def test_a_block_without_its_size() -> None:
    with pytest.raises(ValueError, match="no valid size"):
        snappy_block_size(b"\x80" * 9)
