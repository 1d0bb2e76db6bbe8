"""Overwriting partitions: which files of a table a batch replaces. Pure functions, but for reading the table.

Called by ``ledger``. Source: Delta's protocol, "Add File and Remove File": a file is removed by the path under which it was added.
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
from streamgroups_delta.partition_values import Values, text

#: What deltalake writes encoded in a path: control characters, what is above ASCII, and these.
_ENCODED = re.compile('[^\\x21-\\x7e]|[\\\\{^}%`\\]"><\\[#|*?]')


def removals(table: DeltaTable, partitions: Collection[Values], *, uri: str) -> list[RemoveAction]:
    """What takes the files of some partitions out of the table.

    Args:
        table: as it is now.
        partitions: their values, in the order of the table's partition columns.
        uri: the table's.

    Raises:
        SinkRejected: if a file's path cannot be named as it was.
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
    """A path as deltalake wants it, which encodes it again: what comes out must be what is in the log.

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
