"""The watermark that a stream imports from another group: a slow reference stream follows a fast one.

``streamgroups_spark.event_time.punctuation_source`` validates the imports of the running streams of an application, and
follows them. :mod:`streamgroups.query.imported_time` follows groups of any application, by the event times that their queries
store. Source: SEMANTICS W10; StreamInsight's ``AdvanceTimeImportSettings``. If a stream both generates and imports a
watermark, the later one counts, and an earlier one has no effect.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest
from streamgroups.printable import listed

#: How long a watermark may stay the same before a warning, in milliseconds.
STANDSTILL_MS = 60_000


def check_imports(stream: str, streams: Mapping[str, TimeSettings]) -> None:
    """Validates that a stream has a watermark, as far as the known streams show it.

    Streams that it does not import from are not checked, because they can belong to other queries. A group that is not
    among the streams can belong to another application.

    Args:
        stream: its name.
        streams: the event-time settings of each known stream, by its name.

    Raises:
        InvalidOption: if a stream on the import path imports from itself, or if all streams on it are known and none
            generates a watermark.

    >>> from streamgroups.event_time.strategy import Generation
    >>> prices, trades = TimeSettings(import_from="trades"), TimeSettings(Generation())
    >>> check_imports("prices", {"prices": prices, "trades": trades})
    >>> check_imports("prices", {"prices": prices})
    >>> check_imports("prices", {"prices": prices, "trades": TimeSettings(import_from="prices")})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Stream 'prices' has no watermark: it imports event time along prices <- trades, and no stream of \
these generates a watermark. Set 'emitEvery', 'watermarkDelay' or 'watermarkHeader' for one of them.
    """
    way = way_of(stream, streams)
    for name in way:
        if streams[name].import_from == name:
            raise InvalidOption(
                f"Option 'importFrom' of stream '{name}' names the same stream.",
                remedy="Name another group, or set 'emitEvery' or 'watermarkDelay' to generate a watermark.",
            )
    last = streams[way[-1]].import_from
    is_whole = last is None or last in streams
    if is_whole and not any(streams[name].has_own_watermark for name in way):
        raise _no_watermark(way)


def way_of(stream: str, streams: Mapping[str, TimeSettings]) -> list[str]:
    """Returns a stream, the stream it imports from, and so on. A cycle is followed once.

    >>> way_of("prices", {"prices": TimeSettings(import_from="trades"), "trades": TimeSettings(import_from="prices")})
    ['prices', 'trades']
    """
    way = [stream]
    while (source := streams[way[-1]].import_from) in streams and source is not None and source not in way:
        way.append(source)
    return way


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
        raise _no_watermark([group_id, import_from, *sorted(groups.keys() - {import_from})])


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
no members. If its query has stopped, start it. A query with 'assign' is no member, and can be idle.
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
    # Groups that possibly do not exist.
    unknown = [it for it in state.stopped if not state.groups[it].has_offsets]
    if unknown:
        return (
            f"{what}: group {listed(unknown)} has neither members nor committed offsets. Start its query, or "
            "correct 'importFrom'."
        )
    if state.stopped:
        return (
            f"{what}: group {listed(state.stopped)} has no members. If its query has stopped, start it. A query with 'assign' is "
            "no member, and can be idle."
        )
    if state.watermark != NOT_YET:
        return None
    return (
        f"{what}: a partition of this group has no event time yet. If it has no records, set 'partitionIdleTimeout' for "
        "the queries of the group."
    )


def _no_watermark(way: Sequence[str]) -> InvalidOption:
    return InvalidOption(
        f"Stream '{way[0]}' has no watermark: it imports event time along {' <- '.join(way)}, and no stream of these generates a watermark.",
        remedy="Set 'emitEvery', 'watermarkDelay' or 'watermarkHeader' for one of them.",
    )
