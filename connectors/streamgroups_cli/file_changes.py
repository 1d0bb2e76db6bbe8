"""Changes of files that several commands of a user can make at the same time.

``connections_file`` and ``cursors.reading`` read a file, change its content and replace it, under its lock. Commands that only
read the file take no lock: they see the old file or the new one. Source: ``flock(2)``, ``rename(2)``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: File systems without locks. There, commands that run one after the other work as anywhere.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for the other commands that change a file, and excludes them until the end of the ``with`` block.

    The lock is a file of its own, because each change replaces the file. It is deleted with the end of the lock.

    Args:
        path: the file, which need not exist. Its directory must exist.

    Raises:
        OSError: if the lock cannot be created.
    """
    target = path.resolve()
    # A script can have a lock with a usual name, and hold it while it runs a command.
    lock = target.with_name(f".{target.name}.streamgroups-lock")
    number = _lock(lock)
    try:
        yield
    finally:
        # Before the end of the lock: afterwards it can be that of another command.
        with suppress(FileNotFoundError):
            lock.unlink()
        os.close(number)


def replace_file(path: Path, text: str) -> None:
    """Writes a file that other users cannot read. A reader or a kill never sees a part of it.

    Raises:
        OSError: if it cannot be written. The file is as before.
    """
    target = path.resolve()
    # Its mode is 0600.
    number, new = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, target)
    except BaseException:
        # It can contain a secret.
        with suppress(OSError):
            os.unlink(new)
        raise


def _lock(lock: Path) -> int:
    while True:
        number = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
        except OSError as e:
            if e.errno in _NO_LOCKS:
                return number
            os.close(number)
            raise
        # The command before this one has deleted its lock, so a third command would not see it.
        if os.fstat(number).st_nlink:
            return number
        os.close(number)
