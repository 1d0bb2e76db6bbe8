"""The replicas of processors as tables and documents, for ``processors list`` and ``instance status``. Source: SEMANTICS P2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgroups.instances.overview import ReplicaView
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc

_STYLES = {"running": "green", "failed": "bold red", "starting": "yellow", "stopping": "yellow"}
_COLUMNS = (
    Column("processor"),
    Column("state", style=lambda text: _STYLES.get(text.split()[0], "") if text else ""),
    Column("worker"),
    Column("since", rank=2),
    Column("batch", right=True, rank=1),
    Column("rows_per_s", right=True, rank=1),
    Column("batch_ms", right=True, rank=3),
    Column("lag", right=True),
    Column("watermark", rank=2),
    Column("why", is_prose=True),
)


def replica_table(views: Sequence[ReplicaView]) -> Table:
    """One row for each replica."""
    return Table(_COLUMNS, [_cells(it) for it in views])


def replica_document(view: ReplicaView) -> dict[str, Any]:
    """A replica as a document."""
    progress = view.progress
    return {
        "processor": view.replica.processor,
        "replica": view.replica.index,
        "state": view.state,
        "worker": view.worker,
        "since": utc(view.since_ms),
        "definition_is_outdated": view.is_outdated,
        "error_code": view.error_code,
        "why": view.why,
        "batch": None if progress is None else progress.batch,
        "rows_per_s": None if progress is None else progress.rows_per_s,
        "batch_ms": None if progress is None else progress.duration_ms,
        "lag": None if progress is None else progress.lag,
        "watermark": None if progress is None else utc(progress.watermark_ms),
    }


def _cells(view: ReplicaView) -> list[Cell]:
    shown = replica_document(view)
    state = f"{view.state} (earlier definition)" if view.is_outdated else view.state
    return [str(view.replica), state, *(shown[column.name] for column in _COLUMNS[2:])]
