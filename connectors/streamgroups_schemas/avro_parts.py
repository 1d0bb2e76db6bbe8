"""The parts of parsed Avro schemas: the names of types, recursion, and what a value costs.

Called by ``avro_schemas``. Source: the Avro specification 1.12, "Names" and "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroups.errors import InvalidOption

#: The parts of a value that have no bytes. More are work without bytes: a few records, each used twice by the next.
_MAX_WITHOUT_BYTES = 10_000


def type_of(schema: Any) -> str:
    """Returns the type of a definition.

    >>> type_of(["null", "int"]), type_of("int"), type_of({"type": "array", "items": "int"})
    ('union', 'int', 'array')
    """
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def flat(schema: Any, named: dict[str, Any]) -> Any:
    """Adds the definitions of named types, and returns the schema with their names instead: each is judged once."""
    if isinstance(schema, list):
        return [flat(it, named) for it in schema]
    if isinstance(schema, str):
        return schema
    copy = {name: value for name, value in schema.items() if not name.startswith("__")}
    copy |= {it: flat(copy[it], named) for it in ("items", "values") if it in copy}
    if "fields" in copy:
        copy["fields"] = [{**it, "type": flat(it["type"], named)} for it in copy["fields"]]
    if "name" not in copy:
        return copy
    named[copy["name"]] = copy
    return copy["name"]


def _parts(schema: Any) -> list[Any]:
    """The parts of a definition. The names of named types are parts, their definitions are not."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return []
    return [schema[it] for it in ("items", "values") if it in schema] + [it["type"] for it in schema.get("fields", ())]


def _all_parts(schema: Any) -> list[Any]:
    found = [schema]
    for part in found:
        found.extend(_parts(part))
    return found


def is_recursive(named: Mapping[str, Any]) -> bool:
    """Returns whether a named type contains itself: types that use no others are removed until none is left."""
    uses = {
        name: {it for it in _all_parts(schema) if isinstance(it, str) and it in named} for name, schema in named.items()
    }
    users: dict[str, list[str]] = {name: [] for name in named}
    for name, used in uses.items():
        for it in used:
            users[it].append(name)
    left = {name: len(used) for name, used in uses.items()}
    ready = [name for name, count in left.items() if not count]
    while ready:
        for user in users[ready.pop()]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return any(left.values())


# ---- what a value costs ----------------------------------------------------------------------------------------------


def check_cost(root: Any, named: Mapping[str, Any]) -> None:
    """Rejects schemas with values that are work without bytes: a few bytes could then take all memory."""
    counts = _Counts(named)
    for schema in (*named.values(), root):
        fields = schema["fields"] if type_of(schema) == "record" else [{"name": "(root)", "type": schema}]
        for field in fields:
            for part in _all_parts(field["type"]):
                if type_of(part) == "array" and counts.has_no_bytes(part["items"]):
                    raise InvalidOption(
                        f"Field '{field['name']}' of the Avro schema is an array of values without bytes.",
                        remedy="Remove the field from the schema.",
                    )
        if counts.without_bytes(schema) > _MAX_WITHOUT_BYTES:
            raise InvalidOption(
                f"The Avro schema has values with more than {_MAX_WITHOUT_BYTES:,} parts without bytes.",
                remedy="Remove them from the schema.",
            )


class _Counts:
    """The parts of values without bytes."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._counts: dict[str, int] = {}
        self._empty: dict[str, bool] = {}

    def has_no_bytes(self, schema: Any) -> bool:
        """Returns whether each value of a type has no bytes."""
        if isinstance(schema, str) and schema in self._named:
            if schema not in self._empty:
                # A record that contains itself without a union, an array or a map has no values at all.
                self._empty[schema] = False
                self._empty[schema] = self.has_no_bytes(self._named[schema])
            return self._empty[schema]
        kind = type_of(schema)
        if kind == "record":
            return all(self.has_no_bytes(it["type"]) for it in schema["fields"])
        return kind == "null" or (kind == "fixed" and schema["size"] == 0)

    def without_bytes(self, schema: Any) -> int:
        """Returns the number of parts without bytes, outside of unions, arrays and maps."""
        if isinstance(schema, str) and schema in self._named:
            if schema not in self._counts:
                self._counts[schema] = 0
                self._counts[schema] = self.without_bytes(self._named[schema])
            return self._counts[schema]
        own = int(self.has_no_bytes(schema))
        if type_of(schema) != "record":
            return own
        return own + sum(self.without_bytes(it["type"]) for it in schema["fields"])
