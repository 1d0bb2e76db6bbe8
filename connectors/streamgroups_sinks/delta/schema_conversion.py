"""Converts the schemas of records to Delta Lake types, and compares them with a table. Pure functions.

Called by ``tables`` when a batch begins and again when it is committed. Source: the types of Delta's protocol ("Schema
Serialization Format", "Partition Value Serialization"); the characters that Delta's own writers reject in names without
column mapping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from streamgroups.errors import SinkRejected
from streamgroups_sinks.spark_types import check_no_binary_form

_UTC = "UTC"
_SAME = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
)
_REJECTED_IN_NAMES = frozenset(" ,;{}()\n\t=")


def as_delta(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of staged records: the Delta types as Arrow types.

    Variants of strings, binary and lists become their standard type, time zones become UTC, and timestamps
    microseconds.

    Args:
        schema: the schema of the records.

    Raises:
        SinkRejected: if Delta Lake does not support a type or a name, two names differ only in case, also in a nested column,
            or a column is in a binary form of Spark.

    >>> as_delta(pa.schema([("at", pa.timestamp("ms", "Europe/Berlin")), ("entry", pa.large_string())]))
    at: timestamp[us, tz=UTC]
    entry: string
    """
    _check_names(schema, "columns")
    check_no_binary_form(schema)
    return pa.schema([pa.field(field.name, _field_type(field), field.nullable) for field in schema])


def _check_names(fields: Iterable[pa.Field], what: str) -> None:
    names = [field.name.lower() for field in fields]
    if same := [name for name, n in Counter(names).items() if n > 1]:
        raise SinkRejected(
            f"Several {what} are called '{same[0]}', except for upper and lower case.",
            remedy="Rename them: Delta Lake does not distinguish case.",
        )


def _check_nested_names(of: pa.DataType, column: str) -> None:
    fields = [of.field(i) for i in range(of.num_fields)]
    _check_names(fields, f"fields of column '{column}'")
    for field in fields:
        _check_nested_names(field.type, column)


def _field_type(field: pa.Field) -> pa.DataType:
    if not field.name or _REJECTED_IN_NAMES & set(field.name):
        raise SinkRejected(
            f"Column '{field.name}' has a name that Delta Lake does not allow.",
            remedy="Rename it, without spaces and without any of ,;{}()=.",
        )
    _check_nested_names(field.type, field.name)
    found = _delta_type(field.type)
    if found is None:
        raise SinkRejected(
            f"Column '{field.name}' is of type {field.type}, which Delta Lake does not support.",
            remedy="Cast it to another type, or leave it out.",
        )
    return found


def _delta_type(of: pa.DataType) -> pa.DataType | None:
    """Returns the Delta type. ``None`` if Delta Lake has no equivalent."""
    types = pa.types
    if of in _SAME:
        return of
    if types.is_date64(of):
        return pa.date32()
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return pa.string()
    if types.is_binary(of) or types.is_large_binary(of) or types.is_binary_view(of) or types.is_fixed_size_binary(of):
        return pa.binary()
    if types.is_timestamp(of):
        return pa.timestamp("us", None if of.tz is None else _UTC)
    if types.is_decimal128(of):
        return of if 0 <= of.scale <= of.precision else None
    if types.is_dictionary(of):
        return _delta_type(of.value_type)
    return _delta_nested(of)


def _delta_nested(of: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_list(of) or types.is_large_list(of):
        inner = _delta_type(of.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner, of.value_field.nullable))
    if types.is_map(of):
        key, item = _delta_type(of.key_type), _delta_type(of.item_type)
        if key is None or item is None:
            return None
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item, of.item_field.nullable))
    if types.is_struct(of):
        fields = [(field, _delta_type(field.type)) for field in of]
        if any(found is None for _, found in fields):
            return None
        return pa.struct([pa.field(field.name, found, field.nullable) for field, found in fields])
    return None


def nullable(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of a new table: all columns and nested fields are nullable, for later records with null.

    >>> nullable(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    n: int64
    """
    return pa.schema([pa.field(field.name, _nullable_type(field.type)) for field in schema])


def _nullable_type(of: pa.DataType) -> pa.DataType:
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", _nullable_type(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(_nullable_type(of.key_type), _nullable_type(of.item_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _nullable_type(field.type)) for field in of])
    return of


def holds(table: pa.DataType, records: pa.DataType) -> bool:
    """Returns whether a column of the table accepts a column of the records, both with types of :func:`as_delta`.

    The names of the elements of lists and maps in Arrow are ignored.

    >>> holds(pa.list_(pa.field("element", pa.int64())), pa.list_(pa.field("item", pa.int64(), nullable=False)))
    True
    >>> holds(pa.int64(), pa.int32())
    False
    """
    if pa.types.is_list(table) and pa.types.is_list(records):
        return _holds_field(table.value_field, records.value_field)
    if pa.types.is_map(table) and pa.types.is_map(records):
        return holds(table.key_type, records.key_type) and _holds_field(table.item_field, records.item_field)
    if pa.types.is_struct(table) and pa.types.is_struct(records):
        return [f.name for f in table] == [f.name for f in records] and all(map(_holds_field, table, records))
    return bool(table == records)


def _holds_field(table: pa.Field, records: pa.Field) -> bool:
    return (table.nullable or not records.nullable) and holds(table.type, records.type)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of the comparison of records and table.

    Args:
        new: the columns of the records that the table does not have.
        required: the columns of the table that reject null.
    """

    new: tuple[pa.Field, ...]
    required: frozenset[str]


def fit(table: pa.Schema, records: pa.Schema, *, uri: str, generated: Collection[str] = ()) -> Fit:
    """Compares a table with records.

    Args:
        table: its schema, from :func:`as_delta`.
        records: the schema of the records, from :func:`as_delta`.
        uri: the address of the table, for errors.
        generated: the columns that are computed if the records do not have them.

    Raises:
        SinkRejected: if a column has another type or case, or a required column is missing.

    >>> fit(pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int64()), ("b", pa.string())]), uri="/flights").new
    (pyarrow.Field<b: string>,)
    """
    lower = {name.lower(): name for name in table.names}
    new = []
    for field in records:
        name = lower.get(field.name.lower())
        if name is None:
            new.append(field)
        elif name != field.name:
            raise SinkRejected(
                f"Column '{field.name}' is called '{name}' in table {uri}.",
                remedy="Rename it: Delta Lake preserves the case of names.",
            )
        elif not holds(table.field(name).type, field.type):
            raise SinkRejected(
                f"Column '{name}' is of type {field.type}, but in table {uri} it is {table.field(name).type}.",
                remedy="Cast it to the table's type.",
            )
    computed = set(generated) - set(records.names)
    required = frozenset(field.name for field in table if not field.nullable) - computed
    if missing := sorted(required - set(records.names)):
        raise SinkRejected(
            f"Table {uri} does not allow null in column '{missing[0]}', but the records do not have this column.",
            remedy="Add the column to the records, or make it nullable in the table.",
        )
    return Fit(tuple(new), required)


def check_columns(schema: pa.Schema, names: Collection[str], argument: str) -> None:
    """Rejects an argument with columns that the records do not have.

    Raises:
        SinkRejected: if a column is missing.
    """
    if missing := [name for name in names if name not in schema.names]:
        raise SinkRejected(
            f"The records have no column '{missing[0]}', which {argument} requires.",
            remedy=f"The columns are {', '.join(schema.names)}.",
        )


def check_simple(schema: pa.Schema, names: Collection[str], argument: str) -> None:
    """Rejects columns that cannot be compared by their text, as columns of the key and partition columns must be.

    Raises:
        SinkRejected: if one is of a floating, binary or nested type.
    """
    for name in names:
        of = schema.field(name).type
        if pa.types.is_nested(of) or pa.types.is_floating(of) or pa.types.is_binary(of):
            raise SinkRejected(
                f"Column '{name}' of {argument} is of type {of}.",
                remedy="Use a string, an integer, a boolean, a date or a timestamp.",
            )


def check_partition_columns(schema: pa.Schema, names: Collection[str], argument: str) -> None:
    """Rejects columns that a table cannot be partitioned by.

    deltalake writes -0.50 as ``0.-50`` in the log. Afterwards the table cannot be opened. If another writer has written it
    correctly, deltalake's pyarrow reader still fails, and ``compact`` makes the table unreadable.

    Raises:
        SinkRejected: if one is of a floating, binary or nested type, or a decimal with a fraction.
    """
    check_simple(schema, names, argument)
    for name in names:
        of = schema.field(name).type
        if pa.types.is_decimal(of) and of.scale > 0:
            raise SinkRejected(
                f"Column '{name}' of {argument} is of type {of}: deltalake writes its negative values incorrectly.",
                remedy="Partition by another column, or cast it to a string or to a decimal without a fraction.",
            )
