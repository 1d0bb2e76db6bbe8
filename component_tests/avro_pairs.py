"""Random pairs of Avro schemas, values of the first one, and their bytes: the input of ``test_avro_agrees_with_java.py``.

The encoder is a second implementation of the specification, without fastavro. Source: the Avro specification 1.12.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Draw = Any
_LIMITS = {"int": 2**31, "long": 2**63}
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
#: Annotations that are valid for a type, and some that are not.
_VALID: dict[str, list[dict[str, Any]]] = {
    "int": [{"logicalType": "date"}, {"logicalType": "time-millis"}],
    "long": [
        {"logicalType": f"{zone}timestamp-{unit}"} for zone in ("", "local-") for unit in ("millis", "micros", "nanos")
    ],
    "bytes": [{"logicalType": "decimal", "precision": p, "scale": s} for p, s in ((1, 0), (9, 2), (38, 38), (38, 0))],
    "string": [{"logicalType": "uuid"}],
}
_INVALID: list[dict[str, Any]] = [
    {"logicalType": "decimal"},
    {"logicalType": "decimal", "precision": 0},
    {"logicalType": "decimal", "precision": -3, "scale": 1},
    {"logicalType": "decimal", "precision": 64, "scale": 127},
    {"logicalType": "decimal", "precision": 4, "scale": -1},
    {"logicalType": "decimal", "precision": "4"},
    {"logicalType": "decimal", "precision": 4.0},
    {"logicalType": "decimal", "precision": 4, "scale": "1"},
    {"logicalType": "decimal", "precision": True},
    {"logicalType": "decimal", "precision": 2**40, "scale": 2},
    {"logicalType": "date-of-another-kind"},
    {"logicalType": 7},
    {"logicalType": ["date"]},
]
_ON_ANOTHER_TYPE = [
    {"logicalType": it} for it in ("date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis")
]


@dataclass
class Pair:
    """A pair of schemas and a value.

    Args:
        writer: the schema of the value.
        reader: the schema of the result.
        value: the value, with the types of its bytes.
    """

    writer: Any
    reader: Any
    value: Any

    @property
    def encoded(self) -> bytes:
        """The bytes of the value."""
        return encode(self.writer, self.value, _definitions(self.writer))

    def __repr__(self) -> str:
        return f"Pair(\n  {json.dumps(self.writer)},\n  {json.dumps(self.reader)},\n  {self.value!r})"


@st.composite
def pairs(draw: Draw) -> Pair:
    """Pairs of records. The reader's schema has some changes, so most values can be read."""
    made = _Maker(draw)
    writer = made.record(3)
    reader = made.changed(writer, top=True)
    made.done = _definitions(writer)
    return Pair(writer, reader, made.value(writer, 4))


@dataclass
class _Maker:
    draw: Draw
    names: int = 0
    open: list[str] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, percent: int) -> bool:
        return bool(self.draw(st.integers(0, 99)) < percent)

    def one(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def record(self, depth: int) -> Any:
        name = self.name("R")
        self.open.append(name)
        fields = [{"name": f"f{it}", "type": self.type(depth - 1)} for it in range(self.draw(st.integers(1, 4)))]
        self.open.pop()
        made = {"type": "record", "name": name, "fields": fields}
        self.done[name] = made
        return made

    def type(self, depth: int, *, in_union: bool = False) -> Any:
        kinds = ["primitive"] * 5 + ["enum", "fixed"]
        if depth > 0:
            kinds += ["array", "map", "record"] + ([] if in_union else ["union"] * 4)
        if self.done and not in_union:
            kinds.append("name")
        kind = self.one(kinds)
        if kind == "primitive":
            return self.primitive(self.one(_PRIMITIVES))
        if kind == "enum":
            made: Any = {
                "type": "enum",
                "name": self.name("E"),
                "symbols": ["A", "B", "C"][: self.draw(st.integers(1, 3))],
            }
            self.done[made["name"]] = made
            return made
        if kind == "fixed":
            made = {"type": "fixed", "name": self.name("F"), "size": self.draw(st.sampled_from([1, 2, 12, 16, 20]))}
            if self.chance(50):
                made |= self.one(
                    [{"logicalType": "decimal", "precision": it, "scale": 1} for it in (2, 4, 38, 60)] + _INVALID
                )
            self.done[made["name"]] = made
            return made
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "record":
            return self.record(depth)
        return self.one(self.done) if kind == "name" else self.union(depth)

    def primitive(self, kind: str) -> Any:
        if self.chance(55):
            return kind
        return {"type": kind, **self.one([*_VALID.get(kind, ()), *_VALID.get(kind, ()), *_INVALID, *_wrong_for(kind)])}

    def union(self, depth: int) -> Any:
        if self.open and self.chance(15):
            return ["null", self.open[-1]]
        branches, seen = [], set()
        for _ in range(self.draw(st.sampled_from([1, 1, 1, 2, 3, 4]))):
            known = dict(self.done)
            made = self.type(depth - 1, in_union=True)
            kind = made if isinstance(made, str) else made["type"]
            key = made["name"] if kind in ("record", "enum", "fixed") else kind
            if key not in seen:
                seen.add(key)
                branches.append(made)
            else:
                self.done = known
        if self.chance(75):
            branches.insert(self.draw(st.integers(0, len(branches))), "null")
        return branches

    # ---- the reader's schema ----

    def changed(self, schema: Any, *, top: bool = False) -> Any:
        return _Changer(self).changed(schema, top=top)

    # ---- values ----

    def value(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            plain = [i for i, it in enumerate(schema) if it == "null"]
            choices = plain if depth <= 0 and plain else range(len(schema))
            index = self.one(choices)
            return index, self.value(schema[index], depth - 1)
        schema = self.done.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return {it["name"]: self.value(it["type"], depth - 1) for it in schema["fields"]}
        if kind == "enum":
            return self.one(schema["symbols"])
        if kind == "fixed":
            return self.draw(
                st.binary(min_size=schema["size"], max_size=schema["size"]) | st.just(bytes(schema["size"]))
            )
        if kind in ("array", "map"):
            size = self.draw(st.integers(0, 2 if depth > 0 else 0))
            if kind == "array":
                return [self.value(schema["items"], depth - 1) for _ in range(size)]
            return {f"k{it}": self.value(schema["values"], depth - 1) for it in range(size)}
        return self.draw(_values(kind))


@dataclass
class _Changer:
    maker: _Maker
    defined: set[str] = field(default_factory=set)

    def changed(self, schema: Any, *, top: bool = False) -> Any:
        it = self.maker
        if isinstance(schema, list):
            return self.union(schema)
        if isinstance(schema, str) and schema in it.done:
            if schema in self.defined:
                return schema
            schema = it.done[schema]
        if not top and it.chance(2):
            return self.added_type(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            made = self.record(schema)
        elif kind in ("enum", "fixed"):
            made = self.named(schema)
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            made = {"type": kind, part: self.changed(schema[part])}
        elif kind == "null":
            return kind
        else:
            made = self.primitive(schema, kind)
        return [*(["null"] if it.chance(80) else []), made] if not top and it.chance(15) else made

    def added_type(self, schema: Any) -> Any:
        return self.maker.one([it for it in _PRIMITIVES if it != schema])

    def primitive(self, schema: Any, kind: str) -> Any:
        it = self.maker
        if it.chance(25) and kind in _PROMOTED:
            promoted = it.one(_PROMOTED[kind])
            is_annotated = isinstance(schema, dict)
            return it.primitive(promoted) if not is_annotated else promoted
        if isinstance(schema, dict):
            # Two different logical types have rules of their own.
            return schema if it.chance(60) else kind
        return schema if it.chance(50) else it.primitive(kind)

    def named(self, schema: Any) -> Any:
        if schema["name"] in self.defined:
            return schema["name"]
        self.defined.add(schema["name"])
        it, made = self.maker, dict(schema)
        if made["type"] == "fixed":
            if "logicalType" in made and it.chance(40):
                made = {name: made[name] for name in ("type", "name", "size")}
            elif it.chance(10):
                made["size"] += 1
            return made
        symbols = [s for s in ("A", "B", "C", "D") if it.chance(80)] or ["D"]
        return {**made, "symbols": symbols, **({"default": it.one(symbols)} if it.chance(50) else {})}

    def record(self, schema: Any) -> Any:
        if schema["name"] in self.defined:
            return schema["name"]
        self.defined.add(schema["name"])
        it = self.maker
        fields: list[dict[str, Any]] = []
        for one in schema["fields"]:
            if it.chance(20):
                continue
            made = {"name": one["name"], "type": self.changed(one["type"])}
            if it.chance(15):
                made = {"name": it.name("g"), "type": made["type"], "aliases": ["other", one["name"]]}
            fields.insert(it.draw(st.integers(0, len(fields))), made)
        for _ in range(it.draw(st.integers(0, 2)) if it.chance(40) else 0):
            known, it.done = it.done, {}
            type_ = it.type(1)
            default = self.default(type_)
            it.done = known
            fields.append({"name": it.name("d"), "type": type_, **default})
        name = {"name": it.name("N"), "aliases": [schema["name"]]} if it.chance(10) else {"name": schema["name"]}
        if name["name"] != schema["name"]:
            # Names in the rest of the schema are those of the writer.
            it.done.pop(schema["name"], None)
        return {"type": "record", **name, "fields": fields or [{"name": "z", "type": "int", "default": 7}]}

    def union(self, schema: list[Any]) -> Any:
        it = self.maker
        others = [one for one in schema if one != "null"]
        if others and it.chance(15):
            return self.changed(it.one(others))
        if len(others) > 1 and it.chance(50):
            kept = it.one(others)
            schema = ["null", kept]
        made = [self.changed(one) for one in schema]
        flat = [one for part in made for one in (part if isinstance(part, list) else [part])]
        unique = {json.dumps(one if isinstance(one, str) else one.get("name") or one["type"]): one for one in flat}
        if it.chance(15):
            return ["null", it.one([["int", "long"], ["long", "int"], ["float", "double"], ["double", "float"]])][1]
        return list(unique.values())

    def default(self, schema: Any) -> dict[str, Any]:
        if _refers_to_a_name(schema) or self.maker.chance(15):
            return {}
        return {"default": self.default_value(schema)}

    def default_value(self, schema: Any) -> Any:
        it = self.maker
        if isinstance(schema, list):
            return self.default_value(schema[0]) if schema else None
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "null":
            return None
        if kind == "record":
            return {one["name"]: self.default_value(one["type"]) for one in schema["fields"]}
        if kind == "enum":
            return it.one(schema["symbols"])
        if kind == "array":
            return [self.default_value(schema["items"]) for _ in range(it.draw(st.integers(0, 2)))]
        if kind == "map":
            return {"k": self.default_value(schema["values"])}
        if kind == "fixed":
            return it.draw(st.binary(min_size=schema["size"], max_size=schema["size"])).decode("latin-1")
        if kind == "bytes":
            return it.draw(st.binary(max_size=5)).decode("latin-1")
        if kind in ("float", "double"):
            return it.draw(st.integers(-(2**20), 2**20) | st.sampled_from([0.5, -1.25, 1e10]))
        return it.draw(_values(kind))


def _refers_to_a_name(schema: Any) -> bool:
    """Whether a value of a schema can need a type that is defined elsewhere."""
    if isinstance(schema, list):
        return any(_refers_to_a_name(it) for it in schema)
    if isinstance(schema, str):
        return schema not in (*_PRIMITIVES, "null")
    parts = [schema[name] for name in ("items", "values") if name in schema]
    return any(_refers_to_a_name(it) for it in [*parts, *(field["type"] for field in schema.get("fields", ()))])


def _wrong_for(kind: str) -> list[dict[str, Any]]:
    return [it for it in _ON_ANOTHER_TYPE if it not in _VALID.get(kind, ())]


def _values(kind: str) -> st.SearchStrategy[Any]:
    if kind in _LIMITS:
        edge = _LIMITS[kind]
        times = [1_577_836_800_000, 253_402_300_800_000, 9_404_843_904_000_000] if kind == "long" else []
        edges = st.sampled_from([0, 1, -1, edge - 1, -edge, 16_777_217, 18_262, *times])
        return edges | st.integers(-edge, edge - 1)
    if kind == "float":
        return st.floats(width=32)
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "double": st.floats(),
        "bytes": st.binary(max_size=20),
        "string": st.text(st.characters(codec="utf-8"), max_size=5),
    }
    return strategies[kind]


# ---- bytes -----------------------------------------------------------------------------------------------------------


def encode(schema: Any, value: Any, named: dict[str, Any]) -> bytes:
    """Returns the bytes of a value. A value of a union is a pair of the index of its branch and a value."""
    if isinstance(schema, list):
        return zigzag(value[0]) + encode(schema[value[0]], value[1], named)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(encode(it["type"], value[it["name"]], named) for it in schema["fields"])
    if kind == "enum":
        return zigzag(schema["symbols"].index(value))
    if kind == "array":
        items = b"".join(encode(schema["items"], it, named) for it in value)
        return (zigzag(len(value)) + items if value else b"") + b"\x00"
    if kind == "map":
        entries = b"".join(_text(key) + encode(schema["values"], it, named) for key, it in value.items())
        return (zigzag(len(value)) + entries if value else b"") + b"\x00"
    return _scalar(kind, value)


def zigzag(number: int) -> bytes:
    """Returns the bytes of an ``int`` or ``long``."""
    number, parts = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _scalar(kind: str, value: Any) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([value])
    if kind in _LIMITS:
        return zigzag(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "fixed":
        return bytes(value)
    return _text(value) if kind == "string" else zigzag(len(value)) + value


def _text(value: str) -> bytes:
    data = value.encode()
    return zigzag(len(data)) + data


def _definitions(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left.extend(one)
        elif isinstance(one, dict):
            if "name" in one:
                found[one["name"]] = one
            left.extend(one[it] for it in ("items", "values") if it in one)
            left.extend(it["type"] for it in one.get("fields", ()))
    return found
