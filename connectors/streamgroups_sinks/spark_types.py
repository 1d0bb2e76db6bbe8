"""Rejects columns that Arrow contains in a binary form of Spark: of the types VARIANT, GEOMETRY and GEOGRAPHY.

Called by both sinks when a batch begins. Arrow has a struct of numbers and bytes for such a column, and the metadata of one
field mark it. A sink would store these bytes without an error. Source: PySpark's ``pyspark.sql.pandas.types``
(``to_arrow_type``, ``is_variant``).
"""

from __future__ import annotations

import pyarrow as pa

from streamgroups.errors import SinkRejected

#: Remedies, by the mark of the type.
_INSTEAD = {
    b"variant": "Write it as a string with to_json.",
    b"geometry": "Write it as binary with ST_AsBinary.",
    b"geography": "Write it as binary with ST_AsBinary.",
}


def check_no_binary_form(schema: pa.Schema) -> None:
    """Checks that no column contains a type in a binary form of Spark.

    Raises:
        SinkRejected: for the first such column. The error contains its name and the type.

    >>> mark = pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})
    >>> check_no_binary_form(pa.schema({"payload": pa.list_(pa.struct([pa.field("value", pa.binary()), mark]))}))
    Traceback (most recent call last):
    streamgroups.errors.SinkRejected: Column 'payload' of the records contains the type variant, for which a sink has \
only Spark's binary form. Write it as a string with to_json.
    """
    for field in schema:
        mark = _mark_in(field.type)
        if mark is not None:
            raise SinkRejected(
                f"Column '{field.name}' of the records contains the type {mark.decode()}, for which a sink has only "
                "Spark's binary form.",
                remedy=_INSTEAD[mark],
            )


def _mark_in(of: pa.DataType) -> bytes | None:
    """The mark of a type in a binary form, or of one inside it. ``None`` without one."""
    fields = [of.field(i) for i in range(of.num_fields)]
    marks = (mark for field in fields for mark in _INSTEAD if (field.metadata or {}).get(mark) == b"true")
    inner = (mark for field in fields if (mark := _mark_in(field.type)) is not None)
    return next(marks, None) or next(inner, None)
