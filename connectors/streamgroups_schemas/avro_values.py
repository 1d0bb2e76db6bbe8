"""Decodes and encodes Avro values in Arrow arrays, with fastavro.

Created by ``streamgroups_spark.decoding`` and pickled into tasks. Source: the Avro specification, "Binary Encoding" and
"Schema Resolution".
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa

from streamgroups.decoding.registry import RegisteredSchema, SchemaSource
from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups.decoding.wire_format import header, split_header
from streamgroups.errors import InvalidOption
from streamgroups_schemas.avro_conversions import to_written
from streamgroups_schemas.avro_guards import may_have_long_number, may_have_long_numbers, reader_of
from streamgroups_schemas.avro_resolution import Mismatch, check_defaults, converter
from streamgroups_schemas.avro_schemas import References, parsed
from streamgroups_schemas.avro_types import arrow_type
from streamgroups_schemas.results import apply, with_numbers

AVRO = "AVRO"
#: The text and the references of a schema.
_Key: TypeAlias = tuple[str, References]


def decode_avro(values: pa.Array, reader: RegisteredSchema, schemas: SchemaSource | None) -> pa.Array:
    """Decodes values.

    Args:
        values: the values, binary.
        reader: the schema of the results.
        schemas: the registry with the schemas of the values. ``None``: they were written with the reader's schema.

    Returns:
        Structs with the fields ``result`` and ``problem``; see :func:`~streamgroups_schemas.results.apply`.

    Raises:
        RegistryUnreachable: if the registry does not answer.
    """
    type_ = arrow_type(reader.text, reader.references)
    own = _key(reader)
    checks = may_have_long_numbers(values)
    one = _reader(own, own, checks) if schemas is None else _Registered(own, schemas, checks)
    return apply(values, one, type_, Kind.MALFORMED)


def check_reader(reader: RegisteredSchema) -> None:
    """Checks a schema of results.

    Raises:
        InvalidOption: if it has a type without an equivalent, or a default of another type than its field.
    """
    arrow_type(reader.text, reader.references)
    check_defaults(_key(reader))


class _Registered:
    """Decodes values with a schema id. Each schema is requested once for an array."""

    def __init__(self, own: _Key, schemas: SchemaSource, checks: bool) -> None:
        self._own, self._schemas, self._checks = own, schemas, checks
        self._readers: dict[int, Callable[[bytes], Any]] = {}

    def __call__(self, value: bytes) -> Any:
        schema_id, payload = split_header(value)
        read = self._readers.get(schema_id)
        if read is None:
            read = self._readers[schema_id] = self._reader_of(schema_id)
        try:
            return read(payload)
        except CannotDecode as e:
            raise CannotDecode(e.problem.kind, e.problem.text, schema_id=str(schema_id)) from None
        except Exception as e:
            text = f"The value does not have schema {schema_id}: {type(e).__name__}: {e}"
            raise CannotDecode(Kind.MALFORMED, " ".join(text.split()), schema_id=str(schema_id)) from None

    def _reader_of(self, schema_id: int) -> Callable[[bytes], Any]:
        found = self._schemas.by_id(schema_id, AVRO)
        if found is None:
            return _raising(Kind.UNKNOWN_SCHEMA, f"The registry has no schema {schema_id}.")
        if found.type != AVRO:
            text = f"Schema {schema_id} has the type {found.type}, and not {AVRO}."
            return _raising(Kind.SCHEMA_MISMATCH, text)
        try:
            return _reader(_key(found), self._own, self._checks)
        except InvalidOption as e:
            return _raising(Kind.SCHEMA_MISMATCH, str(e))


@lru_cache(maxsize=1000)
def _reader(written: _Key, own: _Key, checks: bool) -> Callable[[bytes], Any]:
    """Returns the function that reads values of a schema as those of the reader's schema.

    Args:
        written: the schema of the values.
        own: the reader's schema.
        checks: whether some of the values can contain a number of more than ten bytes. These are read slowly.
    """
    schema, convert = parsed(*written), converter(written, own)
    if isinstance(convert, Mismatch):
        return _raising(Kind.SCHEMA_MISMATCH, convert.text)
    read_raw = reader_of(schema.readable, is_recursive=schema.is_recursive)
    read_checked = reader_of(schema.readable, is_recursive=True)

    def read(payload: bytes) -> Any:
        data = io.BytesIO(payload)
        try:
            value = (read_checked if checks and may_have_long_number(payload) else read_raw)(data)
            if data.tell() != len(payload):
                raise CannotDecode(Kind.TRAILING, f"{len(payload) - data.tell()} more bytes follow the value.")
            return value if convert is None else convert(value)
        except EOFError:
            raise CannotDecode(Kind.MALFORMED, "The value ends too early.") from None
        except UnicodeDecodeError:
            raise CannotDecode(Kind.NOT_UTF8, "A text in the value is not valid UTF-8.") from None

    return read


def encode_avro(values: pa.Array, schema: RegisteredSchema, *, has_header: bool) -> pa.Array:
    """Encodes structs.

    Args:
        values: the structs, with the fields of the schema.
        schema: the schema.
        has_header: whether the id of the schema precedes each value.

    Returns:
        Structs with the fields ``result``, binary, and ``problem``.
    """
    own = parsed(schema.text, schema.references)
    convert = to_written(own)
    first = header(schema.id) if has_header else b""

    def one(value: Any) -> bytes:
        out = io.BytesIO()
        out.write(first)
        fastavro.schemaless_writer(out, own.writable, value if convert is None else convert(value))
        return out.getvalue()

    return apply(with_numbers(values), one, pa.binary(), Kind.NOT_ENCODABLE)


def _key(schema: RegisteredSchema) -> _Key:
    return schema.text, schema.references


def _raising(kind: Kind, text: str) -> Callable[[bytes], Any]:
    def read(_: bytes) -> Any:
        raise CannotDecode(kind, text)

    return read
