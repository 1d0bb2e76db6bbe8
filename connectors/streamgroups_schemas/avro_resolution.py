"""Schema resolution: converts values with the types of the writer's schema to those of the reader's schema.

Called by ``avro_values``. A converter is compiled once for a pair of schemas. It changes values in place, and ``None``
leaves them as they are. Source: the Avro specification 1.12, "Schema Resolution" and "Logical Types"; where it leaves
a choice, Java's ``Resolver``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups_schemas.avro_conversions import (
    PROMOTIONS,
    Converter,
    is_same,
    logical_converter,
    nullable,
    of_items,
    of_values,
)
from streamgroups_schemas.avro_defaults import default_of, wrong_default
from streamgroups_schemas.avro_guards import Branch
from streamgroups_schemas.avro_parts import type_of
from streamgroups_schemas.avro_schemas import ALIASES, DEFAULT, AvroSchema, References, logical_of, parsed

_NAMED = ("record", "enum", "fixed")


@lru_cache(maxsize=1000)
def converter(writer: tuple[str, References], reader: tuple[str, References]) -> Converter:
    """Returns the converter of values that were written with a schema.

    Args:
        writer: the text and the references of the schema of the values.
        reader: those of the schema of the results.

    Raises:
        InvalidOption: if a default of the reader's schema does not have the type of its field.
    """
    reader_schema = parsed(*reader)
    return _Resolver(parsed(*writer), reader_schema).resolve(parsed(*writer).root, reader_schema.root)


def check_defaults(reader: tuple[str, References]) -> None:
    """Checks the defaults of a reader's schema, each once.

    Raises:
        InvalidOption: if a default does not have the type of its field.
    """
    schema = parsed(*reader)
    resolver = _Resolver(schema, schema)
    for record in schema.named.values():
        for field in record.get("fields", ()):
            if DEFAULT in field:
                resolver.default(record, field)


class _Resolver:
    """Compiles converters. Each pair of records is compiled once."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._records: dict[tuple[str, str], Converter] = {}

    def resolve(self, written: Any, read: Any) -> Converter:
        written, read = self._writer.definition(written), self._reader.definition(read)
        if isinstance(written, list):
            return self._written_union(written, read)
        if isinstance(read, list):
            branch = self._branch(written, read)
            return _mismatch(written, read) if branch is None else self.resolve(written, branch)
        kinds = type_of(written), type_of(read)
        if not self._fits(written, read):
            return _mismatch(written, read)
        if kinds == ("record", "record"):
            return self._record(written, read)
        if kinds == ("array", "array"):
            return of_items(self.resolve(written["items"], read["items"]))
        if kinds == ("map", "map"):
            return of_values(self.resolve(written["values"], read["values"]))
        if kinds == ("enum", "enum"):
            return _enum(written, read)
        written_type, read_type = logical_of(written), logical_of(read)
        if read_type is None:
            return PROMOTIONS.get(kinds)
        if written_type is None:
            return _both(PROMOTIONS.get(kinds), logical_converter(read_type))
        return logical_converter(written_type) if is_same(written_type, read_type) else _mismatch(written, read)

    def _fits(self, written: Any, read: Any) -> bool:
        kinds = type_of(written), type_of(read)
        if kinds[0] != kinds[1]:
            return kinds in PROMOTIONS
        if kinds[0] not in _NAMED:
            return True
        if kinds[0] == "fixed" and written["size"] != read["size"]:
            return False
        names = {it.rpartition(".")[2] for it in (read["name"], *read.get(ALIASES, ()))}
        return written["name"].rpartition(".")[2] in names

    def _branch(self, written: Any, branches: list[Any]) -> Any | None:
        """The branch of the reader's union: the first of the same type, or else the first that it is promoted to."""
        defined = [self._reader.definition(it) for it in branches]
        kind = type_of(written)
        fitting = [it for it in defined if self._fits(written, it)]
        same = [it for it in fitting if type_of(it) == kind]
        return next(iter([*same, *fitting]), None)

    def _written_union(self, branches: list[Any], read: Any) -> Converter:
        convert = [self.resolve(it, read) for it in branches]
        others = [index for index, it in enumerate(branches) if it != "null"]
        null = convert[branches.index("null")] if "null" in branches else None
        if len(others) == 1:
            return nullable(null, convert[others[0]])
        index_of = {it: index for index, it in enumerate(branches) if isinstance(it, str) and it in self._writer.named}
        return _branched(convert, null, index_of)

    def _record(self, written: Any, read: Any) -> Converter:
        key = written["name"], read["name"]
        if key not in self._records:
            self._records[key] = self._new_record(written, read)
        return self._records[key]

    def default(self, record: Any, field: Any) -> Any:
        """Returns the default of a field in the reader's schema, as a result."""
        path = (record["name"], field["name"])
        raw = default_of(self._reader, field["type"], field[DEFAULT], path)
        own = _Resolver(self._reader, self._reader).resolve(field["type"], field["type"])
        try:
            return raw if own is None else own(raw)
        except CannotDecode as e:
            raise wrong_default(path, e.problem.text) from None

    def _new_record(self, written: Any, read: Any) -> Converter:
        written_fields = {it["name"]: it["type"] for it in written["fields"]}
        copied: list[tuple[str, str, Converter]] = []
        added: list[tuple[str, Any]] = []
        for field in read["fields"]:
            found = next((it for it in (field["name"], *field[ALIASES]) if it in written_fields), None)
            if found is not None:
                copied.append((field["name"], found, self.resolve(written_fields[found], field["type"])))
            elif DEFAULT in field:
                added.append((field["name"], self.default(read, field)))
            else:
                return Mismatch(f"Field '{field['name']}' of record '{read['name']}' has no default, and is missing.")
        return _fields(copied, added)


# ---- converters ------------------------------------------------------------------------------------------------------


class Mismatch:
    """The converter of a type that the reader's schema cannot read.

    Args:
        text: the reason.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, value: Any) -> Any:
        raise CannotDecode(Kind.SCHEMA_MISMATCH, self.text)


def _fields(copied: list[tuple[str, str, Converter]], added: list[tuple[str, Any]]) -> Converter:
    for _, name, it in copied:
        # Each value has the field, in contrast to the items of an array or the branches of a union.
        if isinstance(it, Mismatch):
            return Mismatch(f"Field '{name}': {it.text}")
    if any(read_name != written_name for read_name, written_name, _ in copied):
        return lambda value: {
            **{
                read_name: value[written_name] if it is None else it(value[written_name])
                for read_name, written_name, it in copied
            },
            **dict(added),
        }
    changed = [(name, it) for name, _, it in copied if it is not None]
    if not changed and not added:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, it in changed:
            value[name] = it(value[name])
        for name, default in added:
            value[name] = default
        return value

    return convert


def _both(first: Converter, second: Converter) -> Converter:
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def _branched(convert: list[Converter], null: Converter, index_of: dict[str, int]) -> Converter:
    """A union of several types: ``avro_guards`` and fastavro return the branches of its values."""
    only = next(iter(index_of.values()), 0)

    def one(value: Any) -> Any:
        if value is None:
            return value if null is None else null(value)
        if isinstance(value, Branch):
            index, value = value.index, value.value
        elif isinstance(value, tuple):
            index, value = index_of[value[0]], value[1]
        else:
            index = only
        it = convert[index]
        return value if it is None else it(value)

    return one


def _enum(written: Any, read: Any) -> Converter:
    known, default = frozenset(read["symbols"]), read.get(DEFAULT)
    if known.issuperset(written["symbols"]):
        return None

    def convert(symbol: str) -> str:
        if symbol in known:
            return symbol
        if default in known:
            return str(default)
        raise CannotDecode(Kind.SCHEMA_MISMATCH, f"Enum '{read['name']}' of the reader's schema has no '{symbol}'.")

    return convert


def _mismatch(written: Any, read: Any) -> Converter:
    return Mismatch(f"The value has the type {_shown(written)}, and the reader's schema has {_shown(read)}.")


def _shown(schema: Any) -> str:
    name = f" '{schema['name']}'" if isinstance(schema, dict) and "name" in schema else ""
    logical = logical_of(schema)
    return type_of(schema) + name + (f" ({logical.name})" if logical else "")
