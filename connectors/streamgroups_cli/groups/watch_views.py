"""The views of ``groups watch`` for one poll of the groups: a screen, a line for each group, or a document.

:mod:`streamgroups_cli.groups.watching` and :mod:`streamgroups_cli.groups.watch_screen` call it. Source: SEMANTICS O3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamgroups.durations import duration
from streamgroups.monitoring.group_tables import bounded
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.monitor import WatchedGroup, WatchedPartition
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.groups.styles import lag_state_style, sparkline, state_style, time_state_style

_SPARKS = 20
#: The worst state first.
_URGENCY = {state: place for place, state in enumerate(LagState)}

_GROUPS = (
    Column("group"),
    Column("state", style=state_style),
    Column("members", right=True),
    Column("lag", right=True),
    Column("lag_history"),
    Column("time_lag", right=True),
    Column("read_per_s", right=True),
    Column("lag_state", style=lag_state_style),
)
_PARTITIONS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("owner"),
    Column("committed_offset", right=True),
    Column("end_offset", right=True),
    Column("lag", right=True),
    Column("in_flight", right=True),
    Column("lag_history"),
    Column("time_lag", right=True),
    Column("lag_state", style=lag_state_style),
)
#: Only if a group has event time (``sg.with_event_time``, or windows of partitions), because a screen is narrow.
_WATERMARK = (Column("watermark"),)
_EVENT_TIME = (Column("event_time"), *_WATERMARK, Column("time_state", style=time_state_style))
_PLAIN = (Column("time"), *(c for c in _GROUPS if c.name != "lag_history"))
_CSV = (*(Column("time_lag_ms") if c.name == "time_lag" else c for c in _PLAIN), *_WATERMARK)


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of the groups.

    Args:
        time_ms: the time of the poll, in milliseconds since the epoch.
        groups: its result.
        where: the cluster.
        error: why an earlier poll is shown again; empty if this is a new one.
    """

    time_ms: int
    groups: Sequence[WatchedGroup]
    where: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the screen. Its content is computed for visible rows only.

    Args:
        group: its group.
        cells: returns its content, with cells beyond the columns if no group has event time.
        order: returns the value to sort by, for the name of a column.
        topic: its topic, if it is a partition.
        partition: its number, if it is a partition.
    """

    group: str
    cells: Callable[[], Sequence[Cell]]
    order: Callable[[str], Any]
    topic: str = ""
    partition: int = -1

    @property
    def key(self) -> str:
        """Identifies the row in all polls."""
        return f"{self.group}\0{self.topic}\0{self.partition}" if self.topic else self.group


def group_of(key: str) -> str:
    """Returns the group of a row, from the key of the row."""
    return key.partition("\0")[0]


def group_columns(poll: Poll) -> Sequence[Column]:
    """Returns the columns of groups on the screen."""
    return (*_GROUPS, *(_WATERMARK if _has_time(poll) else ()))


def partition_columns(poll: Poll) -> Sequence[Column]:
    """Returns the columns of partitions on the screen."""
    return (*_PARTITIONS, *(_EVENT_TIME if _has_time(poll) else ()))


def group_rows(poll: Poll) -> list[Row]:
    """Returns the groups, the worst first."""
    return [
        Row(g.snapshot.description.group_id, partial(_group_cells, g, human=True), partial(_group_order, g))
        for g in sorted(poll.groups, key=_urgency)
    ]


def partition_rows(poll: Poll) -> list[Row]:
    """Returns the partitions of all groups, the worst first."""
    pairs = [(g, p) for g in poll.groups for p in g.partitions]
    pairs.sort(
        key=lambda it: (*_partition_urgency(it[1]), it[0].snapshot.description.group_id, it[1].lag.topic_partition)
    )
    return [
        Row(
            g.snapshot.description.group_id,
            partial(_partition_cells, g, p),
            partial(_partition_order, g, p),
            p.lag.topic_partition.topic,
            p.lag.topic_partition.partition,
        )
        for g, p in pairs
    ]


def _group_order(g: WatchedGroup, column: str) -> Any:
    match column:
        case "lag" | "lag_history":
            return g.snapshot.records
        case "time_lag":
            return g.time_lag_ms
        case "read_per_s":
            return g.read_per_s
        case "lag_state":
            return _URGENCY[g.state]
    return _cell((*_GROUPS, *_WATERMARK), _group_cells(g, human=True), column)


def _partition_order(g: WatchedGroup, p: WatchedPartition, column: str) -> Any:
    match column:
        case "lag" | "lag_history":
            return p.lag.records
        case "time_lag":
            return p.time_lag_ms
        case "lag_state":
            return _URGENCY[p.state]
    return _cell((*_PARTITIONS, *_EVENT_TIME), _partition_cells(g, p), column)


def _cell(columns: Sequence[Column], cells: Sequence[Cell], name: str) -> Cell:
    return next(cell for column, cell in zip(columns, cells, strict=True) if column.name == name)


def _table(columns: Sequence[Column], rows: Sequence[list[Cell]]) -> Table:
    """Returns a table. Rows can have more cells than columns; the last cells are then omitted."""
    return Table(columns, [row[: len(columns)] for row in rows])


def _has_time(poll: Poll) -> bool:
    return any(p.event_time is not None for g in poll.groups for p in g.partitions)


def _urgency(group: WatchedGroup) -> tuple[int, int, str]:
    return _URGENCY[group.state], -(group.snapshot.records or 0), group.snapshot.description.group_id


def _partition_urgency(partition: WatchedPartition) -> tuple[int, int]:
    return _URGENCY[partition.state], -(partition.lag.records or 0)


def _group_cells(g: WatchedGroup, *, human: bool) -> list[Cell]:
    d, rate = g.snapshot.description, g.read_per_s
    return [
        d.group_id,
        d.state,
        len(d.members),
        bounded(g.snapshot.records, is_exact=g.snapshot.is_exact) if human else g.snapshot.records,
        sparkline(g.lag_history, _SPARKS),
        duration(g.time_lag_ms),
        None if rate is None else f"{rate:.0f}",
        g.state.value,
        None if g.watermark is None else str(g.watermark),
    ]


def _partition_cells(g: WatchedGroup, p: WatchedPartition) -> list[Cell]:
    tp = p.lag.topic_partition
    owner = g.snapshot.description.owners.get(tp)
    return [
        g.snapshot.description.group_id,
        tp.topic,
        tp.partition,
        str(owner) if owner else None,
        p.lag.committed_offset,
        p.lag.end_offset,
        bounded(p.lag.records, is_exact=p.lag.is_exact),
        p.lag.in_flight,
        sparkline([sample.records for sample in p.samples], _SPARKS),
        duration(p.time_lag_ms),
        p.state.value,
        None if p.event_time is None else utc(p.event_time.event_time_ms),
        None if p.event_time is None else str(p.event_time.asserts),
        None if p.event_time is None else p.event_time.state.value,
    ]


def plain_table(poll: Poll) -> Table:
    """Returns one line for each group."""
    columns = (*_PLAIN, *(_WATERMARK if _has_time(poll) else ()))
    return _table(columns, _plain_rows(poll, human=True))


def _plain_rows(poll: Poll, *, human: bool) -> list[list[Cell]]:
    index = [c.name for c in _GROUPS].index("lag_history")
    rows = [_group_cells(g, human=human) for g in poll.groups]
    return [[utc(poll.time_ms), *row[:index], *row[index + 1 :]] for row in rows]


def csv_rows(poll: Poll) -> Table:
    """Returns one row for each group, for programs."""
    at = [c.name for c in _CSV].index("time_lag_ms")
    plain = zip(_plain_rows(poll, human=False), poll.groups, strict=True)
    rows = [[*row[:at], g.time_lag_ms, *row[at + 1 :]] for row, g in plain]
    return Table(_CSV, rows)


def document(poll: Poll) -> dict[str, Any]:
    """Returns one poll, for programs."""
    return {"time": utc(poll.time_ms), "groups": [_group_document(g) for g in poll.groups]}


def _group_document(g: WatchedGroup) -> dict[str, Any]:
    d = g.snapshot.description
    return {
        "group": d.group_id,
        "state": d.state,
        "members": len(d.members),
        "lag": g.snapshot.records,
        "lag_exact": None if g.snapshot.records is None else g.snapshot.is_exact,
        "open": g.snapshot.open_records,
        "time_lag_ms": g.time_lag_ms,
        "read_per_s": g.read_per_s,
        "lag_state": g.state.value,
        "watermark": None if g.watermark is None else str(g.watermark),
        "partitions": [
            {
                "topic": p.lag.topic_partition.topic,
                "partition": p.lag.topic_partition.partition,
                "owner": owner.client_id if (owner := d.owners.get(p.lag.topic_partition)) else None,
                "committed_offset": p.lag.committed_offset,
                "end_offset": p.lag.end_offset,
                "lag": p.lag.records,
                "lag_exact": None if p.lag.records is None else p.lag.is_exact,
                "open": p.lag.open_records,
                "in_flight": p.lag.in_flight,
                "time_lag_ms": p.time_lag_ms,
                "lag_state": p.state.value,
                "event_time": None if p.event_time is None else utc(p.event_time.event_time_ms),
                "watermark": None if p.event_time is None else str(p.event_time.asserts),
                "time_state": None if p.event_time is None else p.event_time.state.value,
            }
            for p in g.partitions
        ],
    }
