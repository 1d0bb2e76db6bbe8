"""Copies of state files on the local disk of an executor, so that its tasks read them without a request to an object store.

Created by ``streamgroups_spark.state.stage`` in Python workers. A state file never changes, and no other attempt has its
name, so a copy remains valid. Copies belong to one run of a query: the next run sees what was done to the location in
between, such as the restore of a savepoint. A copy is never the only file: it is written after the state file, and a lost
or damaged copy is read from the storage again. Source: SEMANTICS S10; Spark's ``spark.local.dir``, which Spark deletes with the
executor, or at the end of the application if a shuffle service outlives executors.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from streamgroups.private_directories import make_private
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_files import StateFiles
from streamgroups_operators.file_format import is_whole

#: The limit of the bytes of all copies in a directory. Each process can exceed it by an eighth before it deletes copies.
MAX_BYTES = 512 * 1024 * 1024
#: A small file counts as this many bytes, so that there are at most 8,000 files.
_MIN_FILE_BYTES = 64 * 1024
#: The bytes that this process has written since it last deleted copies, by directory. A new process first deletes, because Spark can
#: end each one before it has written much.
_written_bytes: Counter[Path] = Counter()
_lock = threading.Lock()


class CopiedFiles:
    """State files with local copies (:class:`streamgroups.state.state_files.StateFiles`).

    Args:
        files: the files in the storage.
        root: the directory of all copies on this machine.
        names: the names of the directories below it, outermost first: of the run and the operator.
        max_bytes: the limit of all copies. The least recently used ones are deleted.
    """

    def __init__(self, files: StateFiles, root: Path, *names: str, max_bytes: int = MAX_BYTES) -> None:
        self._files, self._root, self._max_bytes = files, root, max_bytes
        self._directory = root.joinpath(*names)

    @property
    def location(self) -> str:
        """See :attr:`StateFiles.location`."""
        return self._files.location

    def read(self, file: StateFileName) -> memoryview:
        """See :meth:`StateFiles.read`."""
        copy = self._directory / str(file)
        with suppress(OSError):
            content = memoryview(copy.read_bytes())
            if is_whole(content):
                os.utime(copy)
                return content
        content = self._files.read(file)
        self._copy(file, content)
        return content

    def write(self, file: StateFileName, content: memoryview) -> None:
        """See :meth:`StateFiles.write`."""
        self._files.write(file, content)
        self._copy(file, content)

    def list(self) -> dict[StateFileName, int]:
        """See :meth:`StateFiles.list`."""
        return self._files.list()

    def delete(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete`."""
        self._files.delete(files)

    def _copy(self, file: StateFileName, content: memoryview) -> None:
        """Writes a copy. Without space for it, the storage is read again."""
        if len(content) > self._max_bytes // 4:
            return
        with suppress(OSError):
            make_private(self._directory)
            unfinished = self._directory / f".{file}-{os.getpid()}-{threading.get_ident()}"
            try:
                with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                    out.write(content)
                unfinished.replace(self._directory / str(file))
            except OSError:
                unfinished.unlink(missing_ok=True)
                raise
        with _lock:
            is_first = self._root not in _written_bytes
            _written_bytes[self._root] += _counted(len(content))
            is_due = is_first or _written_bytes[self._root] > self._max_bytes // 8
            if is_due:
                _written_bytes[self._root] = 0
        if is_due:
            # Directories can be deleted meanwhile, such as at the end of the executor.
            with suppress(OSError):
                self._delete_oldest()

    def _delete_oldest(self) -> None:
        """Deletes the least recently used copies of all runs. Several processes can do it at the same time."""
        found = []
        for path in self._root.rglob("*.state*"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, path, _counted(status.st_size)))
        n_bytes = sum(size for _, _, size in found)
        for _, path, size in sorted(found):
            if n_bytes <= self._max_bytes * 3 // 4:
                break
            with suppress(OSError):
                path.unlink()
            n_bytes -= size


def _counted(n_bytes: int) -> int:
    return max(n_bytes, _MIN_FILE_BYTES)
