"""Merges staged rows by key into the table, in one commit with the positions of the ledger.

Called by ``ledger``. The staged files are read again and never become part of the table. ``leftovers`` or VACUUM
removes them. Source: deltalake's ``DeltaTable.merge``, which rejects two source rows for one row of the table, and
commits nothing without changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from streamgroups_delta.stages import Staged
from streamgroups_delta.store import Store

_ROW = "__streamgroups_row"


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
    source = last_per_key(tables, key)
    columns = [name for name in source.schema.names if name != delete_marker]
    assignments = {_quoted(name): f"source.{_quoted(name)}" for name in columns}
    deleted = f"coalesce(source.{_quoted(delete_marker)}, false)" if delete_marker else None
    kept = f"not {deleted}" if deleted else None
    merger = table.merge(
        source,
        predicate=" and ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key),
        source_alias="source",
        target_alias="target",
        streamed_exec=False,
        commit_properties=properties,
    )
    if deleted:
        merger = merger.when_matched_delete(predicate=deleted)
    merger.when_matched_update(assignments, predicate=kept).when_not_matched_insert(
        assignments, predicate=kept
    ).execute()


def last_per_key(tables: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Returns the last row of each key, in the order of the rows.

    Args:
        tables: at least one table. All have one schema.
        key: the columns of the key.

    >>> rows = pa.table({"id": [1, 2, 1], "value": ["a", "b", "c"]})
    >>> last_per_key([rows], ["id"]).to_pylist()
    [{'id': 2, 'value': 'b'}, {'id': 1, 'value': 'c'}]
    """
    rows = pa.concat_tables(tables)
    numbered = rows.select(list(key)).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(key)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    keep = np.zeros(rows.num_rows, dtype=bool)
    keep[last.to_numpy()] = True
    return rows.filter(pa.array(keep))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
