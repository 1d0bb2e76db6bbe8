"""Prints a plan: partition, old and new offset, and the change in records and in time.

``reset`` and ``import`` use it. Source: SEMANTICS O1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamgroups.durations import duration
from streamgroups.errors import GroupRejected
from streamgroups.groups.reset_plan import Move, out_of_range
from streamgroups.monitoring.snapshots import READS_UNASKED
from streamgroups.partitions import StampedOffset, TopicPartition
from streamgroups.state.continuation import Continuation, Continues, Stops
from streamgroups.state.state_lookup import Stored
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.plans import GroupPlan
from streamgroups_cli.output import Output, emit_rows, print_message

_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("from_offset", right=True),
    Column("to_offset", right=True),
    Column("records", right=True),
    Column("from_time", rank=4),
    Column("to_time", rank=3),
    Column("time", right=True, rank=2),
    Column("detail", style=lambda _: "yellow", is_prose=True),
)

#: The state with which a partition continues: its kind, its offset, and the number of offsets to read again.
_STATE_COLUMNS = (
    Column("state", style=lambda text: "" if text in ("stored", "empty") else "red"),
    Column("state_offset", right=True, rank=1),
    Column("read_again", right=True),
)

#: The number of reads for the times of a plan: two for the old and new offsets, and the rest for a slow broker.
_MAX_READS = 4
#: The time of a record by its offset: of the first record at or after the offset, or of the last one before the end.
_Times = Mapping[tuple[TopicPartition, int], int]


def warn_of_clamping(plans: Sequence[GroupPlan], *, strict: bool) -> None:
    """Warns of offsets outside their partition.

    Raises:
        GroupRejected: with ``strict``.
    """
    outside = [(p.group_id, move) for p in plans for move in out_of_range(p.moves)]
    lines = [
        f"Offset {m.requested_offset} is outside {m.topic_partition} [{m.bounds.beginning_offset}, {m.bounds.end_offset}]"
        for _, m in outside
    ]
    if outside and strict:
        more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
        raise GroupRejected(
            f"{lines[0]}{more}; nothing was changed.", remedy="Use an offset in this range, or omit --strict."
        )
    for line, (_, move) in zip(lines, outside, strict=True):
        print_message(f"Warning: {line}: offset {move.to_offset} is used.")


def emit_plans(cluster: Cluster, plans: Sequence[GroupPlan], output: Output, *, dry_run: bool) -> None:
    """Prints the planned change."""
    times = _times(cluster, plans)
    cells = [
        (p.states.get(move.topic_partition), _cells(p, move, times, human=output is Output.table))
        for p in plans
        for move in p.moves
    ]
    cells += [(None, _forgotten_cells(p.group_id, tp, offset)) for p in plans for tp, offset in p.forgotten.items()]
    columns = [
        Column("time_ms", right=True) if c.name == "time" and output is not Output.table else c for c in _COLUMNS
    ]
    rows = [row for _, row in cells]
    if any(p.states for p in plans):
        columns = [*columns[:-1], *_STATE_COLUMNS, columns[-1]]
        rows = [[*row[:-1], *_state_cells(state), row[-1]] for state, row in cells]
    emit_rows(output, "moves", Table(columns, rows), dry_run=dry_run)


def _cells(plan: GroupPlan, move: Move, times: _Times, *, human: bool) -> list[Cell]:
    tp = move.topic_partition
    from_ms = None if move.from_offset is None else times.get((tp, move.from_offset))
    to_ms = times.get((tp, move.to_offset))
    change_ms = None if from_ms is None or to_ms is None else to_ms - from_ms
    detail = "" if move.requested_offset is None else f"requested {move.requested_offset}"
    if human:
        change = None if move.change is None else f"{move.change:+d}"
        shown_ms = duration(change_ms)
        time = shown_ms if shown_ms is None or shown_ms.startswith("-") else f"+{shown_ms}"
        cells: list[Cell] = [change, utc(from_ms), utc(to_ms), time]
    else:
        cells = [move.change, utc(from_ms), utc(to_ms), change_ms]
    return [plan.group_id, tp.topic, tp.partition, move.from_offset, move.to_offset, *cells, detail]


def _forgotten_cells(group_id: str, tp: TopicPartition, offset: int) -> list[Cell]:
    return [group_id, tp.topic, tp.partition, offset, None, None, None, None, None, "deleted"]


def _state_cells(found: Continuation | None) -> list[Cell]:
    match found:
        case Continues(choice=Stored(state=state), read_again=count):
            return ["stored", state.next_offset, count]
        case Continues(read_again=count):
            return ["empty", None, count]
        case Stops(error=error):
            return [error.code.removeprefix("state_"), None, None]
    return [None, None, None]


def _times(cluster: Cluster, plans: Sequence[GroupPlan]) -> dict[tuple[TopicPartition, int], int]:
    """Returns the times of the records at both ends of each change. At the end of a partition, the last record counts."""
    bounds = {move.topic_partition: move.bounds for p in plans for move in p.moves}
    places = {
        (move.topic_partition, offset)
        for p in plans
        for move in p.moves
        for offset in (move.from_offset, move.to_offset)
        if offset is not None and move.bounds.beginning_offset <= offset <= move.bounds.end_offset
    }
    inside = {(tp, offset) for tp, offset in places if offset < bounds[tp].end_offset}
    if len(inside) > READS_UNASKED:
        print_message("The times were not read: they require too many reads.")
        return {}
    newest = cluster.topics.newest([tp for tp, _ in places - inside])
    found = {(tp, bounds[tp].end_offset): it.timestamp_ms for tp, it in newest.items() if it is not None}
    reads, lag = 0, inside
    while lag and reads < _MAX_READS:
        # A read contains one offset of each partition. It ends after a time limit, without a result for the rest.
        reads += 1
        offsets = dict(sorted(lag))
        for tp, first in cluster.topics.first_records(offsets).items():
            lag = lag - {(tp, offsets[tp])}
            if isinstance(first, StampedOffset):
                found[tp, offsets[tp]] = first.timestamp_ms
    if lag:
        print_message(f"The broker did not return the times of {len(lag)} of the offsets in time.")
    return {place: time_ms for place, time_ms in found.items() if time_ms is not None}
