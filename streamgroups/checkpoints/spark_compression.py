"""Decides whether a compressed state file of a Spark checkpoint ends where Spark has ended it.

Called by ``streamgroups_admin.checkpoints.state_contents``. No file is decompressed for it. A frame of zstd has a last block.
The stream of snappy has no mark at its end: all blocks but the last one are full, so a last block that is not full is the end.
Source: ``LZ4CompressionCodec``, ``ZStdCompressionCodec`` and ``SnappyCompressionCodec`` of Spark; ``LZ4BlockOutputStream`` of
lz4-java, whose blocks have a header of 21 bytes, and whose last block is empty; RFC 8878; ``SnappyOutputStream`` of snappy-java.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

#: Reads a number of bytes, and fewer only at the end of the file.
Read: TypeAlias = Callable[[int], bytes]

LZ4_MAGIC = b"LZ4Block"
LZ4_HEADER = struct.Struct("<8sBiii")
_ZSTD_MAGIC = 0xFD2FB528
#: The first of the 16 magic numbers of frames without content.
_ZSTD_SKIPPABLE = 0x184D2A50
_SNAPPY_MAGIC = b"\x82SNAPPY\0"
#: The magic number, and two numbers of versions.
SNAPPY_HEADER_BYTES = 16
#: The smallest block that snappy-java accepts. Spark's default is 32 KiB.
_SNAPPY_BLOCK_BYTES = 1 << 10
_CHUNK_BYTES = 1 << 20
#: Long enough for each magic number.
MAGIC_BYTES = 8


class Compression(Enum):
    """A compression of state files whose end can be verified."""

    LZ4 = "lz4"
    ZSTD = "zstd"
    SNAPPY = "snappy"


class End(Enum):
    """The result for the end of a file."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"


def compression_named(codec: str | None) -> Compression | None:
    """Returns a compression by the value of Spark's option: a short name, or the name of a class.

    >>> compression_named("ZSTD"), compression_named("org.apache.spark.io.SnappyCompressionCodec"), compression_named("lzf")
    (<Compression.ZSTD: 'zstd'>, <Compression.SNAPPY: 'snappy'>, None)
    """
    name = (codec or "").lower().removeprefix("org.apache.spark.io.").removesuffix("compressioncodec")
    return next((it for it in Compression if it.value == name), None)


def compression_of(start: bytes) -> Compression | None:
    """Returns the compression of a file by its first bytes.

    >>> compression_of(b"LZ4Block%"), compression_of(b"ZV")
    (<Compression.LZ4: 'lz4'>, None)
    """
    if start.startswith(LZ4_MAGIC):
        return Compression.LZ4
    if start.startswith(_SNAPPY_MAGIC):
        return Compression.SNAPPY
    return Compression.ZSTD if start[:4] == _ZSTD_MAGIC.to_bytes(4, "little") else None


def end_of_lz4(end: bytes) -> End:
    """Evaluates the last 21 bytes of a file.

    >>> end_of_lz4(LZ4_HEADER.pack(LZ4_MAGIC, 0x16, 0, 0, 0))
    <End.COMPLETE: 'complete'>
    """
    is_whole = len(end) == LZ4_HEADER.size
    is_last = is_whole and LZ4_HEADER.unpack(end)[0] == LZ4_MAGIC and not any(LZ4_HEADER.unpack(end)[2:])
    return End.COMPLETE if is_last else End.TRUNCATED


def end_of_zstd(read: Read) -> End:
    """Evaluates a file by the headers of its frames and blocks.

    Args:
        read: reads the file from its beginning.
    """
    try:
        while start := read(4):
            magic = int.from_bytes(start, "little")
            if len(start) < 4 or magic not in (_ZSTD_MAGIC, *range(_ZSTD_SKIPPABLE, _ZSTD_SKIPPABLE + 16)):
                return End.TRUNCATED
            if magic == _ZSTD_MAGIC:
                _skip_frame(read)
            else:
                _skip(read, int.from_bytes(_exactly(read, 4), "little"))
    except EOFError:
        return End.TRUNCATED
    return End.COMPLETE


def end_of_snappy(read: Read) -> End:
    """Evaluates a file by the headers of its blocks. A file whose last block is full can have lost the blocks after it.

    Args:
        read: reads the file from its beginning.
    """
    full_bytes = size_bytes = None
    try:
        _skip(read, SNAPPY_HEADER_BYTES)
        while header := read(4):
            compressed_bytes = int.from_bytes(header, "big", signed=True)
            if len(header) < 4 or compressed_bytes <= 0:
                return End.TRUNCATED
            size_bytes = _snappy_size(read, compressed_bytes)
            full_bytes = full_bytes or size_bytes
    except EOFError:
        return End.TRUNCATED
    if size_bytes is None or full_bytes is None:
        return End.TRUNCATED
    is_full = size_bytes >= full_bytes and size_bytes % _SNAPPY_BLOCK_BYTES == 0
    return End.UNKNOWN if is_full else End.COMPLETE


def snappy_block_size(block: bytes) -> int:
    """Returns the size in bytes of a block after its decompression.

    Raises:
        ValueError: if the block does not begin with its size.

    >>> snappy_block_size(b"\\x80\\x80\\x02...")
    32768
    """
    size_bytes = 0
    for i, byte in enumerate(block[:5]):
        size_bytes |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return size_bytes
    raise ValueError("a block has no valid size")


def _skip_frame(read: Read) -> None:
    [descriptor] = _exactly(read, 1)
    is_single, has_checksum = bool(descriptor & 0x20), bool(descriptor & 0x04)
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 0x03]
    size_bytes = (int(is_single), 2, 4, 8)[descriptor >> 6]
    _skip(read, (0 if is_single else 1) + dictionary_bytes + size_bytes)
    is_last = False
    while not is_last:
        header = int.from_bytes(_exactly(read, 3), "little")
        is_last, kind = bool(header & 1), header >> 1 & 0x03
        # A block of kind 1 is one byte that is repeated.
        _skip(read, 1 if kind == 1 else header >> 3)
    _skip(read, 4 if has_checksum else 0)


def _snappy_size(read: Read, compressed_bytes: int) -> int:
    start = _exactly(read, min(5, compressed_bytes))
    _skip(read, compressed_bytes - len(start))
    try:
        return snappy_block_size(start)
    except ValueError:
        raise EOFError from None


def _exactly(read: Read, size_bytes: int) -> bytes:
    found = read(size_bytes)
    if len(found) < size_bytes:
        raise EOFError
    return found


def _skip(read: Read, size_bytes: int) -> None:
    while size_bytes > 0:
        size_bytes -= len(_exactly(read, min(size_bytes, _CHUNK_BYTES)))
