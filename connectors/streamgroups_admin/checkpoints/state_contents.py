"""Reads parts of the state files of a Spark checkpoint: which files they need, and whether they are truncated.

Called by ``streamgroups checkpoint verify`` and ``copy``. Implements
:class:`streamgroups.checkpoints.spark_copy.StateContents`. Rows of a state are not read: Spark's format ``statestore`` reads
them. Source: ``RocksDBCheckpointMetadata``, the file ``metadata`` in a zip; ``StateStoreChangelogWriterV3`` and ``V4``, whose
files begin with a version and a lineage; ``LZ4BlockOutputStream`` of lz4-java, whose blocks have a header of 21 bytes, and
whose last block is empty.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

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

_MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBiii")
_RAW, _LZ4 = 0x10, 0x20
#: Far more than Spark's blocks of 32 KiB.
_MAX_BLOCK_BYTES = 64 << 20
#: More than the two first texts of a file of changes. Each has at most 65,535 bytes.
_MAX_TEXT_BYTES = 1 << 18
#: Far more than the names of the files of a state.
_MAX_METADATA_BYTES = 64 << 20

_T = TypeVar("_T")


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

    def damage(self, path: str, size_bytes: int, codec: str | None, *, has_checksum: bool) -> str | None:
        """Returns why a state file cannot be complete. ``None`` if it can be.

        A file with a checksum must have the size in it. A file that Spark has compressed with lz4 ends with an empty block.

        Args:
            path: the file.
            size_bytes: its size.
            codec: the compression of the query; ``None`` if it is unknown.
            has_checksum: whether a file with its checksum exists.

        Raises:
            OSError: if it cannot be read.
        """
        if size_bytes == 0:
            return "is empty"
        if has_checksum:
            try:
                expected_bytes = parse_checksum(self._files.text(path + CHECKSUM))
            except ValueError as e:
                return f"has an unreadable checksum ({e})"
            if expected_bytes != size_bytes:
                return f"has {size_bytes} bytes instead of {expected_bytes}"
        file = parse_name(path.rpartition("/")[2])
        if file is None or file.kind is Kind.ZIP:
            return None
        with self._files.opened(path) as stored:
            if stored.read(len(_MAGIC)) != _MAGIC:
                # The end of another compression is not marked.
                return "is damaged: it is not compressed with lz4, as the query is" if codec == "lz4" else None
            stored.seek(max(0, size_bytes - _HEADER.size))
            end = stored.read()
        if len(end) != _HEADER.size or _HEADER.unpack(end)[0] != _MAGIC or any(_HEADER.unpack(end)[2:]):
            return "is truncated: its last block does not exist"
        return None

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
            for block in _blocks(stored):
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


def _blocks(stored: pa.NativeFile) -> Iterator[bytes]:
    while header := stored.read(_HEADER.size):
        magic, token, compressed_bytes, size_bytes, _checksum = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise ValueError("it is not compressed with lz4")
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
            yield pa.decompress(block, decompressed_size=size_bytes, codec="lz4_raw", asbytes=True)
        else:
            raise ValueError("a block has an unknown compression")


def _text(content: bytes) -> tuple[str, bytes]:
    """A text of ``writeUTF`` and the bytes after it."""
    size_bytes = int.from_bytes(content[:2], "big")
    if len(content) < 2 + size_bytes:
        raise IndexError
    return content[2 : 2 + size_bytes].decode(), content[2 + size_bytes :]
