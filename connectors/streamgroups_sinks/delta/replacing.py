"""Overwrites partitions: finds the files of a table that a batch replaces.

Called by ``ledger``. Pure functions, except for reading the table. Source: Delta's protocol, "Add File and Remove
File": a file is removed by the path under which it was added.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamgroups.errors import SinkRejected
from streamgroups_sinks.delta.partition_values import Values, text

#: The characters that deltalake encodes in a path: control characters, non-ASCII characters, and these.
_ENCODED = re.compile('[^\\x21-\\x7e]|[\\\\{^}%`\\]"><\\[#|*?]')


def removals(table: DeltaTable, partitions: Collection[Values], *, uri: str) -> list[RemoveAction]:
    """Returns the actions that remove the files of some partitions from the table.

    Args:
        table: the current table.
        partitions: their values, in the order of the partition columns.
        uri: the address of the table.

    Raises:
        SinkRejected: if the path of a file cannot be encoded as it was.
    """
    columns = table.metadata().partition_columns
    now_ms = time.time_ns() // 1_000_000
    found = []
    files = pa.table(table.get_add_actions())
    for path, size, values in zip(files["path"], files["size_bytes"], files["partition"], strict=True):
        of_file = tuple(text(values[name]) for name in columns)
        if of_file in partitions:
            decoded = _decoded(path.as_py(), uri)
            found.append(RemoveAction(decoded, True, now_ms, size.as_py(), dict(zip(columns, of_file, strict=True))))
    return found


def _decoded(path: str, uri: str) -> str:
    """Decodes a path for deltalake, which encodes it again. The result must equal the path in the log.

    >>> _decoded("day=a%2520b/part-0.parquet", "/flights")
    'day=a%20b/part-0.parquet'
    """
    decoded = unquote(path)
    if _ENCODED.sub(lambda found: quote(found[0], safe=""), decoded) != path:
        raise SinkRejected(
            f"The name of file '{path}' of table {uri} cannot be written to the table's log unchanged.",
            remedy="Rewrite its partition with the program that wrote it, then restart the query.",
        )
    return decoded
