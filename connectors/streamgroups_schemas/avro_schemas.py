"""Avro schemas: parsing, and the form in which fastavro reads values.

Called by ``avro_types``, ``avro_resolution`` and ``avro_values``. fastavro reads and writes values without logical types,
so a value has the types of its bytes; ``avro_resolution`` converts it. Source: the Avro specification 1.12.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from streamgroups.errors import InvalidOption
from streamgroups_schemas.avro_guards import guarded
from streamgroups_schemas.avro_parts import check_cost, flat, is_recursive

#: Logical types that are decoded, and their types. Any other is ignored, and so is one of another type.
_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
}
#: Properties without a meaning for fastavro. It rejects some valid defaults, and ignores the logical types of readers.
LOGICAL, DEFAULT, ALIASES = "streamgroups.logical", "streamgroups.default", "streamgroups.aliases"
_MAX_INT = 2**31 - 1
#: fastavro raises errors of Python for schemas whose parts have other types than they must.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException)

#: References of a schema: names and texts, each after those that it refers to.
References = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Logical:
    """A valid logical type.

    Args:
        name: its name.
        precision: of a decimal; else 0.
        scale: of a decimal; else 0.
    """

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, eq=False)
class AvroSchema:
    """A schema.

    Args:
        root: the schema: a name, a list for a union, or an object. Names in it are full names.
        named: the named types.
        readable: the schema for fastavro's readers, a record with the field ``value``.
        writable: the schema for fastavro's writers.
        is_recursive: whether a type contains itself.
    """

    root: Any
    named: Mapping[str, Any]
    readable: Any
    writable: Any
    is_recursive: bool

    def definition(self, schema: Any) -> Any:
        """Returns the definition of a type or of its name."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def parsed(text: str, references: References = ()) -> AvroSchema:
    """Returns a schema.

    Raises:
        InvalidOption: if the text is no Avro schema, or values of it would be work without bytes.
    """
    found = _parsed(text, references)
    if isinstance(found, InvalidOption):
        raise found
    return found


def logical_of(schema: Any) -> Logical | None:
    """Returns the logical type of a definition, if it is valid and decoded."""
    return schema.get(LOGICAL) if isinstance(schema, dict) else None


def unparsable(error: Exception | str) -> InvalidOption:
    """Returns the error of a schema that is malformed."""
    what = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return InvalidOption(f"The Avro schema cannot be parsed: {what}.", remedy="Pass an Avro schema as JSON.")


@lru_cache(maxsize=1000)
def _parsed(text: str, references: References) -> AvroSchema | InvalidOption:
    """A schema or its error: values of a topic repeat both."""
    try:
        named: dict[str, Any] = {}
        for _, reference in references:
            fastavro.parse_schema(_cleaned(json.loads(reference)), named_schemas=named)
        writable = fastavro.parse_schema(_cleaned(json.loads(text)), named_schemas=named)
        definitions: dict[str, Any] = {}
        for it in named.values():
            flat(it, definitions)
        root = flat(writable, definitions)
        check_cost(root, definitions)
        return AvroSchema(root, definitions, guarded(root, definitions), writable, is_recursive(definitions))
    except InvalidOption as e:
        return e
    except _MALFORMED as e:
        return unparsable(e)


def _cleaned(schema: Any) -> Any:
    """Returns a schema with the properties that have a meaning here."""
    if isinstance(schema, list):
        return [_cleaned(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _cleaned(kind)
    logical = _logical(schema)
    if logical is None and kind not in ("record", "error", "enum", "fixed", "array", "map"):
        return kind
    clean = {it: schema[it] for it in ("name", "namespace", "symbols", "size") if it in schema}
    clean["type"] = "record" if kind == "error" else kind
    clean |= {it: _cleaned(schema[it]) for it in ("items", "values") if it in schema}
    if "size" in clean and not (_is_int(clean["size"]) and 0 <= clean["size"] <= _MAX_INT):
        raise ValueError(f"the size of a fixed is {clean['size']}")
    if clean["type"] == "record":
        clean["fields"] = [_cleaned_field(it) for it in schema["fields"]]
        names = [it["name"] for it in clean["fields"]]
        if len(names) != len(set(names)):
            raise ValueError(f"record '{schema['name']}' has two fields of one name")
    found = {LOGICAL: logical, DEFAULT: schema.get("default"), ALIASES: _aliases(schema)}
    return {**clean, **{name: value for name, value in found.items() if value is not None}}


def _cleaned_field(field: Any) -> dict[str, Any]:
    clean = {"name": str(field["name"]), "type": _cleaned(field["type"]), ALIASES: _aliases(field)}
    return {**clean, DEFAULT: field["default"]} if "default" in field else clean


def _aliases(schema: Any) -> tuple[str, ...]:
    aliases = schema.get("aliases") or ()
    if not isinstance(aliases, (list, tuple)):
        raise ValueError("aliases are no list")
    return tuple(str(it) for it in aliases)


def _logical(schema: dict[str, Any]) -> Logical | None:
    """Invalid annotations are ignored, as the specification requires: "Logical Types"."""
    name, kind = schema.get("logicalType"), schema["type"]
    if not isinstance(name, str) or kind not in _LOGICAL.get(name, ()):
        return None
    if name != "decimal":
        return Logical(name)
    precision: Any = schema.get("precision")
    scale: Any = schema.get("scale", 0)
    if not _is_int(precision) or not _is_int(scale) or not 0 <= scale <= precision or not 0 < precision <= _MAX_INT:
        return None
    if kind == "fixed" and precision > math.floor(math.log10(2) * (8 * schema["size"] - 1)):
        return None
    return Logical(name, precision, scale)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
