"""The directory of the temporary table that evaluates the constraints of a table. It contains rows of a task.

Spark kills the Python workers of a task, and such a process leaves its directory. So each task first removes those of killed
processes of its user. A process locks its directory, and the operating system unlocks it when the process ends. Created by
``data_files``. Source: ``flock(2)``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: How old a directory without a lock must be: a process locks its own after it is created.
_UNLOCKED_S = 600


@contextmanager
def check_directory() -> Iterator[str]:
    """Creates a directory that only this user can enter, and removes it at the end of the block.

    Removes the directories of killed processes first.
    """
    prefix = f"streamgroups-checks-{os.getuid()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # Another process can remove it, too.
        with suppress(OSError):
            _remove_unused(path)
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        number = os.open(directory, os.O_RDONLY)
        try:
            # A file system without locks: no process removes the directory.
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_SH)
            yield directory
        finally:
            os.close(number)


def _remove_unused(path: Path) -> None:
    found = path.lstat()
    # Another user can create the path.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_mtime < _UNLOCKED_S:
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    finally:
        os.close(number)
