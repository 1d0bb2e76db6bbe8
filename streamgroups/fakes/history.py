"""A history in memory. Implements :class:`streamgroups.ports.Recorder`; give its events to :mod:`streamgroups.groups.audit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Clock


class FakeHistory:
    """What happened to one run of one member.

    Args:
        clock: stamps the events.
        group_id: the group.
        member: the member's name.
        run: tells runs of members with one name apart.

    >>> history = FakeHistory(lambda: 17, "airline", "alice")
    >>> history(Kind.CLOSED)
    >>> [(e.time_ms, e.kind.value) for e in history.events]
    [(17, 'closed')]
    """

    def __init__(self, clock: Clock, group_id: str, member: str, run: str = "1") -> None:
        self._clock, self._group_id, self._member, self._run = clock, group_id, member, run
        self.events: list[Event] = []

    def __call__(
        self,
        kind: Kind,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        ranges: Iterable[OffsetRange] = (),
        batch: int | None = None,
        note: str = "",
    ) -> None:
        """Keeps one event, stamped with the time now."""
        self.events.append(
            Event(
                self._clock(),
                self._group_id,
                self._member,
                self._run,
                kind,
                dict(offsets or {}),
                tuple(ranges),
                batch,
                note,
            )
        )
