"""The Arrow type of an Avro schema.

Called by ``avro_values`` and ``streamgroups_spark.decoding``. Source: the types are those of Spark's ``SchemaConverters``,
where it has one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups.printable import has_half_pair
from streamgroups_schemas.avro_parts import type_of
from streamgroups_schemas.avro_schemas import AvroSchema, Logical, References, logical_of, parsed

_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_OF_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "local-timestamp-millis": _LOCAL,
    "local-timestamp-micros": _LOCAL,
}
_OF_TYPE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
#: Unions of numbers that are one type.
_NUMBERS = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
MAX_DIGITS = 38
#: A few records, each used twice by the next, are more fields than Spark can plan.
MAX_FIELDS = 10_000


@lru_cache(maxsize=1000)
def arrow_type(text: str, references: References = ()) -> pa.DataType:
    """Returns the type of the values of a schema: a struct.

    Raises:
        InvalidOption: if the schema is no record, or a field has a type without an equivalent. The error names it.
    """
    schema = parsed(text, references)
    root = schema.definition(schema.root)
    if type_of(root) != "record":
        raise _no_type((), root, "The schema of a value must be a record.")
    return _Types(schema).type(schema.root, ())


def number_of(branches: list[Any]) -> str | None:
    """Returns the one type of a union of numbers, without its null; ``None`` for another union.

    >>> number_of(["null", "int", "long"]), number_of(["null", "int"])
    ('long', None)
    """
    others = [it for it in branches if it != "null"]
    return _NUMBERS.get(frozenset(it if isinstance(it, str) else "another" for it in others))


class _Types:
    """The types of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._within: set[str] = set()
        self._fields = 0

    def type(self, schema: Any, path: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, path)
        definition = self._schema.definition(schema)
        logical = logical_of(definition)
        if logical is not None:
            return _logical_type(logical, path)
        kind = type_of(definition)
        if kind == "record":
            return self._record(definition, path)
        if kind == "array":
            return pa.list_(self.type(definition["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self.type(definition["values"], path))
        if kind not in _OF_TYPE:
            raise _no_type(path, kind, "Spark has no type for it.")
        return _OF_TYPE[kind]

    def _record(self, record: dict[str, Any], path: tuple[str, ...]) -> pa.DataType:
        name = record["name"]
        if name in self._within:
            raise InvalidOption(
                f"Field '{'.'.join(path)}' of the Avro schema has the type '{name}', which contains itself.",
                remedy="Spark has no such type. Remove the field from the reader's schema.",
            )
        if not record["fields"]:
            raise _no_type(path, "record", "The record has no fields.")
        self._fields += len(record["fields"])
        if self._fields > MAX_FIELDS:
            raise InvalidOption(
                f"The Avro schema has more than {MAX_FIELDS:,} fields, with those of each use of a record.",
                remedy="Remove fields from the reader's schema.",
            )
        for it in record["fields"]:
            if has_half_pair(it["name"]):
                raise _no_type(path, "record", f"The name of the field {it['name']!a} is not valid Unicode.")
        self._within.add(name)
        found = [(it["name"], self.type(it["type"], (*path, it["name"]))) for it in record["fields"]]
        self._within.remove(name)
        return pa.struct(found)

    def _union(self, branches: list[Any], path: tuple[str, ...]) -> pa.DataType:
        others = [it for it in branches if it != "null"]
        if len(others) == 1:
            return self.type(others[0], path)
        number = number_of(branches)
        if number is None:
            raise _no_type(path, "union", "A union of null and one other type has an equivalent.")
        return _OF_TYPE[number]


def _logical_type(logical: Logical, path: tuple[str, ...]) -> pa.DataType:
    if logical.name != "decimal":
        return _OF_LOGICAL[logical.name]
    if logical.precision > MAX_DIGITS:
        shown = f"decimal({logical.precision}, {logical.scale})"
        raise _no_type(path, shown, f"Spark's decimals have at most {MAX_DIGITS} digits.")
    return pa.decimal128(logical.precision, logical.scale)


def _no_type(path: tuple[str, ...], kind: Any, reason: str) -> InvalidOption:
    where = f"field '{'.'.join(path)}'" if path else "the schema"
    return InvalidOption(
        f"Avro: {where} has the type '{kind if isinstance(kind, str) else type_of(kind)}', which has no equivalent in "
        f"Spark. {reason}",
        remedy="Pass a reader's schema without it.",
    )
