"""Jobs that a running query does not wait for, in threads of their own.

Used by ``source.running_query`` in the process of a query.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from streamgroups_kafka.client.import_lock import KAFKA_PYTHON

#: How long other threads of the process wait at most for a thread that imports. Python's default is 5 ms.
_SWITCH_INTERVAL_S = 0.001

_T = TypeVar("_T")


def in_background(job: Callable[[], None]) -> None:
    """Starts a job.

    Args:
        job: the job. It raises nothing.
    """
    # A daemon thread: an unresponsive broker must not keep the process of an ended query alive.
    threading.Thread(target=job, name="streamgroups-background", daemon=True).start()


class SerialJobs:
    """Runs jobs one after the other. Implements :class:`streamgroups.ports.SerialExecutor`.

    A lock orders the jobs, so that a job of the query's thread needs no other thread.
    """

    def __init__(self) -> None:
        self._lock, self._is_finished = threading.Lock(), False

    def start(self, job: Callable[[], None]) -> None:
        """See :meth:`streamgroups.ports.SerialExecutor.start`. The job raises nothing."""

        def unless_finished() -> None:
            with self._lock:
                if not self._is_finished:
                    job()

        in_background(unless_finished)

    def run(self, job: Callable[[], _T]) -> _T:
        """See :meth:`streamgroups.ports.SerialExecutor.run`."""
        with self._lock:
            return job()

    def finish(self, last: Callable[[], None]) -> None:
        """See :meth:`streamgroups.ports.SerialExecutor.finish`."""

        def finish() -> None:
            with self._lock:
                self._is_finished = True
                last()

        # Not a daemon thread: the process exits after the last job.
        threading.Thread(target=finish, name="streamgroups-close").start()


def import_partition_sizes() -> None:
    """Imports what the request for record sizes needs.

    The import takes 90 ms of a processor, and the first batch waits for the sizes. So a query starts it while it waits
    for the broker. The thread of the query must continue after each response, although the import holds the GIL.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        with KAFKA_PYTHON:
            import streamgroups_kafka.admin.unsupported_requests  # noqa: F401
    finally:
        sys.setswitchinterval(interval_s)
