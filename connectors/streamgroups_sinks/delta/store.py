"""Accesses the files below the directory of a table, through the file system of deltalake.

Used by ``data_files``, ``merging``, ``identifiers`` and ``ledger``. Source: deltalake's ``DeltaStorageHandler``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


def local_path(uri: str) -> Path | None:
    """Returns the local path of an address. ``None`` for a remote store.

    >>> local_path("/data/flights"), local_path("file:///data/a%20b"), local_path("s3://bucket/flights")
    (PosixPath('/data/flights'), PosixPath('/data/a b'), None)
    """
    parts = urlsplit(uri)
    if "://" not in uri:
        return Path(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


class Store:
    """The files of a table. Paths are relative to its directory. For one process.

    Args:
        uri: the address of the table.
        storage_options: the options of deltalake for the store.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self._local = local_path(uri)
        self._files = fs.PyFileSystem(DeltaStorageHandler(uri, dict(storage_options)))

    @property
    def is_local(self) -> bool:
        """Whether a write is complete when its call returns, and never later."""
        return self._local is not None

    def sizes(self, directory: str) -> dict[str, int]:
        """Returns the files in a directory with their sizes in bytes. Empty if the directory does not exist."""
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
        return {
            found.path: found.size for found in self._files.get_file_info(selector) if found.type == fs.FileType.File
        }

    def names(self) -> list[str]:
        """Returns the entries of the directory itself. Empty if it does not exist."""
        selector = fs.FileSelector("", allow_not_found=True)
        return [found.path for found in self._files.get_file_info(selector)]

    def write_parquet(self, path: str, rows: pa.Table) -> int:
        """Writes a file and returns its size in bytes."""
        with self._files.open_output_stream(path) as out:
            pq.write_table(rows, out)
            return int(out.tell())

    def read_parquet(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of a file.

        Args:
            path: its path.
            columns: the columns to read, without those that the file does not have; ``None`` for all. A field of a struct is
                ``struct.field``.

        Raises:
            FileNotFoundError: if the file does not exist.
        """
        with self._files.open_input_file(path) as file:
            if columns is None:
                return pq.read_table(file)
            return pq.ParquetFile(file, pre_buffer=True).read(columns=list(columns))

    def read_text(self, path: str) -> str:
        """Returns the text of a file.

        Raises:
            FileNotFoundError: if the file does not exist.
        """
        with self._files.open_input_file(path) as file:
            return str(file.read().decode())

    def delete(self, path: str) -> None:
        """Removes a file."""
        self._files.delete_file(path)

    def forget_directory(self, directory: str) -> None:
        """Removes an empty directory. Does nothing in a store without directories."""
        if (
            self._local is not None
            and (self._local / directory).is_dir()
            and not any((self._local / directory).iterdir())
        ):
            (self._local / directory).rmdir()
