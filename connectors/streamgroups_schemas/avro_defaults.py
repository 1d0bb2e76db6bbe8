"""Defaults of fields in Avro schemas, as values.

Called by ``avro_resolution``. Source: the Avro specification 1.12, "Schema Record", the table of defaults: a character of
``bytes`` and ``fixed`` is a byte, and a default of a union has its first type that fits.
"""

from __future__ import annotations

from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups_schemas.avro_guards import Branch
from streamgroups_schemas.avro_parts import type_of
from streamgroups_schemas.avro_schemas import DEFAULT, AvroSchema

_LIMITS = {"int": 2**31, "long": 2**63}
_MISFITS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def default_of(schema: AvroSchema, kind: Any, default: Any, path: tuple[str, ...]) -> Any:
    """Returns a default as fastavro reads it: without its logical type, and with the branches of unions.

    Args:
        schema: the schema with the named types.
        kind: the type of the field.
        default: the default, as JSON.
        path: the record and the field, for errors.

    Raises:
        InvalidOption: if the default does not have the type.
    """
    try:
        return _value(schema, kind, default)
    except _MISFITS:
        raise wrong_default(path, "It does not have the type of the field.") from None


def wrong_default(path: tuple[str, ...], reason: str) -> InvalidOption:
    """Returns the error of a default."""
    return InvalidOption(
        f"The default of field '{'.'.join(path)}' in the Avro schema is wrong. {reason}", remedy="Correct the default."
    )


def _value(schema: AvroSchema, kind: Any, default: Any) -> Any:
    kind = schema.definition(kind)
    if isinstance(kind, list):
        return _of_union(schema, kind, default)
    name = type_of(kind)
    if name == "record":
        given = dict(default)
        fields = [(it, given[it["name"]] if it["name"] in given else it[DEFAULT]) for it in kind["fields"]]
        return {it["name"]: _value(schema, it["type"], value) for it, value in fields}
    if name == "array" and isinstance(default, list):
        return [_value(schema, kind["items"], it) for it in default]
    if name == "map":
        return {key: _value(schema, kind["values"], it) for key, it in default.items()}
    return _scalar(kind, name, default)


def _of_union(schema: AvroSchema, branches: list[Any], default: Any) -> Any:
    for index, it in enumerate(branches):
        try:
            value = _value(schema, it, default)
        except _MISFITS:
            continue
        is_plain = value is None or sum(other != "null" for other in branches) == 1
        return value if is_plain else Branch(index, value)
    raise ValueError


def _scalar(kind: Any, name: str, default: Any) -> Any:
    if name in ("float", "double"):
        if isinstance(default, str):
            return _FLOATS[default]
        if not isinstance(default, bool):
            return float(default)
    elif name in _LIMITS:
        if type(default) is int and -_LIMITS[name] <= default < _LIMITS[name]:
            return default
    elif name in ("bytes", "fixed"):
        value = default.encode("latin-1")
        if name == "bytes" or len(value) == kind["size"]:
            return value
    elif (
        (name == "null" and default is None)
        or (name == "boolean" and isinstance(default, bool))
        or (isinstance(default, str) and (name == "string" or (name == "enum" and default in kind["symbols"])))
    ):
        return default
    raise ValueError
