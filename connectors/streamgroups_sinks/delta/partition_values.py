"""Splits rows by partition, and encodes partition values for the log. Pure functions.

Called by ``data_files``. Source: Delta's protocol, "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timezone
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamgroups.errors import RecordRejected

#: The values of one partition in the order of its columns, as the log encodes them. ``None`` is null.
Values: TypeAlias = tuple[str | None, ...]


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

    >>> text(pa.scalar(True)), text(pa.scalar("a b")), text(pa.scalar("")), text(pa.scalar(7))
    ('true', 'a b', None, '7')
    >>> from datetime import datetime
    >>> text(pa.scalar(datetime(2026, 11, 21, 8), pa.timestamp("us", "UTC")))
    '2026-11-21 08:00:00.000000'
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
        at = plain.astimezone(timezone.utc).replace(tzinfo=None) if plain.tzinfo else plain
        return str(at.isoformat(sep=" ", timespec="microseconds"))
    return format(plain, "f") if isinstance(plain, Decimal) else str(plain)
