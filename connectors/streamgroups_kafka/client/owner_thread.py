"""A thread that owns what only one thread may touch: Kafka consumers.

Used by ``session``, ``reader`` and ``metadata_store``. Other threads hand it jobs, which it does one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class OwnerThread:
    """One thread and its jobs.

    Args:
        name: what debuggers show.

    >>> owner = OwnerThread("example")
    >>> owner.run(lambda: 6 * 7)
    42
    >>> owner.finish(lambda: print("closed")).result()
    closed
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    def start(self, job: Callable[[], _T]) -> Future[_T]:
        """Has a job done, after those that were started before it.

        Raises:
            RuntimeError: after :meth:`finish`.
        """
        return self._executor.submit(job)

    def run(self, job: Callable[[], _T]) -> _T:
        """Has a job done, waits for it, and returns or raises what it does."""
        return self.start(job).result()

    def finish(self, last: Callable[[], None]) -> Future[None]:
        """Has the last job done; does not wait. Call it once."""
        try:
            done = self.start(last)
        except RuntimeError:
            # The interpreter is on its way out and takes no new jobs; its threads have ended, so this one is alone.
            done = Future()
            try:
                last()
                done.set_result(None)
            except Exception as e:
                done.set_exception(e)
        self._executor.shutdown(wait=False)
        return done
