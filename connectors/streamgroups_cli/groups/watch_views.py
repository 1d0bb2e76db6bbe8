"""The views of ``groups watch`` for one poll of the groups: a screen, a line for each group, or a document.

:mod:`streamgroups_cli.groups.watching` calls it. Source: SEMANTICS O3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamgroups.durations import duration
from streamgroups.monitoring.group_tables import bounded, lag_cell
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.monitor import WatchedGroup, WatchedPartition
from streamgroups.partitions import TopicPartition
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.groups.describing import partition_document
from streamgroups_cli.groups.styles import lag_state_style, state_style, time_state_style

#: The worst state first.
_URGENCY = {state: place for place, state in enumerate(LagState)}

_GROUPS = (
    Column("group"),
    Column("state", style=state_style),
    Column("members", right=True, rank=3),
    Column("lag", right=True),
    Column("time_lag", right=True, rank=2),
    Column("read_per_s", right=True, rank=4),
    Column("lag_state", style=lag_state_style),
)
_PARTITIONS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("owner", rank=3),
    Column("committed_offset", right=True, rank=6),
    Column("end_offset", right=True, rank=7),
    Column("lag", right=True),
    Column("in_flight", right=True, rank=8),
    Column("time_lag", right=True, rank=4),
    Column("lag_state", style=lag_state_style),
)
#: Only if a group has event time (``sg.with_event_time``, or windows of partitions), because a screen is narrow.
_WATERMARK = (Column("watermark", rank=1),)
_EVENT_TIME = (
    Column("event_time", rank=5),
    *_WATERMARK,
    Column("time_state", style=time_state_style, rank=2),
)
_PLAIN = (Column("time"), *_GROUPS)
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


def screen(poll: Poll, max_rows: int) -> list[Table]:
    """Returns the tables of groups and of their partitions, the worst first.

    Args:
        poll: the poll.
        max_rows: the number of rows that fit. Groups take at most half of them.
    """
    groups = sorted(poll.groups, key=_urgency)
    partitions = sorted(((g, p) for g in groups for p in g.partitions), key=_partition_urgency)
    shown = groups[: max(max_rows // 2, 1)]
    shown_partitions = partitions[: max(max_rows - len(shown), 1)]
    has_time = _has_time(poll)
    return [
        _table(
            (*_GROUPS, *(_WATERMARK if has_time else ())),
            [_group_cells(g, human=True) for g in shown],
            _counted(len(shown), len(groups), "group"),
        ),
        _table(
            (*_PARTITIONS, *(_EVENT_TIME if has_time else ())),
            [_partition_cells(*it) for it in shown_partitions],
            _counted(len(shown_partitions), len(partitions), "partition"),
        ),
    ]


def _counted(shown: int, count: int, noun: str) -> str:
    of_all = f"{shown:,} of " if shown < count else ""
    return f"{of_all}{count:,} {noun}{'' if count == 1 else 's'}"


def _table(columns: Sequence[Column], rows: Sequence[list[Cell]], heading: str = "") -> Table:
    """Returns a table. Rows can have more cells than columns; the last cells are then omitted."""
    return Table(columns, [row[: len(columns)] for row in rows], heading)


def _has_time(poll: Poll) -> bool:
    return any(p.event_time is not None for g in poll.groups for p in g.partitions)


def _urgency(group: WatchedGroup) -> tuple[int, int, str]:
    return _URGENCY[group.state], -(group.snapshot.records or 0), group.snapshot.description.group_id


def _partition_urgency(it: tuple[WatchedGroup, WatchedPartition]) -> tuple[int, int, str, TopicPartition]:
    group, partition = it
    lag = partition.lag
    return _URGENCY[partition.state], -(lag.records or 0), group.snapshot.description.group_id, lag.topic_partition


def _group_cells(g: WatchedGroup, *, human: bool) -> list[Cell]:
    d, rate = g.snapshot.description, g.read_per_s
    return [
        d.group_id,
        d.state,
        len(d.members),
        lag_cell(g.snapshot) if human else g.snapshot.records,
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
    return [[utc(poll.time_ms), *_group_cells(g, human=human)] for g in poll.groups]


def csv_rows(poll: Poll) -> Table:
    """Returns one row for each group, for programs."""
    at = [c.name for c in _CSV].index("time_lag_ms")
    plain = zip(_plain_rows(poll, human=False), poll.groups, strict=True)
    rows = [[*row[:at], g.time_lag_ms, *row[at + 1 :]] for row, g in plain]
    return Table(_CSV, rows)


def document(poll: Poll) -> dict[str, Any]:
    """Returns one poll, for programs."""
    return {"time": utc(poll.time_ms), "groups": [_group_document(g, poll.time_ms) for g in poll.groups]}


def _group_document(g: WatchedGroup, now_ms: int) -> dict[str, Any]:
    d, owners = g.snapshot.description, g.snapshot.description.owners
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
                **partition_document(p.lag, owners.get(p.lag.topic_partition), now_ms),
                "time_lag_ms": p.time_lag_ms,
                "lag_state": p.state.value,
                "event_time": None if p.event_time is None else utc(p.event_time.event_time_ms),
                "watermark": None if p.event_time is None else str(p.event_time.asserts),
                "time_state": None if p.event_time is None else p.event_time.state.value,
            }
            for p in g.partitions
        ],
    }
