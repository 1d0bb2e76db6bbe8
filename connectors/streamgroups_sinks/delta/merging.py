"""Merges staged rows by key into the table, in one commit with the positions of the ledger.

Called by ``ledger``. The staged files are read again and never become part of the table. ``data_files`` or VACUUM
removes them. Source: deltalake's ``DeltaTable.merge``, which rejects two source rows for one row of the table, commits
nothing without changes, and parses also the names of assigned columns: ``a.b`` is column ``b`` of ``a``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from streamgroups_sinks.delta.expressions import generated_columns, qualified, quoted
from streamgroups_sinks.delta.stages import Staged
from streamgroups_sinks.delta.store import Store

_NEW = "__streamgroups_new"


def merge(
    table: DeltaTable,
    store: Store,
    staged: Sequence[Staged],
    properties: CommitProperties,
    *,
    key: tuple[str, ...],
    delete_marker: str | None,
) -> None:
    """Merges staged rows.

    Args:
        table: the current table. Afterwards it is at the new version, or at the same one if nothing changed.
        store: the files of the table.
        staged: the staged rows in order. The last row of each key counts.
        properties: the properties of the commit.
        key: the columns of the key.
        delete_marker: the column that is true in rows to delete.
    """
    tables = [store.read_parquet(file.path) for attempt in staged for file in attempt.files]
    names = tables[0].column_names
    new = _unused(_NEW, names)
    source = last_per_key(tables, key, delete_marker=delete_marker, new=new)
    columns = {name: f"source.{quoted(name)}" for name in names if name != delete_marker}
    there, generated = [field.name for field in table.schema().fields], generated_columns(table)
    others = [name for name in there if name not in columns and name not in generated]
    deleted = f"coalesce(source.{quoted(delete_marker)}, false)" if delete_marker else None
    kept = f"not {deleted}" if deleted else None
    merger = table.merge(
        source,
        predicate=" and ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in key),
        source_alias="source",
        target_alias="target",
        streamed_exec=False,
        commit_properties=properties,
    )
    if deleted:
        merger = merger.when_matched_delete(predicate=deleted)
    if deleted and others:
        # A row that is deleted and inserted is a new one: it keeps nothing of the old one.
        fresh = columns | dict.fromkeys(others, "null")
        merger = merger.when_matched_update(
            _assignments(fresh, generated, fresh), predicate=f"{kept} and source.{quoted(new)}"
        )
    now = {name: columns.get(name, f"target.{quoted(name)}") for name in there if name not in generated}
    merger.when_matched_update(_assignments(columns, generated, now), predicate=kept).when_not_matched_insert(
        _assignments(columns), predicate=kept
    ).execute()


def _assignments(
    assigned: Mapping[str, str],
    generated: Mapping[str, str] = MappingProxyType({}),
    values: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Adds the generated columns. deltalake computes them for an insert, and keeps them in an update."""
    added = {name: qualified(text, values) for name, text in generated.items() if name not in assigned}
    return {quoted(name): value for name, value in (added | dict(assigned)).items()}


def _unused(name: str, others: Sequence[str]) -> str:
    """Returns a name that no other column has. Delta Lake does not distinguish case."""
    taken = {other.lower() for other in others}
    while name in taken:
        name += "_"
    return name


def last_per_key(
    tables: Sequence[pa.Table], key: Sequence[str], *, delete_marker: str | None = None, new: str = _NEW
) -> pa.Table:
    """Returns the last row of each key, in the order of the rows.

    Args:
        tables: at least one table. All have one schema.
        key: the columns of the key.
        delete_marker: the column that is true in rows to delete. The result then has another column that is true for a key
            that any of its rows deletes.
        new: the name of that other column.

    >>> rows = pa.table({"id": [1, 2, 1], "value": ["a", "b", "c"]})
    >>> last_per_key([rows], ["id"]).to_pylist()
    [{'id': 2, 'value': 'b'}, {'id': 1, 'value': 'c'}]
    """
    rows = pa.concat_tables(tables)
    # Any name of a column of the key could be that of another column here, or a path in pyarrow.
    names = [f"key {i}" for i in range(len(key))]
    numbered = rows.select(list(key)).rename_columns(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    required = [("row", "max")]
    if delete_marker is not None:
        numbered = numbered.append_column("deleted", pc.fill_null(rows.column(delete_marker), False))
        required.append(("deleted", "max"))
    found = numbered.group_by(names).aggregate(required)
    last = found.column("row_max").to_numpy()
    keep = np.zeros(rows.num_rows, dtype=bool)
    keep[last] = True
    if delete_marker is not None:
        deleted = np.zeros(rows.num_rows, dtype=bool)
        deleted[last] = found.column("deleted_max").to_numpy()
        rows = rows.append_column(new, pa.array(deleted))
    return rows.filter(pa.array(keep))
