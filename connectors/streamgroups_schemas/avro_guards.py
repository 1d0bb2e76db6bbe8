"""Schemas for fastavro's readers with guards that fastavro lacks, and a reader for types that contain themselves.

Called by ``avro_schemas`` and ``avro_values``. fastavro reads negative indexes from the end, returns no branches of
unions, reads a number of any length as another one, and reads nested values on the stack of C, which a value of a recursive
type exceeds. Source: the Avro specification 1.12, "Binary Encoding"; Java's ``BinaryDecoder``, which rejects a number of more
than ten bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any

import fastavro
import numpy as np
import pyarrow as pa
from fastavro import _read_py
from fastavro.io.binary_decoder import BinaryDecoder

_BRANCH = "streamgroups.branch"
_UNNAMED = ("boolean", "int", "long", "float", "double", "string", "bytes", "array", "map")
_WRAPPER = "streamgroups.Value"
#: fastavro's readers without Cython, whose errors of deep values are errors of Python.
_IN_PYTHON: Any = _read_py
_MAX_VARINT_BYTES = 10
#: The beginning of a longer number, or a text.
_LONG_NUMBER = re.compile(rb"[\x80-\xff]{%d}" % _MAX_VARINT_BYTES)
_NAMES = {"return_named_type": True, "return_named_type_override": True}


class Branch:
    """A value of a union, and the index of its branch.

    Args:
        index: the index.
        value: the value.
    """

    __slots__ = ("index", "value")

    def __init__(self, index: int, value: Any) -> None:
        self.index, self.value = index, value


class _Branches(list[Any]):
    """The branches of a union. fastavro adds the length of the list to a negative index."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            raise IndexError(f"a union has no branch {index}")
        return list.__getitem__(self, index)


def _branch(value: Any, schema: Any, _reader: Any = None) -> Branch:
    return Branch(schema["branch"], value)


for _kind in _UNNAMED:
    fastavro.read.LOGICAL_READERS[f"{_kind}-{_BRANCH}"] = _branch


def guarded(root: Any, named: Mapping[str, Any]) -> Any:
    """Returns the schema of a record for fastavro's readers.

    Args:
        root: the schema. If it is no record, the result is a record with the field ``value`` of this type.
        named: the definitions of named types.

    In a union of several types, a value of a type without a name is a :class:`Branch`.
    """
    defined = {name: _guarded_definition(schema) for name, schema in named.items()}
    own = defined.get(root) if isinstance(root, str) else None
    if own is None or own["type"] != "record":
        own = {"type": "record", "name": _WRAPPER, "fields": [{"name": "value", "type": _guarded(root)}]}
    return {**own, "__fastavro_parsed": True, "__named_schemas": {**defined, own["name"]: own}}


def may_have_long_number(payload: bytes) -> bool:
    r"""Returns whether a value can contain a number of more than ten bytes.

    >>> may_have_long_number(b"\x80" * 9), may_have_long_number(b"\x80" * 10)
    (False, True)
    """
    return _LONG_NUMBER.search(payload) is not None


def may_have_long_numbers(values: pa.Array) -> bool:
    r"""Returns whether one of the values can contain a number of more than ten bytes: quickly, for all values at once.

    >>> may_have_long_numbers(pa.array([b"\x80" * 9])), may_have_long_numbers(pa.array([b"", b"\x80" * 10]))
    (False, True)
    """
    data = values.buffers()[2]
    if data is None:
        return False
    runs = np.frombuffer(data, np.uint8) >= 0x80
    # Places with one, two, four, eight and then ten such bytes.
    for further in (1, 2, 4, _MAX_VARINT_BYTES - 8):
        runs = runs[:-further] & runs[further:]
    return bool(runs.any())


def reader_of(schema: Any, *, is_recursive: bool) -> Callable[[IO[bytes]], Any]:
    """Returns the function that reads one value.

    Args:
        schema: the result of :func:`guarded`.
        is_recursive: whether a type contains itself, or the length of numbers is checked. Such values are read slowly, and
            to the limit of Python's stack.
    """
    named = schema["__named_schemas"]
    if is_recursive:
        decoder: Any = _Decoder
        by_side = {"writer": named, "reader": {}}

        def read(data: IO[bytes]) -> Any:
            return _IN_PYTHON.read_data(decoder(data), schema, by_side, None, _NAMES)
    else:
        names: Any = _NAMES if any(_has_names(it) for it in named.values()) else {}
        read = partial(fastavro.schemaless_reader, writer_schema=schema, reader_schema=None, **names)
    return read if schema["name"] != _WRAPPER else lambda data: read(data)["value"]


class _Decoder(BinaryDecoder):
    """Reads numbers of at most ten bytes, and 64 bits of them, as Java does."""

    def read_long(self) -> int:
        number = 0
        for place in range(_MAX_VARINT_BYTES):
            data = self.fo.read(1)
            if not data:
                raise EOFError
            byte: int = data[0]
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                number &= 2**64 - 1
                return (number >> 1) ^ -(number & 1)
        raise ValueError("a number has too many bytes")

    read_int = read_index = read_enum = read_long


def _guarded_definition(schema: Any) -> Any:
    copy = dict(schema)
    if "symbols" in copy:
        # A dict has no negative keys.
        copy["symbols"] = dict(enumerate(copy["symbols"]))
    if "fields" in copy:
        copy["fields"] = [{"name": it["name"], "type": _guarded(it["type"])} for it in copy["fields"]]
    return copy


def _guarded(schema: Any) -> Any:
    if isinstance(schema, list):
        return _guarded_union(schema)
    if isinstance(schema, str):
        return schema
    for part in ("items", "values"):
        if part in schema:
            return {"type": schema["type"], part: _guarded(schema[part])}
    return schema["type"]


def _guarded_union(schema: list[Any]) -> _Branches:
    branches = [_guarded(it) for it in schema]
    if sum(it != "null" for it in branches) > 1:
        for index, it in enumerate(branches):
            kind = it if isinstance(it, str) else it["type"]
            if kind in _UNNAMED:
                parts = {"type": it} if isinstance(it, str) else it
                branches[index] = {**parts, "logicalType": _BRANCH, "branch": index}
    return _Branches(branches)


def _has_names(schema: Any) -> bool:
    """Returns whether a definition has a union of several types with a named one."""
    found = [schema]
    for part in found:
        if isinstance(part, _Branches):
            others = [it for it in part if it != "null"]
            if len(others) > 1 and any(isinstance(it, str) for it in others):
                return True
            found.extend(part)
        elif isinstance(part, dict):
            found.extend(part[it] for it in ("items", "values") if it in part)
            found.extend(it["type"] for it in part.get("fields", ()))
    return False
