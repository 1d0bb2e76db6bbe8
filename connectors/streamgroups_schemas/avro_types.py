"""Avro schemas: parsing, and the Arrow type of a schema.

Called by ``avro_values`` and ``streamgroups_spark.decoding``. Source: the Avro specification 1.12; the types are those of
Spark's ``SchemaConverters``, where it has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import expand_schema

from streamgroups.errors import InvalidOption

#: Logical types that are decoded. Any other is ignored, as the specification requires, and the value has its own type.
_LOGICAL = frozenset(
    ("decimal", "date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
)
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_OF_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "local-timestamp-millis": _LOCAL,
    "local-timestamp-micros": _LOCAL,
}
_PRIMITIVE = {
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
_MAX_DIGITS = 38
#: fastavro raises errors of Python for schemas whose parts have other types than they must.
_MALFORMED = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    fastavro.schema.SchemaParseException,
)

#: References of a schema: names and texts, each after those that it refers to.
References = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1000)
def parsed(text: str, references: References = ()) -> Any:
    """Returns a schema for fastavro.

    Raises:
        InvalidOption: if the text is no Avro schema, or has no end: a type that contains itself.
    """
    return _parsed(text, references)[0]


@lru_cache(maxsize=1000)
def arrow_type(text: str, references: References = ()) -> pa.DataType:
    """Returns the type of the values of a schema: a struct.

    Raises:
        InvalidOption: if the schema is no record, or a field has a type without an equivalent. The error names it.
    """
    expanded = _parsed(text, references)[1]
    if not isinstance(expanded, dict) or expanded.get("type") != "record":
        raise _no_type("the schema", expanded, "The schema of a value must be a record.")
    try:
        return _type(expanded, ())
    except _MALFORMED as e:
        raise _unparsable(e) from None


def _parsed(text: str, references: References) -> tuple[Any, Any]:
    try:
        named: dict[str, Any] = {}
        for _, reference in references:
            fastavro.parse_schema(_without_unknown(json.loads(reference)), named_schemas=named)
        schema = fastavro.parse_schema(_without_unknown(json.loads(text)), named_schemas=named)
        expanded = expand_schema(schema) if not references else _expanded(schema, named, ())
        _check_finite(expanded, ())
    except _MALFORMED as e:
        raise _unparsable(e) from None
    return schema, expanded


def _unparsable(error: Exception) -> InvalidOption:
    return InvalidOption(
        f"The Avro schema cannot be parsed: {type(error).__name__}: {error}.", remedy="Pass an Avro schema as JSON."
    )


def _expanded(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> Any:
    """Replaces names by their types. ``expand_schema`` does not receive types of other schemas."""
    if isinstance(schema, str):
        is_end = schema not in named or schema in within
        return schema if is_end else _expanded(named[schema], named, within)
    if isinstance(schema, list):
        return [_expanded(it, named, within) for it in schema]
    within = (*within, schema["name"]) if "name" in schema else within
    copy = dict(schema)
    for part in ("items", "values"):
        if part in copy:
            copy[part] = _expanded(copy[part], named, within)
    if "fields" in copy:
        copy["fields"] = [{**it, "type": _expanded(it["type"], named, within)} for it in copy["fields"]]
    elif isinstance(copy["type"], (dict, list)):
        copy["type"] = _expanded(copy["type"], named, within)
    return copy


def _without_unknown(schema: Any) -> Any:
    """Removes logical types that are not decoded, because fastavro decodes more than Arrow has types for."""
    if isinstance(schema, list):
        return [_without_unknown(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    is_known = isinstance(schema.get("logicalType"), str) and schema["logicalType"] in _LOGICAL
    # Defaults and custom properties are values, and no schemas.
    return {
        name: _without_unknown(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or is_known
    }


def _check_finite(schema: Any, path: tuple[str, ...]) -> None:
    """Rejects types of any depth or without bytes: a few bytes of a value could then take all memory or the stack."""
    for part, name in _parts(schema):
        if isinstance(part, str) and part not in _PRIMITIVE and part != "null":
            raise InvalidOption(
                f"Field '{'.'.join((*path, *name))}' of the Avro schema has the type '{part}', which contains itself.",
                remedy="Spark has no such type. Remove the field from the reader's schema.",
            )
        if isinstance(schema, dict) and "items" in schema and _has_no_bytes(part):
            raise InvalidOption(
                f"Field '{'.'.join(path)}' of the Avro schema is an array of values without bytes.",
                remedy="Remove the field from the schema.",
            )
        _check_finite(part, (*path, *name))


def _has_no_bytes(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if "fields" in schema:
        return all(_has_no_bytes(it["type"]) for it in schema["fields"])
    return schema.get("size") == 0 or _has_no_bytes(schema["type"])


def _parts(schema: Any) -> Iterable[tuple[Any, tuple[str, ...]]]:
    if isinstance(schema, list):
        return [(it, ()) for it in schema]
    if not isinstance(schema, dict):
        return []
    if "fields" in schema:
        return [(it["type"], (it["name"],)) for it in schema["fields"]]
    own = [(schema[name], ()) for name in ("items", "values") if name in schema]
    return [*own, (schema["type"], ())] if isinstance(schema["type"], (dict, list)) else own


def _type(schema: Any, path: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        return _union(schema, path)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (dict, list)):
        return _type(kind, path)
    if isinstance(schema, dict) and "logicalType" in schema:
        logical = _logical(schema, path)
        if logical is not None:
            return logical
    if kind == "record":
        if not schema["fields"]:
            raise _no_type(_shown(path), "record", "The record has no fields.")
        return pa.struct([(it["name"], _type(it["type"], (*path, it["name"]))) for it in schema["fields"]])
    if kind == "array":
        return pa.list_(_type(schema["items"], path))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], path))
    if kind not in _PRIMITIVE:
        raise _no_type(_shown(path), kind, "Spark has no type for it.")
    return _PRIMITIVE[kind]


def _logical(schema: dict[str, Any], path: tuple[str, ...]) -> pa.DataType | None:
    name = schema["logicalType"]
    if name != "decimal":
        return _OF_LOGICAL[name]
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 0 < precision <= _MAX_DIGITS or not 0 <= scale <= precision:
        raise _no_type(_shown(path), f"decimal({precision}, {scale})", "Spark's decimals have at most 38 digits.")
    return pa.decimal128(precision, scale)


def _union(branches: list[Any], path: tuple[str, ...]) -> pa.DataType:
    others = [it for it in branches if it != "null"]
    if len(others) == 1:
        return _type(others[0], path)
    names = frozenset(it if isinstance(it, str) else "another" for it in others)
    if names in _NUMBERS:
        return _PRIMITIVE[_NUMBERS[names]]
    raise _no_type(_shown(path), "union", "A union of null and one other type has an equivalent.")


def _no_type(where: str, kind: Any, reason: str) -> InvalidOption:
    shown = kind if isinstance(kind, str) else type(kind).__name__
    return InvalidOption(
        f"Avro: {where} has the type '{shown}', which has no equivalent in Spark. {reason}",
        remedy="Pass a reader's schema without it.",
    )


def _shown(path: tuple[str, ...]) -> str:
    return f"field '{'.'.join(path)}'" if path else "the schema"
