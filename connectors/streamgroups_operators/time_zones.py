"""Gives all operators timestamps in UTC, whatever the time zone of the Spark session.

Called by ``task_states`` for each batch of records. Arrow's type of a timestamp contains the time zone of the session, and
a state must not: another session continues with it. The instant stays the same. Source: SEMANTICS S10; Spark's
``spark.sql.session.timeZone``.
"""

from __future__ import annotations

import pyarrow as pa


def in_utc(table: pa.Table) -> pa.Table:
    """Returns a table with all timestamps in UTC, also in nested columns.

    >>> seen = pa.array([0], pa.timestamp("us", "America/New_York"))
    >>> in_utc(pa.table({"seen": seen})).schema
    seen: timestamp[us, tz=UTC]
    """
    schema = pa.schema([field.with_type(_in_utc(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _in_utc(of: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(of):
        return pa.timestamp(of.unit, of.tz and "UTC")
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_in_utc(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(
            of.key_field.with_type(_in_utc(of.key_type)), of.item_field.with_type(_in_utc(of.item_type)), of.keys_sorted
        )
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in of])
    return of
