"""``streamgroups state show``: shows the states of partitions, and their rows."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from streamgroups.errors import StateDamaged
from streamgroups.json_values import write_json
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.state.selection import GroupsArgument, Location, selected
from streamgroups_operators.inspection import StateRows, inspect
from streamgroups_operators.plain_values import texts_of
from streamgroups_operators.windows.edges import OPEN_EDGES
from streamgroups_operators.windows.shared_partials import RESERVED

_COLUMNS = (
    Column("group"),
    Column("operator"),
    Column("topic"),
    Column("partition", right=True),
    Column("offset", right=True),
    Column("began_offset", right=True),
    Column("windows", right=True),
    Column("open_edges", right=True),
    Column("segments", right=True),
    Column("rows", right=True),
    Column("newest_event_time"),
    Column("file"),
)
_ROW_COLUMNS = (Column("topic"), Column("partition", right=True), Column("window_start"), Column("row"))


def show(
    location: Location,
    groups: GroupsArgument = None,
    offset: Annotated[
        int | None, typer.Option("--offset", help="Show the latest state that is not after this offset.", min=0)
    ] = None,
    rows: Annotated[
        bool,
        typer.Option("--rows", help="Also show the rows: keys with partial results or state."),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show the newest state of each partition, or the one from which a reset to an offset continues."""
    states, contents = [], []
    for group_id, operator, files in selected(location, groups):
        stored_rows = StateRows(files)
        for manifest, state in inspect(files).latest(offset):
            states.append(_cells(group_id, operator, manifest, state))
            if rows:
                contents += _rows(stored_rows, state)
    table, row_table = Table(_COLUMNS, states), Table(_ROW_COLUMNS, contents)
    emit(
        output,
        document=lambda: {
            "states": table.documents,
            **({"rows": row_table.documents} if rows else {}),
        },
        tables=lambda: [
            table,
            *([Table(_ROW_COLUMNS, [[*it[:3], _text(it[3])] for it in contents])] if rows else []),
        ],
    )


def _cells(group_id: str, operator: str, manifest: Manifest, state: PartitionState) -> list[Cell]:
    newest_ms, open_edges = state.values.get("newest_ms"), state.values.get(OPEN_EDGES)
    tp, parts = state.topic_partition, state.parts.values()
    return [
        group_id,
        operator,
        tp.topic,
        tp.partition,
        state.next_offset,
        state.began_offset,
        sum(part not in RESERVED for part in state.parts),
        open_edges if isinstance(open_edges, int) else None,
        sum(map(len, parts)),
        sum(segment.rows for segments in parts for segment in segments),
        utc(newest_ms) if isinstance(newest_ms, int) else None,
        str(manifest.file),
    ]


def _rows(stored_rows: StateRows, state: PartitionState) -> list[list[Any]]:
    tp, found = state.topic_partition, []
    for part, segments in sorted(state.parts.items()):
        try:
            table = stored_rows.of(segments)
        except (FileNotFoundError, ValueError) as e:
            raise StateDamaged(
                f"{tp}: the state of offset {state.next_offset} cannot be read: {e}.",
                remedy="Run 'streamgroups state verify' to list the files that are damaged or missing.",
                topic=tp.topic,
                partition=tp.partition,
            ) from None
        found += [[tp.topic, tp.partition, _window_start(part, row), _plain(row)] for row in texts_of(table)]
    return found


def _window_start(part: str, row: dict[str, Any]) -> str | None:
    """The parts of windows have the start of their window as their name. Other operators have other names.

    Sessions are rows of one part, and have their own start. Intervals and edges have the start of their first window. A
    flush adds a second part.
    """
    part = part.removesuffix(" flushed")
    if part == "sessions":
        return utc(row["start"])
    if part in RESERVED:
        return None if row["first"] is None else utc(row["first"])
    return utc(int(part)) if part.lstrip("-").isdecimal() else None


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row in types of JSON, for each format. Keys of records are bytes, mostly of text. A sum can be ``NaN``."""

    def text(value: Any) -> str:
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    plain: dict[str, Any] = json.loads(write_json(row, default=text))
    return plain


def _text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())
