"""A thread that owns objects for use by one thread only: Kafka consumers.

Used by ``admin.metadata_store``. Other threads submit jobs, which it runs one after the other.
Source: the documentation of Kafka's ``KafkaConsumer``, which is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class OwnerThread:
    """One thread and its jobs.

    Args:
        name: the name of the thread, for debuggers.

    >>> owner = OwnerThread("example")
    >>> owner.start(lambda: 6 * 7).result()
    42
    >>> owner.finish(lambda: print("closed")).result()
    closed
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    def start(self, job: Callable[[], _T]) -> Future[_T]:
        """Submits a job, which runs after those that were submitted before it.

        Raises:
            RuntimeError: after :meth:`finish`.
        """
        return self._executor.submit(job)

    def finish(self, last: Callable[[], None]) -> Future[None]:
        """Submits the last job, without waiting. Call it once."""
        try:
            done = self.start(last)
        except RuntimeError:
            # The interpreter is exiting and accepts no new jobs. Its threads have ended, so this thread has exclusive
            # access.
            done = Future()
            try:
                last()
                done.set_result(None)
            except Exception as e:
                done.set_exception(e)
        self._executor.shutdown(wait=False)
        return done
