"""The columns of dead letters as Arrow fields.

Used by ``sinks.letters.of_batch``, ``sinks.letters.of_batch.good_rows`` and ``sinks.letters.of_batch.bad_record_search``. Source: :mod:`streamgroups.dlq.letter`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamgroups.dlq.letter import FAILURE

_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def arrow_fields(columns: Mapping[str, str]) -> list[pa.Field]:
    """Returns columns of letters as Arrow fields.

    Args:
        columns: their types in SQL.
    """
    return [pa.field(name, _TYPES[of]) for name, of in columns.items()]


#: The type of the column ``dead_letter``.
FAILURE_TYPE = pa.struct(arrow_fields(FAILURE))
