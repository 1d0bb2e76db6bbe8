"""Conversions of Avro values: promotions, logical types to the values of Arrow, and these to values that fastavro writes.

Called by ``avro_resolution`` to decode, and by ``avro_values`` to encode. fastavro writes the types of a schema without its
logical types, in the order of ``avro_types``. Source: the Avro specification 1.12, "Schema Resolution" and "Logical Types".
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, TypeAlias

import numpy as np

from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups_schemas.avro_parts import type_of
from streamgroups_schemas.avro_schemas import AvroSchema, Logical, logical_of
from streamgroups_schemas.avro_types import number_of

#: Converts a value; ``None`` for one that is right as it is.
Converter: TypeAlias = Callable[[Any], Any] | None
#: Times that differ in their units only.
_TIMES = {
    "timestamp-millis": ("timestamp", 0),
    "timestamp-micros": ("timestamp", 0),
    "local-timestamp-millis": ("local-timestamp", 0),
    "local-timestamp-micros": ("local-timestamp", 0),
}
#: Microseconds in a unit.
_UNITS = {"timestamp-millis": 1000, "timestamp-micros": 1, "local-timestamp-millis": 1000, "local-timestamp-micros": 1}
_MAX_DECIMAL_BYTES = 16
_DIGITS = Context(prec=60)
_INT, _LONG = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)


def of_items(one: Converter) -> Converter:
    """Returns the converter of lists."""
    return None if one is None else lambda value: [one(it) for it in value]


def of_values(one: Converter) -> Converter:
    """Returns the converter of maps."""
    return None if one is None else lambda value: {key: one(it) for key, it in value.items()}


def nullable(null: Converter, one: Converter) -> Converter:
    """Returns the converter of null and of other values."""
    if one is None and null is None:
        return None

    def convert(value: Any) -> Any:
        it = null if value is None else one
        return value if it is None else it(value)

    return convert


def _checked(value: int, limits: tuple[int, int]) -> int:
    if not limits[0] <= value <= limits[1]:
        raise CannotDecode(Kind.MALFORMED, "A number has more bits than its type.")
    return value


#: Pairs of types: the writer's, the reader's.
PROMOTIONS: dict[tuple[str, str], Converter] = {
    ("int", "long"): lambda value: _checked(value, _INT),
    ("int", "float"): lambda value: float(np.int64(_checked(value, _INT)).astype(np.float32)),
    ("int", "double"): lambda value: float(_checked(value, _INT)),
    ("long", "float"): lambda value: float(np.int64(_checked(value, _LONG)).astype(np.float32)),
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): lambda value: value.encode(),
    ("bytes", "string"): lambda value: value.decode(),
}


# ---- logical types ---------------------------------------------------------------------------------------------------


def logical_converter(logical: Logical) -> Converter:
    """Returns the converter of the values of a logical type to those of Arrow: days, microseconds, or decimals."""
    if logical.name == "decimal":
        return _decimal(logical.scale)
    unit = _UNITS.get(logical.name, 1)
    return None if unit == 1 else lambda value: value * unit


def is_same(written: Logical, read: Logical) -> bool:
    """Whether both have one meaning. Units of times are converted, scales of decimals are not: "Schema Resolution"."""
    meanings = [_TIMES.get(it.name, (it.name, it.scale)) for it in (written, read)]
    return meanings[0] == meanings[1]


def _decimal(scale: int) -> Converter:
    def convert(data: bytes) -> Decimal:
        if len(data) > _MAX_DECIMAL_BYTES:
            data = _trimmed(data)
        if not data:
            raise CannotDecode(Kind.MALFORMED, "A decimal has no bytes.")
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _DIGITS)

    return convert


def _trimmed(data: bytes) -> bytes:
    """Returns the number without bytes that repeat its sign."""
    sign = b"\xff" if data[0] >= 0x80 else b"\x00"
    rest = data.lstrip(sign)
    if len(rest) > _MAX_DECIMAL_BYTES:
        # The time of Python's conversion grows with the square of the length.
        raise CannotDecode(Kind.OUT_OF_RANGE, f"A decimal has {len(rest):,} bytes. Spark's have at most 38 digits.")
    return sign + rest


# ---- encoding --------------------------------------------------------------------------------------------------------


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
        return _written_logical(logical, kind)
    if type_of(kind) == "union":
        return _union(schema, kind, records)
    if type_of(kind) == "array":
        return of_items(_of(schema, kind["items"], records))
    if type_of(kind) == "map":
        return of_values(_of(schema, kind["values"], records))
    return _boolean if type_of(kind) == "boolean" else None


def _boolean(value: bool | None) -> bool:
    # fastavro writes false for None. It rejects None for each other type.
    if value is None:
        raise TypeError("A field is null, and the schema requires a boolean.")
    return value


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


def _written_logical(logical: Logical, kind: Any) -> Converter:
    if logical.name == "decimal":
        return _written_decimal(logical.scale, kind["size"] if type_of(kind) == "fixed" else None)
    return (lambda value: value // 1000) if logical.name.endswith("-millis") else None


def _written_decimal(scale: int, size: int | None) -> Callable[[Decimal], bytes]:
    def convert(value: Decimal) -> bytes:
        number = int(value.scaleb(scale, _DIGITS))
        length = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
        return number.to_bytes(length, "big", signed=True)

    return convert
