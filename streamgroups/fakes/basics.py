"""A clock that only a test advances, an executor without a thread, and a history in memory.

They implement :class:`streamgroups.ports.Clock`, :class:`streamgroups.ports.SerialExecutor` and
:class:`streamgroups.ports.Recorder`. Tests pass the events of the history to :mod:`streamgroups.groups.audit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamgroups.groups.history import Event, EventRecorder
from streamgroups.ports import Clock

_T = TypeVar("_T")


class FakeClock:
    """Milliseconds since the epoch.

    Args:
        now_ms: the initial time.

    >>> clock = FakeClock(1_000)
    >>> clock.advance(250)
    >>> clock()
    1250
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, duration_ms: int) -> None:
        """Advances the time."""
        self.now_ms += duration_ms


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


class FakeHistory(EventRecorder):
    """The events of one run of one member.

    Args:
        clock: the source of event times.
        group_id: the group.
        member: the member's name.
        run: distinguishes runs of members with one name.

    >>> from streamgroups.groups.history import Kind, MemberEvent
    >>> history = FakeHistory(lambda: 17, "airline", "alice")
    >>> history(MemberEvent(Kind.CLOSED))
    >>> [(e.time_ms, e.kind.value) for e in history.events]
    [(17, 'closed')]
    """

    def __init__(self, clock: Clock, group_id: str, member: str, run: str = "1") -> None:
        self.events: list[Event] = []
        super().__init__(self.events.append, clock, group_id, member, run)
