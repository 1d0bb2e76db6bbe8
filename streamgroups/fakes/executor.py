"""An executor without a thread. Implements :class:`streamgroups.ports.SerialExecutor`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


class FakeExecutor:
    """Runs each job at once, in the caller's thread.

    >>> FakeExecutor().run(lambda: 6 * 7)
    42
    """

    def start(self, job: Callable[[], _T]) -> Future[_T]:
        """See :meth:`streamgroups.ports.SerialExecutor.start`."""
        done: Future[_T] = Future()
        try:
            done.set_result(job())
        except Exception as e:
            done.set_exception(e)
        return done

    def run(self, job: Callable[[], _T]) -> _T:
        """See :meth:`streamgroups.ports.SerialExecutor.run`."""
        return job()

    def finish(self, last: Callable[[], None]) -> Future[None]:
        """See :meth:`streamgroups.ports.SerialExecutor.finish`."""
        return self.start(last)
