"""Reads parts of the state files of a Spark checkpoint: which files they need, and whether they are truncated.

Called by ``streamgroups checkpoint verify`` and ``copy``. Implements
:class:`streamgroups.checkpoints.spark_copy.StateContents`. Rows of a state are not read: Spark's format ``statestore`` reads
them. Source: ``RocksDBCheckpointMetadata``, the file ``metadata`` in a zip; ``StateStoreChangelogWriterV3`` and ``V4``, whose
files begin with a version and a lineage; :mod:`streamgroups.checkpoints.spark_compression`.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from streamgroups.checkpoints.spark_compression import (
    LZ4_HEADER,
    LZ4_MAGIC,
    MAGIC_BYTES,
    SNAPPY_HEADER_BYTES,
    Compression,
    End,
    compression_named,
    compression_of,
    end_of_lz4,
    end_of_snappy,
    end_of_zstd,
    snappy_block_size,
)
from streamgroups.checkpoints.spark_state import (
    CHECKSUM,
    Ancestor,
    Kind,
    parse_checksum,
    parse_files_of_zip,
    parse_lineage,
    parse_name,
)
from streamgroups.errors import StateDamaged
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles

_RAW, _LZ4 = 0x10, 0x20
#: Far more than Spark's blocks of 32 KiB.
_MAX_BLOCK_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_ZSTD_BLOCK_BYTES = 1 << 15
#: More than the two first texts of a file of changes. Each has at most 65,535 bytes.
_MAX_TEXT_BYTES = 1 << 18
#: Far more than the names of the files of a state.
_MAX_METADATA_BYTES = 64 << 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The check result of a state file.

    Args:
        problem: why it cannot be complete; ``None`` if no problem was found.
        unverified: why it was not verified that it is complete; ``None`` if it was.
    """

    problem: str | None = None
    unverified: str | None = None


class StateContentsOf:
    """The state files of a checkpoint. Each file is read at most once.

    Args:
        files: the checkpoint.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._lineages: dict[str, Sequence[Ancestor]] = {}
        self._zips: dict[str, Mapping[str, int]] = {}

    def lineage(self, path: str) -> Sequence[Ancestor]:
        """See :meth:`streamgroups.checkpoints.spark_copy.StateContents.lineage`."""
        if path not in self._lineages:
            self._lineages[path] = _checked(path, lambda: parse_lineage(self._second_text(path)))
        return self._lineages[path]

    def files_of_zip(self, path: str) -> Mapping[str, int]:
        """See :meth:`streamgroups.checkpoints.spark_copy.StateContents.files_of_zip`."""
        if path not in self._zips:
            self._zips[path] = _checked(path, lambda: parse_files_of_zip(self._metadata(path)))
        return self._zips[path]

    def check(self, path: str, size_bytes: int, codec: str | None, *, has_checksum: bool) -> FileCheck:
        """Checks whether a state file is complete.

        A file with a checksum must have the size in it. The end of another one is verified by its compression.

        Args:
            path: the file.
            size_bytes: its size.
            codec: the compression of the query; ``None`` if it is unknown.
            has_checksum: whether a file with its checksum exists.

        Raises:
            OSError: if it cannot be read.
        """
        if size_bytes == 0:
            return FileCheck("is empty")
        if has_checksum:
            try:
                expected_bytes = parse_checksum(self._files.text(path + CHECKSUM))
            except ValueError as e:
                return FileCheck(f"has an unreadable checksum ({e})")
            if expected_bytes != size_bytes:
                return FileCheck(f"has {size_bytes} bytes instead of {expected_bytes}")
        file = parse_name(path.rpartition("/")[2])
        if file is None or file.kind is Kind.ZIP:
            return FileCheck()
        of_query = compression_named(codec)
        with self._files.opened(path) as stored:
            compression = compression_of(stored.read(MAGIC_BYTES))
            if of_query is not None and compression is not of_query:
                return FileCheck(f"is damaged: it is not compressed with {of_query.value}, as the query is")
            end = _end(stored, compression, size_bytes)
        if end is End.TRUNCATED:
            return FileCheck("is truncated: its last block does not exist")
        if end is End.COMPLETE or has_checksum:
            return FileCheck()
        if compression is Compression.SNAPPY:
            return FileCheck(unverified="its last block is full, so blocks after it can be missing")
        return FileCheck(unverified=f"its compression ({codec or 'unknown'}) does not mark the end of a file")

    def _metadata(self, path: str) -> str:
        with self._files.opened(path) as stored, zipfile.ZipFile(stored) as archive:
            info = archive.getinfo("metadata")
            if info.file_size > _MAX_METADATA_BYTES:
                raise ValueError(f"its metadata has {info.file_size} bytes")
            return archive.read(info).decode()

    def _second_text(self, path: str) -> str:
        """The second text of Java's ``DataOutput.writeUTF`` in a file of changes. The first one is a version."""
        content = bytearray()
        with self._files.opened(path) as stored:
            for block in _blocks(_buffered(stored)):
                content += block
                try:
                    version, rest = _text(bytes(content))
                    lineage, _ = _text(rest)
                except IndexError:
                    if len(content) > _MAX_TEXT_BYTES:
                        break
                    continue
                if version not in ("v3", "v4"):
                    raise ValueError(f"version '{version[:20]}' of its format is not supported")
                return lineage
        raise ValueError("it ends before its lineage")


def _checked(path: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (ValueError, KeyError, struct.error, zipfile.BadZipFile, NotImplementedError, pa.ArrowException) as e:
        raise StateDamaged(
            f"The state file '{path}' cannot be read: {e}.",
            remedy="Run 'streamgroups checkpoint verify', and use a batch that can be restored.",
        ) from None


def _buffered(stored: pa.NativeFile) -> pa.NativeFile:
    # Each read from an object store is a request.
    return pa.BufferedInputStream(stored, _CHUNK_BYTES)


def _end(stored: pa.NativeFile, compression: Compression | None, size_bytes: int) -> End:
    if compression is Compression.LZ4:
        stored.seek(max(0, size_bytes - LZ4_HEADER.size))
        return end_of_lz4(stored.read())
    stored.seek(0)
    if compression is Compression.ZSTD:
        return end_of_zstd(_buffered(stored).read)
    return end_of_snappy(_buffered(stored).read) if compression is Compression.SNAPPY else End.UNKNOWN


def _blocks(stored: pa.NativeFile) -> Iterator[bytes]:
    """The first blocks of a file without their compression."""
    start = stored.read(MAGIC_BYTES)
    compression = compression_of(start)
    if compression is Compression.LZ4:
        yield from _lz4_blocks(start, stored)
    elif compression is Compression.SNAPPY:
        stored.read(SNAPPY_HEADER_BYTES - len(start))
        yield from _snappy_blocks(stored)
    elif compression is Compression.ZSTD:
        yield from _zstd_blocks(start + stored.read(_CHUNK_BYTES))
    else:
        raise ValueError("it is not compressed with lz4, zstd or snappy")


def _zstd_blocks(start: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(start), "zstd") as stream:
        try:
            while block := stream.read(_ZSTD_BLOCK_BYTES):
                yield block
        except OSError:
            # The bytes are in memory, so this is no error of a disk or a network.
            raise ValueError("it is truncated or damaged") from None


def _snappy_blocks(stored: pa.NativeFile) -> Iterator[bytes]:
    while header := stored.read(4):
        compressed_bytes = int.from_bytes(header, "big", signed=True)
        if not 0 < compressed_bytes <= _MAX_BLOCK_BYTES:
            raise ValueError("a block has no valid size")
        block = stored.read(compressed_bytes)
        if len(block) != compressed_bytes:
            raise ValueError("it is truncated")
        size_bytes = snappy_block_size(block)
        if size_bytes > _MAX_BLOCK_BYTES:
            raise ValueError("a block has no valid size")
        yield _decompressed(block, size_bytes, "snappy")


def _decompressed(block: bytes, size_bytes: int, codec: str) -> bytes:
    try:
        return bytes(pa.decompress(block, decompressed_size=size_bytes, codec=codec, asbytes=True))
    except OSError:
        raise ValueError("a block is damaged") from None


def _lz4_blocks(start: bytes, stored: pa.NativeFile) -> Iterator[bytes]:
    header = start + stored.read(LZ4_HEADER.size - len(start))
    while header:
        magic, token, compressed_bytes, size_bytes, _checksum = LZ4_HEADER.unpack(header)
        if magic != LZ4_MAGIC:
            raise ValueError("a block has no header")
        if not (0 <= compressed_bytes <= _MAX_BLOCK_BYTES and 0 <= size_bytes <= _MAX_BLOCK_BYTES):
            raise ValueError("a block has no valid size")
        if size_bytes == 0:
            return
        block = stored.read(compressed_bytes)
        if len(block) != compressed_bytes:
            raise ValueError("it is truncated")
        if token & 0xF0 == _RAW:
            yield block
        elif token & 0xF0 == _LZ4:
            yield _decompressed(block, size_bytes, "lz4_raw")
        else:
            raise ValueError("a block has an unknown compression")
        header = stored.read(LZ4_HEADER.size)


def _text(content: bytes) -> tuple[str, bytes]:
    """A text of ``writeUTF`` and the bytes after it."""
    size_bytes = int.from_bytes(content[:2], "big")
    if len(content) < 2 + size_bytes:
        raise IndexError
    return content[2 : 2 + size_bytes].decode(), content[2 + size_bytes :]
