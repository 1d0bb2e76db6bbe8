"""The directory of the checkpoint of one run, and the local directory of states.

Each run of a processor has a new checkpoint, because positions are those of the group. A run deletes the checkpoints of
earlier runs whose processes have ended. The lock of a directory ends with its process, also after ``kill -9``. Called by
``building`` and ``running``. Source: SEMANTICS P1; ``flock``.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups.home_paths import expanded
from streamgroups.private_directories import make_private

_VARIABLE = "STREAMGROUPS_PROCESSORS"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")


def processors_directory() -> Path:
    """Returns the directory of all processors of this user on this machine: ``STREAMGROUPS_PROCESSORS``, or that of XDG.

    Raises:
        InvalidOption: if the variable contains a URI, or the directory is in the home directory of a user who has none.
    """
    named = os.environ.get(_VARIABLE)
    if named and (uri := _SCHEME.match(named)):
        raise InvalidOption(
            f"The environment variable {_VARIABLE} contains a URI that begins with '{uri[0]}'.",
            remedy="Set it to the path of a local directory, as in /var/lib/streamgroups. For states on other storage, set "
            "the option 'stateLocation' of the source.",
        )
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return expanded(
        named or Path(base) / "streamgroups" / "processors",
        remedy=f"Set {_VARIABLE} to a local directory, or set HOME.",
    )


def state_directory(group_id: str) -> str:
    """Returns the local ``stateLocation`` of a processor without one."""
    return str(processors_directory() / group_id / "state")


def new_checkpoint(group_id: str) -> str:
    """Returns the URI of a new checkpoint, which nothing creates or deletes yet."""
    return _uri(_new_path(group_id))


@contextmanager
def run_checkpoint(group_id: str) -> Iterator[str]:
    """Returns the URI of a new checkpoint for one run, and deletes it at the end of the block.

    Checkpoints of ended processes are deleted first.

    Args:
        group_id: the group of the processor.
    """
    runs = _runs(group_id)
    make_private(runs)
    path, lock = _new_locked(group_id)
    try:
        _delete_ended(runs)
        yield _uri(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _lock_of(path).unlink(missing_ok=True)
        os.close(lock)


def _new_locked(group_id: str) -> tuple[Path, int]:
    """A new checkpoint, and its lock. Another run that cleans up can lock and delete a new file first: then it is another file."""
    while True:
        path = _new_path(group_id)
        lock = _locked(_lock_of(path))
        if lock is not None:
            return path, lock


def _new_path(group_id: str) -> Path:
    return _runs(group_id) / uuid.uuid4().hex


def _uri(path: Path) -> str:
    # Spark resolves a path without scheme on its default file system, which can be HDFS. Hadoop does not decode '%' in it.
    return f"file://{path}"


def _runs(group_id: str) -> Path:
    return processors_directory() / group_id / "runs"


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _locked(file: Path) -> int | None:
    """Locks a file for this process; ``None`` if another one has the lock, or has deleted the file."""
    number = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(number).st_nlink:
            return number
    except BlockingIOError:
        pass
    os.close(number)
    return None


def _delete_ended(runs: Path) -> None:
    for file in runs.glob("*.lock"):
        lock = _locked(file)
        if lock is None:
            continue
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        file.unlink(missing_ok=True)
        os.close(lock)
