"""Merges staged rows by key into the table, in one commit with the positions of the ledger.

Called by ``ledger``. The staged files are read again and never become part of the table. ``data_files`` or VACUUM
removes them. Source: deltalake's ``DeltaTable.merge``, which rejects two source rows for one row of the table, and
commits nothing without changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from streamgroups_sinks.delta.expressions import generated_columns, qualified, quoted
from streamgroups_sinks.delta.stages import Staged
from streamgroups_sinks.delta.store import Store

_ROW = "__streamgroups_row"
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
    source = last_per_key(tables, key, delete_marker=delete_marker)
    columns = {name: f"source.{quoted(name)}" for name in source.schema.names if name not in (delete_marker, _NEW)}
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
            _with_generated(fresh, generated, fresh), predicate=f"{kept} and source.{quoted(_NEW)}"
        )
    now = {name: columns.get(name, f"target.{quoted(name)}") for name in there if name not in generated}
    merger.when_matched_update(_with_generated(columns, generated, now), predicate=kept).when_not_matched_insert(
        columns, predicate=kept
    ).execute()


def _with_generated(
    assigned: Mapping[str, str], generated: Mapping[str, str], values: Mapping[str, str]
) -> dict[str, str]:
    """Adds the generated columns. deltalake computes them for an insert, and keeps them in an update."""
    return {**{name: qualified(text, values) for name, text in generated.items() if name not in assigned}, **assigned}


def last_per_key(tables: Sequence[pa.Table], key: Sequence[str], *, delete_marker: str | None = None) -> pa.Table:
    """Returns the last row of each key, in the order of the rows.

    Args:
        tables: at least one table. All have one schema.
        key: the columns of the key.
        delete_marker: the column that is true in rows to delete. The result then has a column that is true for a key that
            any of its rows deletes.

    >>> rows = pa.table({"id": [1, 2, 1], "value": ["a", "b", "c"]})
    >>> last_per_key([rows], ["id"]).to_pylist()
    [{'id': 2, 'value': 'b'}, {'id': 1, 'value': 'c'}]
    """
    rows = pa.concat_tables(tables)
    numbered = rows.select(list(key)).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    required = [(_ROW, "max")]
    if delete_marker is not None:
        numbered = numbered.append_column(_NEW, pc.fill_null(rows.column(delete_marker), False))
        required.append((_NEW, "max"))
    found = numbered.group_by(list(key)).aggregate(required)
    last = found.column(f"{_ROW}_max").to_numpy()
    keep = np.zeros(rows.num_rows, dtype=bool)
    keep[last] = True
    if delete_marker is not None:
        deleted = np.zeros(rows.num_rows, dtype=bool)
        deleted[last] = found.column(f"{_NEW}_max").to_numpy()
        rows = rows.append_column(_NEW, pa.array(deleted))
    return rows.filter(pa.array(keep))
