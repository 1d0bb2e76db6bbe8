"""The files below a table's directory, through the file system that deltalake itself uses for the table's address.

Used by ``data_files``, ``merging``, ``ledger`` and ``leftovers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


def local_path(uri: str) -> Path | None:
    """Where an address is on this machine's disk; ``None`` if it is not.

    >>> local_path("/data/flights"), local_path("file:///data/a%20b"), local_path("s3://bucket/flights")
    (PosixPath('/data/flights'), PosixPath('/data/a b'), None)
    """
    parts = urlsplit(uri)
    if "://" not in uri:
        return Path(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


class Store:
    """A table's files. Paths are below the table's directory. Used in one process.

    Args:
        uri: the table's.
        storage_options: how to reach the store.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self._local = local_path(uri)
        self._files = fs.PyFileSystem(DeltaStorageHandler(uri, dict(storage_options)))

    @property
    def is_local(self) -> bool:
        """Whether what is written here is written when the call returns, and never later."""
        return self._local is not None

    def sizes(self, directory: str) -> dict[str, int]:
        """The files in a directory with their sizes in bytes; none if it is not there."""
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
        return {
            found.path: found.size for found in self._files.get_file_info(selector) if found.type == fs.FileType.File
        }

    def write_parquet(self, path: str, rows: pa.Table) -> int:
        """Writes a file and returns its size in bytes."""
        with self._files.open_output_stream(path) as out:
            pq.write_table(rows, out)
            return int(out.tell())

    def read_parquet(self, path: str) -> pa.Table:
        """The rows of a file."""
        with self._files.open_input_file(path) as file:
            return pq.read_table(file)

    def read_text(self, path: str) -> str:
        """A file's text.

        Raises:
            FileNotFoundError: if it is not there.
        """
        with self._files.open_input_file(path) as file:
            return str(file.read().decode())

    def delete(self, path: str) -> None:
        """Removes a file."""
        self._files.delete_file(path)

    def forget_directory(self, directory: str) -> None:
        """Removes an empty directory, where there is such a thing."""
        if (
            self._local is not None
            and (self._local / directory).is_dir()
            and not any((self._local / directory).iterdir())
        ):
            (self._local / directory).rmdir()
