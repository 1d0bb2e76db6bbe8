"""A history in memory. Implements :class:`streamgroups.ports.Recorder`.

Tests pass its events to :mod:`streamgroups.groups.audit`.
"""

from __future__ import annotations

from streamgroups.groups.history import Event, EventRecorder
from streamgroups.ports import Clock


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
