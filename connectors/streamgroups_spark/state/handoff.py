"""Passes the plan of a task from its reader to its operator.

The reader of a source (``source.data_source``) and an operator in the same stage (``state.stage``) run in two Python
processes of one host, for the same attempt of a task. The reader writes the plan into a file with the id of the attempt
before its first row, and the operator takes the file. So it is the plan of the ranges that were really read, also after
a retry, a ``coalesce`` or a second evaluation of a batch. The name of the file also contains the id of the application:
a process can start another application, whose attempts have the same ids, and a killed task leaves its file. Source:
Spark's ``TaskContext.taskAttemptId``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from pyspark import TaskContext

from streamgroups.errors import StreamGroupsError
from streamgroups.state.task_plan import TaskPlan, decode, encode
from streamgroups_spark.internals.rpc import task_directory_of

#: A killed task leaves its file. No task runs this long.
_OLD_S = 7 * 24 * 3600
#: How often old files are removed: once per this number of attempts.
_SWEEP_EVERY = 1_000


def attempt_id() -> int:
    """The id of the attempt of the task that this process runs.

    Raises:
        StreamGroupsError: outside of a task.
    """
    context = TaskContext.get()
    if context is None:
        raise StreamGroupsError(
            "An operator with state runs outside of a Spark task.", remedy="Use it in a streaming query only."
        )
    return int(context.taskAttemptId())


def give(session: str, application: str, plan: TaskPlan) -> None:
    """Adds a plan for the operator of this attempt. After a ``coalesce`` a task has several plans.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
        plan: the plan.
    """
    attempt = attempt_id()
    with _file(session, application, attempt).open("a", encoding="utf-8") as file:
        file.write(encode(plan) + "\n")
    if attempt % _SWEEP_EVERY == 0:
        _sweep(session)


def take(session: str, application: str, attempt: int) -> list[TaskPlan]:
    """Returns and removes the plans of an attempt. Empty if its task has read no ranges."""
    file = _file(session, application, attempt)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    file.unlink()
    return [decode(line) for line in lines]


def _file(session: str, application: str, attempt: int) -> Path:
    return task_directory_of(session) / f"task-{application}-{attempt}"


def _sweep(session: str) -> None:
    for file in task_directory_of(session).glob("task-*"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _OLD_S:
                file.unlink()
