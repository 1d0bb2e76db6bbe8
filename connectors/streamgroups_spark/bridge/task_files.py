"""The files of ``bridge.handoff``: their names, and the removal of those of killed tasks.

Spark kills the Python workers of a task, so its files remain, with records in them. Their session has no more processes if the
driver has ended, too. So each Python worker removes the files of killed tasks in all sessions of its user on its host.

A reader locks the file of its plan while it writes records, and the operator while it takes them. The operating system
unlocks it when they end. A time alone is no proof: a suspended machine, a slow sink or a clock that is set forward gives a task
any age. Source:
``flock(2)``; SEMANTICS S10.
"""

from __future__ import annotations

import errno
import fcntl
import time
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any

from streamgroups.path_names import path_part
from streamgroups_spark.bridge.rpc import files_of_sessions, task_directory_of

#: No task runs this long. Plans have no lock before the first row, and contain no records.
_OLD_S = 7 * 24 * 3600
#: How long records can have no lock, between the end of the reader and the start of the operator.
_UNLOCKED_S = 600
_PLAN, _RECORDS = "task-", "records-"
#: The length of the name of an operator in the name of a file.
_MAX_NAME_BYTES = 100


def plan_file(session: str, application: str, attempt: int, upstream: str) -> Path:
    """Returns the path of the plan of an attempt. Creates its directory.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
        attempt: the id of the attempt.
        upstream: the operator that has processed the records; empty for the reader.
    """
    operator = f"-{path_part(upstream, _MAX_NAME_BYTES)}" if upstream else ""
    return task_directory_of(session) / f"{_PLAN}{application}-{attempt}{operator}"


def records_file(plan: Path, number: int) -> Path:
    """Returns the path of a batch of records.

    >>> print(records_file(Path("/tmp/task-local-1-42"), 7))
    /tmp/records-local-1-42.7
    """
    return plan.with_name(f"{_RECORDS}{plan.name.removeprefix(_PLAN)}.{number}")


def lock(plan: IO[Any]) -> None:
    """Locks the file of a plan until it is closed. Several processes can lock it."""
    # A file system without locks: the age of a file decides.
    with suppress(OSError):
        fcntl.flock(plan, fcntl.LOCK_SH)


class PlanLock(Enum):
    """The lock of a plan."""

    #: Its task runs.
    HELD = auto()
    FREE = auto()
    #: The file system has no locks.
    UNKNOWN = auto()


def is_removable(age_s: float, lock: PlanLock, *, has_records: bool) -> bool:
    """Returns whether a file belongs to a killed task.

    Args:
        age_s: the time since it was changed, in seconds.
        lock: the lock of its plan.
        has_records: whether it contains records, and not a plan.

    >>> [is_removable(3600, it, has_records=True) for it in PlanLock]
    [False, True, False]
    >>> is_removable(3600, PlanLock.FREE, has_records=False), is_removable(5, PlanLock.FREE, has_records=True)
    (False, False)
    >>> [is_removable(_OLD_S + 1, it, has_records=False) for it in PlanLock]
    [False, True, True]
    """
    if lock is PlanLock.HELD:
        return False
    return age_s > _OLD_S or (has_records and lock is PlanLock.FREE and age_s > _UNLOCKED_S)


def sweep(session: str) -> None:
    """Removes the files of killed tasks in all sessions of this user, and the directories of ended sessions.

    Args:
        session: the session of this process, whose directory remains.
    """
    own = task_directory_of(session)
    now_s = time.time()
    # Before files are removed, which changes the times of their directories.
    unused = [it for it in own.parent.iterdir() if it != own and _age_s(it, now_s) > _UNLOCKED_S]
    for file in files_of_sessions(own.parent):
        # Another process can sweep, too.
        with suppress(OSError):
            has_records = file.name.startswith(_RECORDS)
            age_s = _age_s(file, now_s)
            # Only the plan of an old file is opened.
            if age_s > _UNLOCKED_S and is_removable(age_s, _lock_of(file), has_records=has_records):
                file.unlink()
    for directory in unused:
        # Only an empty one is removed.
        with suppress(OSError):
            directory.rmdir()


def _age_s(path: Path, now_s: float) -> float:
    """Returns the time since a file was changed. 0 if it no longer exists."""
    with suppress(OSError):
        return now_s - path.lstat().st_mtime
    return 0


def _lock_of(file: Path) -> PlanLock:
    """Returns the lock of a plan, or of the plan of records."""
    is_plan = file.name.startswith(_PLAN)
    plan = file if is_plan else file.with_name(_PLAN + file.stem.removeprefix(_RECORDS))
    try:
        with plan.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        # The operator has ended, and the reader was writing.
        return PlanLock.FREE
    except OSError as e:
        return PlanLock.HELD if e.errno in (errno.EWOULDBLOCK, errno.EACCES) else PlanLock.UNKNOWN
    return PlanLock.FREE
