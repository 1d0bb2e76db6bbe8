"""The watermark of another group, by the event times that its queries store, and its progress.

:mod:`streamgroups.query.stored_watermarks` reads the stored event times. :mod:`streamgroups.query.imported_time` calls
this module at the start of a query and after each read. Source: SEMANTICS W10.

======================================  ============================================================================
the other group                         the query that imports its watermark
======================================  ============================================================================
has stored event times                  uses the watermark of its partitions, and those of the groups it imports from
has committed batches without times     is rejected at its start: a query of that group has no event time
has neither: it starts later            starts, and waits for the watermark
has no members: its queries stopped     uses the last watermark, and logs a warning after a minute
======================================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streamgroups.errors import InvalidOption
from streamgroups.event_time.imports import no_watermark
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest
from streamgroups.printable import listed

#: How long a watermark may stay the same before a warning, in milliseconds.
STANDSTILL_MS = 60_000


@dataclass(frozen=True, slots=True)
class StoredWatermark:
    """The event time that the queries of a group have stored.

    Args:
        watermark: the watermark by the records of the group.
        has_members: whether a query of the group runs.
        has_offsets: whether the group has committed offsets or stored event times.
        lacks_time: whether its queries have committed batches and stored no event time.
        generates: whether its queries generate a watermark from their records.
        imports: the groups whose watermarks its queries import.
    """

    watermark: Watermark = NOT_YET
    has_members: bool = False
    has_offsets: bool = False
    lacks_time: bool = False
    generates: bool = False
    imports: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ImportState:
    """An imported watermark after the last read.

    Args:
        changed_ms: when it last changed; before the first change, when the query began to import it.
        watermark: the latest watermark of the groups.
        groups: the group that the query imports from, and the groups that this one imports from.
        is_reported: whether a warning was logged since it last changed.
    """

    changed_ms: int
    watermark: Watermark = NOT_YET
    groups: Mapping[str, StoredWatermark] = field(default_factory=dict)
    is_reported: bool = False

    @property
    def stopped(self) -> tuple[str, ...]:
        """The groups without members."""
        return tuple(sorted(group_id for group_id, it in self.groups.items() if not it.has_members))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The groups without members and offsets, which possibly do not exist."""
        return tuple(group_id for group_id in self.stopped if not self.groups[group_id].has_offsets)


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """An imported watermark, for users.

    Args:
        group_id: the group that the query imports from.
        watermark: the watermark.
        unchanged_ms: the time since it last changed.
        stopped: the groups without members, on which it depends.
    """

    group_id: str
    watermark: Watermark
    unchanged_ms: int
    stopped: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The status as a sentence.

        >>> from streamgroups.event_time.watermark import At
        >>> print(ImportStatus("trades", At(5_000), 41_000, ("trades",)))
        Watermark of group 'trades', which is imported: 1970-01-01T00:00:05.000Z, unchanged for 41 s; no members: trades.
        """
        stopped = f"; no members: {listed(self.stopped)}" if self.stopped else ""
        return (
            f"Watermark of group '{self.group_id}', which is imported: {self.watermark}, "
            f"unchanged for {self.unchanged_ms // 1_000} s{stopped}."
        )


def check_stored(group_id: str, import_from: str, groups: Mapping[str, StoredWatermark], *, generates: bool) -> None:
    """Validates at the start of a query that it can have a watermark.

    Args:
        group_id: the group of the query.
        import_from: the group that it imports from.
        groups: this group, and the groups that it imports from, except the group of the query.
        generates: whether the query generates a watermark from its own records.

    Raises:
        InvalidOption: if the queries of a group commit batches and store no event time; or if no group generates a
            watermark.

    >>> check_stored("prices", "trades", {"trades": StoredWatermark()}, generates=False)
    >>> check_stored("prices", "trades", {"trades": StoredWatermark(lacks_time=True)}, generates=True)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Group 'prices' imports the watermark of group 'trades', which has committed batches without \
event time. Its query must use sg.with_event_time, or sg.windows with time='group'. If it has just begun to, start this query after \
its first batch.
    """
    for name, found in groups.items():
        if found.lacks_time:
            raise InvalidOption(
                f"Group '{group_id}' imports the watermark of group '{name}', which has committed batches without event "
                "time.",
                remedy="Its query must use sg.with_event_time, or sg.windows with time='group'. If it has just begun to, "
                "start this query after its first batch.",
            )
    if not generates and all(it.imports and not it.generates for it in groups.values()):
        raise no_watermark([group_id, import_from, *sorted(groups.keys() - {import_from})])


def imported(before: ImportState, groups: Mapping[str, StoredWatermark], now_ms: int) -> ImportState:
    """Returns an imported watermark after a read.

    It is not necessarily later than before: a group that is reset starts again. A query never goes back behind a
    watermark that it has used.

    Args:
        before: the watermark before.
        groups: the event times that were read.
        now_ms: the time now, in milliseconds since the epoch.

    >>> from streamgroups.event_time.watermark import At
    >>> state = imported(ImportState(0), {"trades": StoredWatermark(At(5)), "rates": StoredWatermark(At(7))}, 1_000)
    >>> state.watermark, state.changed_ms
    (At(time_ms=7), 1000)
    """
    watermark = latest(*(it.watermark for it in groups.values()))
    if watermark == before.watermark:
        return replace(before, groups=groups)
    return ImportState(now_ms, watermark, groups)


def standstill(state: ImportState, group_id: str, import_from: str, now_ms: int) -> str | None:
    """Returns a warning if an imported watermark does not advance. ``None`` if it does, or a warning was logged.

    A group with members and a watermark can be idle, which is no error.

    Args:
        state: the imported watermark.
        group_id: the group of the query.
        import_from: the group that it imports from.
        now_ms: the time now, in milliseconds since the epoch.

    >>> from streamgroups.event_time.watermark import At
    >>> state = ImportState(0, At(5_000), {"trades": StoredWatermark(At(5_000), has_offsets=True)})
    >>> print(standstill(state, "prices", "trades", 60_000))
    The watermark that group 'prices' imports from group 'trades' has been 1970-01-01T00:00:05.000Z for 60 s: group trades has \
no members. It advances again when a query of this group runs.
    >>> standstill(state, "prices", "trades", 59_999) is None
    True
    """
    unchanged_ms = now_ms - state.changed_ms
    if state.is_reported or unchanged_ms < STANDSTILL_MS:
        return None
    what = (
        f"The watermark that group '{group_id}' imports from group '{import_from}' has been {state.watermark} for "
        f"{unchanged_ms // 1_000} s"
    )
    if state.unknown:
        return (
            f"{what}: group {listed(state.unknown)} has neither members nor committed offsets. Start its query, or "
            "correct 'importFrom'."
        )
    if state.stopped:
        return (
            f"{what}: group {listed(state.stopped)} has no members. It advances again when a query of this group runs."
        )
    if state.watermark != NOT_YET:
        return None
    return (
        f"{what}: a partition of this group has no event time yet. If it has no records, set 'partitionIdleTimeout' for "
        "the queries of the group."
    )
