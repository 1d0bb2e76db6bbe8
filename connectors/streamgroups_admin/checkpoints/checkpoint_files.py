"""The files of the checkpoint of any query, on any file system of Arrow. It needs no PySpark.

Called by ``streamgroups checkpoint`` and by :mod:`streamgroups_admin.checkpoints.batches`. The modules
``streamgroups.checkpoints.spark_*`` parse and evaluate the content. Files are named by their paths below the checkpoint. Only
``streamgroups checkpoint copy`` writes, and only to the new checkpoint. Source: Spark's ``HDFSMetadataLog``, which ignores
names that are no numbers; ``KafkaSourceInitialOffsetWriter``, which writes a zero byte and a line with the version first;
``OperatorStateMetadataUtils``; Hadoop's ``ChecksumFileSystem``, which writes ``.<name>.crc`` into local directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem

from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups.json_values import read_json
from streamgroups_operators.locations import opened, shown

_CHUNK_BYTES = 1 << 20


class CheckpointFiles:
    """The files of a checkpoint.

    Args:
        location: the option ``checkpointLocation`` of the query: a path, or a URI of a file system that Arrow reads.
        names: the names of directories below it, outermost first.

    Raises:
        InvalidOption: if Arrow does not support the location.
    """

    def __init__(self, location: str, *names: str) -> None:
        #: The location without credentials, for messages.
        self.location = "/".join((shown(location).rstrip("/"), *names)) if names else shown(location)
        self.files, path = opened(location, "checkpoint")
        self.path = "/".join((path, *names))

    def text(self, path: str) -> str:
        """Reads a small file.

        Raises:
            FileNotFoundError: if it does not exist.
            OSError: if it cannot be read.
            ValueError: if it is not UTF-8.
        """
        return bytes(self.content(path)).decode()

    def content(self, path: str) -> memoryview:
        """Reads a file. Raises the errors of :meth:`text`, without those of its content."""
        with self.files.open_input_stream(f"{self.path}/{path}") as stored:
            return memoryview(stored.read())

    def tail(self, path: str, size_bytes: int) -> bytes:
        """Reads the last bytes of a file. Raises the errors of :meth:`content`."""
        with self.opened(path) as stored:
            stored.seek(max(0, stored.size() - size_bytes))
            return bytes(stored.read())

    def opened(self, path: str) -> pa.NativeFile:
        """Opens a file for access at any place. Raises the errors of :meth:`content`."""
        return self.files.open_input_file(f"{self.path}/{path}")

    def listed(self, path: str = "") -> dict[str, FileInfo]:
        """Returns the files and directories in a directory by their names; none if it does not exist.

        Hidden files, such as those with Hadoop's checksums, are left out.

        Raises:
            OSError: if it cannot be read.
        """
        directory = f"{self.path}/{path}" if path else self.path
        found = self.files.get_file_info(FileSelector(directory, allow_not_found=True))
        return {it.base_name: it for it in found if not it.base_name.startswith(".")}

    def below(self, path: str = "") -> dict[str, FileInfo]:
        """Returns all files below a directory by their paths. Raises the errors of :meth:`listed`."""
        directory = f"{self.path}/{path}" if path else self.path
        selector = FileSelector(directory, allow_not_found=True, recursive=True)
        start = len(self.path) + 1
        found = {it.path[start:]: it for it in self.files.get_file_info(selector) if it.type == FileType.File}
        return {path: it for path, it in sorted(found.items()) if not it.base_name.startswith(".")}

    def batch_ids(self, log: str) -> list[int]:
        """Returns the ids of the batches in a log, in order.

        Args:
            log: ``offsets`` or ``commits``.

        Raises:
            OSError: if it cannot be read.
        """
        return sorted(int(name) for name in self.listed(log) if _is_batch(name))

    def written_at_ms(self) -> int | None:
        """Returns when the logs were written last, in milliseconds since the epoch. ``None`` if unknown."""
        times = [it.mtime_ns for log in ("offsets", "commits") for it in self.listed(log).values()]
        return max((ns // 1_000_000 for ns in times if ns is not None), default=None)

    def initial_offsets(self) -> dict[str, Any]:
        """Returns the offset of each source before its first batch, where Spark has logged it as JSON."""
        initial = {}
        for name, it in self.listed("sources").items():
            if not is_file(it):
                try:
                    text = self.text(f"sources/{name}/0").removeprefix("\0")
                    initial[name] = read_json(text.partition("\n")[2])
                except (FileNotFoundError, ValueError):
                    # Other sources have other files, in other formats.
                    continue
        return initial

    def operators(self) -> list[int]:
        """Returns the numbers of the stateful operators.

        Raises:
            OSError: if they cannot be listed.
        """
        return sorted(int(name) for name, it in self.listed("state").items() if _is_batch(name) and not is_file(it))

    def operator_metadata(self, operator: int, batch_id: int | None = None) -> str | None:
        """Returns the path of the metadata of an operator. ``None`` if it has none, as before Spark 3.5.

        Args:
            operator: its number.
            batch_id: the batch for which it applies; ``None`` for the newest one. Version 2 of the metadata has a file for
                each start of the query.

        Raises:
            OSError: if they cannot be listed.
        """
        directory = f"state/{operator}/_metadata"
        batches = [int(name) for name in self.listed(f"{directory}/v2") if _is_batch(name)]
        newest = max((it for it in batches if batch_id is None or it <= batch_id), default=None)
        if newest is not None:
            return f"{directory}/v2/{newest}"
        return f"{directory}/metadata" if "metadata" in self.listed(directory) else None

    def clear(self) -> None:
        """Deletes all files of an incomplete copy.

        Raises:
            OSError: if they cannot be deleted.
        """
        self.files.delete_dir_contents(self.path, missing_dir_ok=True)

    def delete(self, path: str) -> None:
        """Deletes a file of a new checkpoint.

        Raises:
            OSError: if it cannot be deleted.
        """
        self.files.delete_file(f"{self.path}/{path}")

    def write(self, path: str, content: bytes) -> None:
        """Writes a small file of a new checkpoint.

        Raises:
            OSError: if it cannot be written.
        """
        self._create_parent(path)
        with self.files.open_output_stream(f"{self.path}/{path}") as out:
            out.write(content)
        self._sync(path)

    def copy(self, path: str, source: CheckpointFiles) -> None:
        """Copies a file of another checkpoint to the same path, in parts of constant size.

        Raises:
            FileNotFoundError: if it does not exist there.
            OSError: if it cannot be read or written.
        """
        with source.files.open_input_stream(f"{source.path}/{path}") as stored:
            self._create_parent(path)
            with self.files.open_output_stream(f"{self.path}/{path}") as out:
                while chunk := stored.read(_CHUNK_BYTES):
                    out.write(chunk)
        self._sync(path)

    def _create_parent(self, path: str) -> None:
        # Object stores have no directories.
        if isinstance(self.files, LocalFileSystem):
            self.files.create_dir(os.path.dirname(f"{self.path}/{path}"), recursive=True)

    def _sync(self, path: str) -> None:
        # The file 'metadata' is the last one. After a crash of the machine it must not exist without the others.
        if isinstance(self.files, LocalFileSystem):
            for it in (f"{self.path}/{path}", os.path.dirname(f"{self.path}/{path}")):
                descriptor = os.open(it, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def is_file(info: FileInfo) -> bool:
    """Returns whether it is a file."""
    return bool(info.type == FileType.File)


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Translates errors of reading a checkpoint.

    Args:
        location: the location of the checkpoint.

    Raises:
        InvalidOption: instead of errors of files, and of their content.
    """
    try:
        yield
    except (InvalidOption, OffsetFormat):
        raise
    except OSError as e:
        raise InvalidOption(
            f"The checkpoint '{shown(location)}' cannot be read ({type(e).__name__}).",
            remedy="Check the location, and the credentials in the environment of this command.",
        ) from None
    except (ValueError, KeyError, pa.ArrowException) as e:
        raise InvalidOption(
            f"The checkpoint '{shown(location)}' contains a log that is not one of Spark ({type(e).__name__}).",
            remedy="Restore the checkpoint, or set the starting options of the old query on the new one.",
        ) from None


def require_checkpoint(files: CheckpointFiles) -> None:
    """Checks that a directory is a checkpoint, by its names.

    Raises:
        InvalidOption: if it is not.
        OSError: if it cannot be read.
    """
    found = files.listed()
    if "offsets" in found:
        return
    if not found:
        raise InvalidOption(
            f"The checkpoint '{files.location}' does not exist, or is empty.",
            remedy="Use the checkpointLocation of the old query: a path, or a URI such as s3://bucket/checkpoint.",
        )
    raise InvalidOption(
        f"'{files.location}' is not a checkpoint: it has no directory 'offsets'.",
        remedy="Use the directory of one query, which contains 'offsets', 'commits' and 'metadata'.",
    )


def _is_batch(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 18
