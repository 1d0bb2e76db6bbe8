"""A thread and its jobs, which a signal handler and the garbage collector can submit too.

Used by ``cursors.instance_session``, ``cursors.reader`` and ``admin.metadata_store``. The thread owns objects for use by one
thread only: Kafka consumers. Signal handlers and the collector interrupt a thread at any place, also while it submits a job or
holds a lock. So no method here acquires a lock that the interrupted code can hold: the executors of the standard library do. The
thread is a daemon. So it still runs jobs at the exit of the interpreter, when executors have ended, and the exit does not wait
for a job. Source: ``queue.SimpleQueue``, whose ``put`` is reentrant; ``gc.callbacks``; the documentation of Kafka's
``KafkaConsumer``, which is not thread-safe.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_LAST = "last"


class ThreadEnded(RuntimeError):
    """The thread accepts no more jobs."""

    def __init__(self) -> None:
        super().__init__("The thread accepts no more jobs.")


class Job(Generic[_T]):
    """A job of a :class:`JobThread`, and its result.

    Args:
        work: the job.
    """

    __slots__ = ("_outcome", "_waiting", "_work")

    def __init__(self, work: Callable[[], _T]) -> None:
        # Empty after the job has started. One thread can start it while another one rejects it, and only one gets it.
        self._work = [work]
        self._outcome: tuple[_T] | BaseException | None = None
        # One lock for each waiting thread, so that no thread holds a lock that the job needs.
        self._waiting: deque[threading.Lock] = deque()

    def done(self) -> bool:
        """Returns whether the job has ended."""
        return self._outcome is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the job has ended. Returns whether it has.

        Args:
            timeout_s: how long to wait, in seconds; ``None`` for no limit.
        """
        ended = threading.Lock()
        ended.acquire()
        self._waiting.append(ended)
        # A job that ends from here on releases the lock.
        if not self.done():
            ended.acquire(timeout=-1 if timeout_s is None else timeout_s)
        return self.done()

    def result(self, timeout_s: float | None = None) -> _T:
        """Waits for the job, and returns its result or raises its error.

        Args:
            timeout_s: how long to wait, in seconds; ``None`` for no limit.

        Raises:
            TimeoutError: if the job has not ended in time.
            ThreadEnded: if the thread ended before the job.
        """
        self.wait(timeout_s)
        outcome = self._outcome
        if outcome is None:
            raise TimeoutError(f"The job has not ended within {timeout_s:g} s.")
        if isinstance(outcome, BaseException):
            try:
                raise outcome
            finally:
                # The error refers to this frame. A cycle keeps the variables of all callers until the collector runs.
                del outcome, self
        return outcome[0]

    def run(self) -> None:
        """Runs the job, unless it has started before. Called by the thread."""
        try:
            work = self._work.pop()
        except IndexError:
            return
        try:
            outcome: tuple[_T] | BaseException = (work(),)
        except BaseException as e:
            outcome = e
        self._end(outcome)
        # As in result().
        del outcome, self

    def reject(self) -> None:
        """Ends the job with an error, unless it has started before."""
        try:
            self._work.pop()
        except IndexError:
            return
        self._end(ThreadEnded())

    def _end(self, outcome: tuple[_T] | BaseException) -> None:
        self._outcome = outcome
        while self._waiting:
            self._waiting.popleft().release()


class JobThread:
    """One thread that runs jobs one after the other. All methods can be called on any thread, and at any place.

    Args:
        name: the name of the thread, for debuggers.

    >>> thread = JobThread("example")
    >>> thread.start(lambda: 6 * 7).result()
    42
    >>> thread.finish(lambda: print("closed")).result()
    closed
    >>> thread.start(lambda: 6 * 7)
    Traceback (most recent call last):
    streamgroups_kafka.client.job_thread.ThreadEnded: The thread accepts no more jobs.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job[Any]] = SimpleQueue()
        self._last: dict[str, Job[None]] = {}
        self._has_ended = False
        # A forked process has a copy of this object, but not the thread.
        self._process = os.getpid()
        # Started here: a thread cannot start at the exit of the interpreter, and not safely in a signal handler.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], _T]) -> Job[_T]:
        """Submits a job, which runs after those that were submitted before it.

        Raises:
            ThreadEnded: after :meth:`finish`. If both are called at the same time, the job can raise it instead. Always in a
                forked process.
        """
        if self._last or self._process != os.getpid():
            raise ThreadEnded
        job = Job(work)
        self._jobs.put(job)
        # The thread may have ended after the check, and then it does not reject the job.
        if self._has_ended:
            self._reject_jobs()
        return job

    def finish(self, last: Callable[[], None]) -> Job[None]:
        """Submits the last job, without waiting. Of several calls, the job of the first one runs, and all return it."""
        job = self._last.setdefault(_LAST, Job(last))
        # Also by a later call: it can have interrupted the first one before this line.
        self._jobs.put(job)
        return job

    @property
    def is_current(self) -> bool:
        """Whether the current code runs on this thread."""
        # A new thread can have the identifier of one that has ended.
        return threading.get_ident() == self._thread.ident and not self._has_ended

    def may_wait(self) -> bool:
        """Returns whether the current code may wait for a job of this thread.

        It may not on the thread itself. In the garbage collector, the interrupted code can hold a lock that the job needs. At
        the end of the interpreter the thread has stopped, and a forked process does not have it.
        """
        return not (self.is_current or self._process != os.getpid() or sys.is_finalizing() or is_collecting())

    def wait_for(self, job: Job[Any], timeout_s: float) -> bool:
        """Waits for a job, unless the current code must not wait. Returns whether the job has ended.

        Raises:
            TimeoutError: if the job has not ended in time. Also the errors of the job.
        """
        try:
            if not job.done() and not self.may_wait():
                return False
            job.result(timeout_s)
            return True
        finally:
            # As in Job.result().
            del job

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            job.run()
            if job is self._last.get(_LAST):
                break
            # Its result can be large.
            del job
        self._has_ended = True
        self._reject_jobs()

    def _reject_jobs(self) -> None:
        while True:
            try:
                self._jobs.get_nowait().reject()
            except Empty:
                return


#: The thread on which the garbage collector runs; ``None`` if it does not run.
_collecting: int | None = None


def _on_collection(phase: str, _: Mapping[str, int]) -> None:
    global _collecting
    _collecting = threading.get_ident() if phase == "start" else None


gc.callbacks.append(_on_collection)


def is_collecting() -> bool:
    """Returns whether the garbage collector runs on this thread, so that the current code may be a finalizer at any place.

    >>> is_collecting()
    False
    """
    return _collecting == threading.get_ident()
