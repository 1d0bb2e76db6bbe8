"""Converts values of Arrow to those that fastavro writes: the types of a schema without its logical types.

Called by ``avro_values``. The values are in the order of ``avro_types``. Source: the Avro specification 1.12.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from streamgroups_schemas.avro_conversions import Converter, nullable, of_items, of_values
from streamgroups_schemas.avro_parts import type_of
from streamgroups_schemas.avro_schemas import AvroSchema, Logical, logical_of
from streamgroups_schemas.avro_types import number_of

_DIGITS = Context(prec=60)


def to_written(schema: AvroSchema) -> Converter:
    """Returns the converter of values with numbers instead of times, as of ``results.with_numbers``."""
    return _of(schema, schema.root, {})


def _of(schema: AvroSchema, kind: Any, records: dict[str, Converter]) -> Converter:
    if isinstance(kind, str) and kind in schema.named and type_of(schema.named[kind]) == "record":
        if kind not in records:
            records[kind] = _record(schema, schema.named[kind], records)
        return records[kind]
    kind = schema.definition(kind)
    logical = logical_of(kind)
    if logical is not None:
        return _logical(logical, kind)
    if type_of(kind) == "union":
        return _union(schema, kind, records)
    if type_of(kind) == "array":
        return of_items(_of(schema, kind["items"], records))
    if type_of(kind) == "map":
        return of_values(_of(schema, kind["values"], records))
    return None


def _record(schema: AvroSchema, record: Any, records: dict[str, Converter]) -> Converter:
    fields = [(it["name"], _of(schema, it["type"], records)) for it in record["fields"]]
    changed = [(name, one) for name, one in fields if one is not None]
    if not changed:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, one in changed:
            value[name] = one(value[name])
        return value

    return convert


def _union(schema: AvroSchema, branches: list[Any], records: dict[str, Converter]) -> Converter:
    number = number_of(branches)
    if number == "double":
        # fastavro would write each of them as a float.
        return lambda value: value if value is None else ("double", value)
    [one, *_] = [_of(schema, it, records) for it in branches if it != "null"]
    return nullable(None, one)


def _logical(logical: Logical, kind: Any) -> Converter:
    if logical.name == "decimal":
        return _decimal(logical.scale, kind["size"] if type_of(kind) == "fixed" else None)
    return (lambda value: value // 1000) if logical.name.endswith("-millis") else None


def _decimal(scale: int, size: int | None) -> Callable[[Decimal], bytes]:
    def convert(value: Decimal) -> bytes:
        number = int(value.scaleb(scale, _DIGITS))
        length = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
        return number.to_bytes(length, "big", signed=True)

    return convert
