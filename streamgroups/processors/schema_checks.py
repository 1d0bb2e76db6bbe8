"""Compares a tree of values with the JSON Schema, and reports every difference with its line, field and remedy.

Called by ``reading``. A library would report neither lines nor near names, and the schema uses few keywords. An unknown
keyword is an error of this package. Source: JSON Schema 2020-12; ``docs/processors.rst``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streamgroups.durations import FORMS, parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.processors.problems import Problem, is_secret, shown
from streamgroups.processors.schema import resolved
from streamgroups.processors.values import Entry, Items, Node, Scalar, Table
from streamgroups.similar_names import nearest

_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table of keys and values",
}
#: Keys that belong to a connection. Their place is the most frequent error.
_OF_CONNECTIONS = (
    "bootstrap_servers",
    "bootstrap.servers",
    "kafka.bootstrap.servers",
    "conninfo",
    "settings",
    "storage_options",
)
#: Keys that this library sets.
_OWN = {
    "transactional_id": "The transactional id is that of the processor. Remove the key.",
    "checkpoint": "It is a key of the processor, not of a step. Move it there, or remove it.",
    "group.id": "The group is '<instance>.<name>'. Remove the key.",
}


def differences(node: Node, part: Mapping[str, Any], field: str = "") -> Iterator[Problem]:
    """Yields the differences between a value and its part of the schema.

    Args:
        node: the value.
        part: the part of the schema.
        field: the field of the value, such as ``steps[0]``.
    """
    part = resolved(part)
    if "anyOf" in part:
        part = _chosen(node, part)
    if not _has_type(node, part):
        yield _of_type(node, part, field)
    elif isinstance(node, Table):
        yield from _of_table(node, part, field)
    elif isinstance(node, Items):
        yield from _of_items(node, part, field)
    else:
        yield from _of_scalar(node, part, field)


def _chosen(node: Node, part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the alternative for a value: by its key for tables, and otherwise by its type."""
    alternatives = [resolved(it) for it in part["anyOf"]]
    fitting = [it for it in alternatives if _has_type(node, it)]
    if isinstance(node, Table):
        for it in fitting:
            if it.get("x-chosen-by") in node.keys:
                return it
        fitting = [it for it in fitting if "x-chosen-by" not in it] or fitting
    if not fitting and isinstance(node, Scalar):
        # The words for a single value.
        fitting = [it for it in alternatives if not {"object", "array"} & set(_types(it))]
    return fitting[0] if fitting else {**part, "type": [t for it in alternatives for t in _types(it)], "anyOf": None}


def _types(part: Mapping[str, Any]) -> list[str]:
    given = part.get("type", [])
    return [given] if isinstance(given, str) else list(given)


def _has_type(node: Node, part: Mapping[str, Any]) -> bool:
    types = _types(part)
    if not types:
        return True
    if isinstance(node, Table):
        return "object" in types
    if isinstance(node, Items):
        return "array" in types
    value = node.value
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int):
        return bool({"integer", "number"} & set(types))
    if isinstance(value, float):
        return "number" in types
    if value is None:
        return False
    if isinstance(value, str):
        return "string" in types
    # A Python object can contain a function where a file has its name.
    return part.get("format") == "function" and callable(value)


def _of_type(node: Node, part: Mapping[str, Any], field: str) -> Problem:
    expected = str(part.get("x-expected") or " or ".join(_TYPES[it] for it in _types(part)))
    if isinstance(node, Scalar) and node.value is None:
        return Problem(node.line, field, "The value is missing.", f"Write {expected}, or remove the key.")
    if part.get("format") == "duration" and isinstance(node, Scalar):
        return Problem(node.line, field, f"'{shown(node.text, field)}' is not a duration.", FORMS)
    remedy = f"Write {expected}."
    if isinstance(node, Scalar) and _types(part) == ["string"] and "x-expected" not in part and not is_secret(field):
        remedy = f'Write it in quotes: "{shown(node.text)}".'
    if isinstance(node, Scalar) and "array" in _types(part) and isinstance(node.value, str) and not is_secret(field):
        remedy = f"Write {expected}, as in [{shown(node.text)}]."
    return Problem(node.line, field, f"{_named(node, field)} is not {expected}.", remedy)


def _named(node: Node, field: str) -> str:
    if isinstance(node, Table):
        return "A table"
    if isinstance(node, Items):
        return "A list"
    return f"'{shown(node.text, field)}'"


def _of_table(table: Table, part: Mapping[str, Any], field: str) -> Iterator[Problem]:
    properties: Mapping[str, Any] = part.get("properties", {})
    patterns: Mapping[str, Any] = part.get("patternProperties", {})
    others = part.get("additionalProperties", True)
    for entry in table.entries:
        inner = f"{field}.{entry.key}" if field else entry.key
        found = properties.get(entry.key) or next((it for p, it in patterns.items() if re.search(p, entry.key)), None)
        if found is not None:
            yield from differences(entry.value, found, inner)
        elif isinstance(others, Mapping):
            yield from differences(entry.value, others, inner)
        elif not others:
            yield _unknown(entry, part, inner)
    for name in part.get("required", ()):
        if name not in table.keys:
            meaning = str(resolved(properties.get(name, {})).get("x-expected", ""))
            remedy = f"Add '{name}: ...'" + (f", {meaning}." if meaning else ".")
            yield Problem(table.line, f"{field}.{name}" if field else name, f"Key '{name}' is missing.", remedy)
    if "maxProperties" in part and len(table.entries) != part["maxProperties"]:
        remedy = f"Write {part['x-expected']}."
        yield Problem(table.line, field, f"It has {len(table.entries)} keys: {', '.join(table.keys)}.", remedy)


def _unknown(entry: Entry, part: Mapping[str, Any], field: str) -> Problem:
    noun = part.get("x-noun", "Key")
    if entry.key in _OF_CONNECTIONS:
        remedy = (
            "It belongs to a connection. Create it with 'streamgroups connections set', and use 'connection: NAME'."
        )
    elif entry.key in _OWN:
        remedy = _OWN[entry.key]
    else:
        remedy = nearest(entry.key, part.get("properties", {}))
    return Problem(entry.line, field, f"{noun} '{shown(entry.key)}' is unknown.", remedy)


def _of_items(items: Items, part: Mapping[str, Any], field: str) -> Iterator[Problem]:
    if len(items.items) < part.get("minItems", 0):
        yield Problem(items.line, field, "The list is empty.", "Add an item, or remove the key.")
    for number, item in enumerate(items.items):
        yield from differences(item, part.get("items", {}), f"{field}[{number}]")


def _of_scalar(scalar: Scalar, part: Mapping[str, Any], field: str) -> Iterator[Problem]:
    text = shown(scalar.text, field)
    if "enum" in part and scalar.value not in part["enum"]:
        yield Problem(
            scalar.line, field, f"'{text}' is no valid value.", nearest(scalar.text, [*map(_word, part["enum"])])
        )
    if "pattern" in part and isinstance(scalar.value, str) and not _matches(part["pattern"], scalar.value):
        yield Problem(scalar.line, field, f"'{text}' is not valid.", f"Write {part['x-expected']}.")
    if "minLength" in part and isinstance(scalar.value, str) and not scalar.value.strip():
        yield Problem(scalar.line, field, "The text is empty.", "Write a text, or remove the key.")
    if isinstance(scalar.value, (int, float)) and not isinstance(scalar.value, bool):
        low, high = part.get("minimum"), part.get("maximum")
        if (low is not None and scalar.value < low) or (high is not None and scalar.value > high):
            bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
            yield Problem(scalar.line, field, f"'{text}' is out of range.", f"Write a number {bounds}.")
        elif "integer" in _types(part) and "number" not in _types(part) and isinstance(scalar.value, float):
            yield Problem(scalar.line, field, f"'{text}' is not a whole number.", "Write a whole number.")
    if part.get("format") == "duration" and scalar.value not in part.get("x-words", ()):
        yield from _of_duration(scalar, part, field)


def _word(value: Any) -> str:
    """A value as it is written in a file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _matches(pattern: str, text: str) -> bool:
    # In Python, '$' also matches before a line feed at the end.
    return re.search(pattern, text) is not None and not text.endswith("\n")


def _of_duration(scalar: Scalar, part: Mapping[str, Any], field: str) -> Iterator[Problem]:
    try:
        # Without a bound, the function that receives it decides whether it may be negative.
        found_ms = parse_duration_ms(str(scalar.value), option=field.rpartition(".")[2], signed=True)
        if found_ms < part.get("x-least-ms", found_ms):
            remedy = "Write a duration above 0." if part["x-least-ms"] else "Write a duration of 0 or more."
            yield Problem(scalar.line, field, f"'{shown(scalar.text, field)}' is too short.", remedy)
    except InvalidOption:
        yield Problem(scalar.line, field, f"'{shown(scalar.text, field)}' is not a duration.", FORMS)
