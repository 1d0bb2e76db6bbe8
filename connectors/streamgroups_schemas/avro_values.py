"""Decodes and encodes Avro values in Arrow arrays, with fastavro.

Created by ``streamgroups_spark.decoding`` and pickled into tasks. Source: the Avro specification, "Binary Encoding" and
"Schema Resolution".
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from streamgroups.decoding.problems import CannotDecode, Kind
from streamgroups.decoding.registry import RegisteredSchema, SchemaSource
from streamgroups.decoding.wire_format import header, split_header
from streamgroups.errors import InvalidOption
from streamgroups_schemas.avro_types import arrow_type, parsed
from streamgroups_schemas.results import apply

AVRO = "AVRO"


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
    own = parsed(reader.text, reader.references)
    if schemas is None:
        return apply(values, lambda value: _read(value, own, None), type_, Kind.MALFORMED)
    one = _Registered(reader, own, schemas)
    return apply(values, one, type_, Kind.MALFORMED)


class _Registered:
    """Decodes values with a schema id. Each schema is requested once for an array."""

    def __init__(self, reader: RegisteredSchema, own: Any, schemas: SchemaSource) -> None:
        self._reader, self._own, self._schemas = reader, own, schemas
        self._readers: dict[int, Callable[[bytes], Any]] = {}

    def __call__(self, value: bytes) -> Any:
        schema_id, payload = split_header(value)
        read = self._readers.get(schema_id)
        if read is None:
            read = self._readers[schema_id] = self._reader_of(schema_id)
        return read(payload)

    def _reader_of(self, schema_id: int) -> Callable[[bytes], Any]:
        found = self._schemas.by_id(schema_id, AVRO)
        try:
            if found is None:
                raise CannotDecode(Kind.UNKNOWN_SCHEMA, f"The registry has no schema {schema_id}.", **_at(schema_id))
            if found.type != AVRO:
                text = f"Schema {schema_id} has the type {found.type}, and not AVRO."
                raise CannotDecode(Kind.SCHEMA_MISMATCH, text, **_at(schema_id))
            try:
                writer = parsed(found.text, found.references)
            except InvalidOption as e:
                raise CannotDecode(Kind.SCHEMA_MISMATCH, str(e), **_at(schema_id)) from None
        except CannotDecode as e:
            return _raising(e)
        is_same = (found.text, found.references) == (self._reader.text, self._reader.references)
        own = None if is_same else self._own

        def read(payload: bytes) -> Any:
            try:
                return _read(payload, writer, own)
            except CannotDecode as e:
                raise CannotDecode(e.problem.kind, e.problem.text, **_at(schema_id)) from None
            except fastavro.read.SchemaResolutionError as e:
                text = f"Schema {schema_id} of the value cannot be read with the reader's schema: {e}"
                raise CannotDecode(Kind.SCHEMA_MISMATCH, " ".join(text.split()), **_at(schema_id)) from None
            except Exception as e:
                text = f"The value does not have schema {schema_id}: {type(e).__name__}: {e}"
                raise CannotDecode(Kind.MALFORMED, " ".join(text.split()), **_at(schema_id)) from None

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
    first = header(schema.id) if has_header else b""

    def one(value: Any) -> bytes:
        out = io.BytesIO()
        out.write(first)
        fastavro.schemaless_writer(out, own, value)
        return out.getvalue()

    return apply(values, one, pa.binary(), Kind.NOT_ENCODABLE)


def _read(payload: bytes, writer: Any, reader: Any) -> Any:
    data = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(data, writer, reader)
    except EOFError:
        raise CannotDecode(Kind.MALFORMED, "The value ends too early.") from None
    except UnicodeDecodeError:
        raise CannotDecode(Kind.NOT_UTF8, "A text in the value is not valid UTF-8.") from None
    if left := len(payload) - data.tell():
        raise CannotDecode(Kind.TRAILING, f"{left} more bytes follow the value.")
    return value


def _raising(error: CannotDecode) -> Callable[[bytes], Any]:
    def read(_: bytes) -> Any:
        raise error

    return read


def _at(schema_id: int) -> dict[str, str]:
    return {"schema_id": str(schema_id)}
