"""A history in memory. Implements :class:`streamgroups.ports.Recorder`; give its events to :mod:`streamgroups.groups.audit`."""

from __future__ import annotations

from streamgroups.groups.history import Event, EventRecorder
from streamgroups.ports import Clock


class FakeHistory(EventRecorder):
    """What happened to one run of one member.

    Args:
        clock: stamps the events.
        group_id: the group.
        member: the member's name.
        run: tells runs of members with one name apart.

    >>> from streamgroups.groups.history import Kind
    >>> history = FakeHistory(lambda: 17, "airline", "alice")
    >>> history(Kind.CLOSED)
    >>> [(e.time_ms, e.kind.value) for e in history.events]
    [(17, 'closed')]
    """

    def __init__(self, clock: Clock, group_id: str, member: str, run: str = "1") -> None:
        self.events: list[Event] = []
        super().__init__(self.events.append, clock, group_id, member, run)
