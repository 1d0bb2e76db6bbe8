"""An executor without a thread. Implements :class:`streamgroups.ports.SerialExecutor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class FakeExecutor:
    """Runs each job at once, in the caller's thread.

    >>> FakeExecutor().run(lambda: 6 * 7)
    42
    """

    def start(self, job: Callable[[], None]) -> None:
        """See :meth:`streamgroups.ports.SerialExecutor.start`."""
        job()

    def run(self, job: Callable[[], _T]) -> _T:
        """See :meth:`streamgroups.ports.SerialExecutor.run`."""
        return job()

    def finish(self, last: Callable[[], None]) -> None:
        """See :meth:`streamgroups.ports.SerialExecutor.finish`."""
        last()
