"""Durable files in a local directory, which only their owner can access.

Used by ``locations``, and by ``streamgroups_cli`` for undo files. A committed offset that names a file survives a crash of the machine, so the file must too: its
content is synced before it is renamed, its directory afterwards, and the parents of each new directory. Files have mode
0600 and directories 0700, because they contain keys and values. If the group can write to the location, as its owner has
set it, the group of the location can access them too: modes 0660 and 0770. Source: ``fsync(2)``, ``rename(2)``.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterable
from contextlib import suppress

#: The parent of each directory below a location, as it was before its entries were synced: device, inode and change time.
_SYNCED: dict[str, tuple[int, int, int]] = {}
#: File systems that cannot sync a directory.
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM}


def write_durably(
    root: str, path: str, chunks: Iterable[bytes | memoryview], *, syncs_name: bool = True, is_contended: bool = False
) -> None:
    """Writes a file. It is visible as a whole, or not at all.

    Args:
        root: the directory of the location, which decides the modes.
        path: the file, below ``root``.
        chunks: the content, in order.
        syncs_name: whether its directory is synced. Without it, the caller syncs it once after several files.
        is_contended: whether other processes can write the same file at once.

    Raises:
        OSError: if it cannot be written. An unfinished file is removed.
    """
    directory = os.path.dirname(path)
    make_durable(root, directory)
    is_shared = _is_shared(root)
    unfinished = unfinished_path(path, is_contended=is_contended)
    try:
        with open(unfinished, "wb", opener=_for_owner) as out:
            if is_shared:
                os.fchmod(out.fileno(), 0o660)
            for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, path)
    except BaseException:
        # Also after a full disk: the next attempt has another name.
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    if syncs_name:
        sync_directory(directory)


def unfinished_path(path: str, *, is_contended: bool) -> str:
    """The name of a file while it is written, in the same directory.

    Args:
        path: the file.
        is_contended: whether other processes can write the same file at once.

    >>> unfinished_path("/states/a", is_contended=False)
    '/states/.a'
    """
    directory, name = os.path.split(path)
    return f"{directory}/.{name}" + (f".{uuid.uuid4().hex}" if is_contended else "")


def make_durable(root: str, directory: str) -> None:
    """Creates a directory at or below a location with its parents, and syncs their entries.

    Args:
        root: the directory of the location.
        directory: the directory.

    Raises:
        OSError: if it cannot be created.
    """
    chain = [directory]
    while chain[-1] != root and (parent := os.path.dirname(chain[-1])) != chain[-1]:
        chain.append(parent)
    if directory != root and all(map(_is_synced, chain[:-1])):
        return
    while not os.path.isdir(chain[-1]) and (parent := os.path.dirname(chain[-1])) != chain[-1]:
        chain.append(parent)
    for path in reversed(chain):
        if not os.path.isdir(path):
            # Another process can create it at the same time.
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                if len(path) > len(root) and _is_shared(root):
                    os.chmod(path, 0o770 | os.stat(path).st_mode & stat.S_ISGID)
    # After all of them: the journal of a file system writes them together. Also those of another process, which may not have
    # synced them yet.
    for path in chain:
        parent = os.path.dirname(path)
        before = _version(parent)
        sync_directory(parent)
        if len(path) > len(root):
            _SYNCED[path] = before


def _is_synced(directory: str) -> bool:
    """Whether the entry of a directory is the one that this process has synced.

    A directory that was removed and restored is a new entry at the same path, and often has the same inode. But the change time of
    its parent is another one: no program can set it.
    """
    try:
        return _SYNCED.get(directory) == _version(os.path.dirname(directory)) and os.path.isdir(directory)
    except FileNotFoundError:
        return False


def _version(directory: str) -> tuple[int, int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _is_shared(root: str) -> bool:
    return bool(os.stat(root).st_mode & stat.S_IWGRP)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_directory(directory: str) -> None:
    """Makes the names of new files in a directory survive a crash of the machine, if the file system can.

    Args:
        directory: the directory. One that denies reading is left out.

    Raises:
        OSError: if the device fails.
    """
    try:
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        # The parent of a location can deny it.
        return
    try:
        os.fsync(number)
    except OSError as e:
        if e.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(number)
