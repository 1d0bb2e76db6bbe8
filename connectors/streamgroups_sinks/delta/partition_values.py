"""Splits rows by partition, encodes partition values for the log, and finds the files of partitions.

Called by ``data_files``, and by ``ledger`` to overwrite partitions. Source: Delta's protocol, "Partition Value
Serialization", "Add File and Remove File": a file is removed by the path under which it was added.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import timezone
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamgroups.errors import RecordRejected, SinkRejected

#: The values of one partition in the order of its columns, as the log encodes them. ``None`` is null.
Values: TypeAlias = tuple[str | None, ...]
#: The characters that deltalake encodes in a path: control characters, non-ASCII characters, and these.
_ENCODED = re.compile('[^\\x21-\\x7e]|[\\\\{^}%`\\]"><\\[#|*?]')


def split(records: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yields the rows of each partition in order, without the partition columns.

    Args:
        records: records with a schema of :func:`streamgroups_sinks.delta.schema_conversion.as_delta`.
        columns: the partition columns. Without any, the records are returned unchanged.

    >>> batch = pa.record_batch({"day": ["mon", "tue", "mon"], "n": [1, 2, 3]})
    >>> [(values, rows.column("n").to_pylist()) for values, rows in split(batch, ["day"])]
    [(('mon',), [1, 3]), (('tue',), [2])]
    """
    if not columns:
        yield (), records
        return
    if not records.num_rows:
        return
    rest = records.select([name for name in records.schema.names if name not in columns])
    encoded = [records.column(name).dictionary_encode(null_encoding="encode") for name in columns]
    codes = np.zeros(records.num_rows, dtype=np.int64)
    for part in encoded:
        codes = codes * len(part.dictionary) + part.indices.to_numpy()
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(counts)
    for row, begin, end in zip(first, ends - counts, ends, strict=True):
        values = tuple(text(records.column(name)[int(row)]) for name in columns)
        yield values, rest.take(pa.array(order[begin:end]))


def text(value: Any) -> str | None:
    """Encodes an Arrow scalar for the log. An empty string becomes null, as in all writers of Delta tables.

    A timestamp with a zone has the form of ISO 8601 in UTC. Spark would read the other form of the protocol, which has no zone, as
    a time in the zone of its session.

    >>> text(pa.scalar(True)), text(pa.scalar("a b")), text(pa.scalar("")), text(pa.scalar(7))
    ('true', 'a b', None, '7')
    >>> from datetime import datetime
    >>> text(pa.scalar(datetime(2026, 11, 21, 8), pa.timestamp("us", "UTC")))
    '2026-11-21T08:00:00.000000Z'
    """
    try:
        plain = value.as_py()
    except (OverflowError, ValueError) as e:
        raise RecordRejected(
            f"A value of a partition column cannot be written in the table's log: {e}",
            remedy="Correct it, or filter out such records.",
        ) from None
    if plain is None or plain == "":
        return None
    if isinstance(plain, bool):
        return str(plain).lower()
    if pa.types.is_timestamp(value.type):
        if plain.tzinfo is None:
            return str(plain.isoformat(sep=" ", timespec="microseconds"))
        at = plain.astimezone(timezone.utc).replace(tzinfo=None)
        return f"{at.isoformat(timespec='microseconds')}Z"
    return format(plain, "f") if isinstance(plain, Decimal) else str(plain)


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
