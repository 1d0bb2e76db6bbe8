"""Decodes and encodes Protobuf values in Arrow arrays, with the library of Google.

Created by ``streamgroups_spark.decoding`` and pickled into tasks. Source: the Protobuf language guide; Confluent's wire
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from streamgroups.decoding.registry import RegisteredSchema, SchemaSource
from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups.decoding.wire_format import header, joined_indexes, split_header, split_indexes
from streamgroups.errors import InvalidOption
from streamgroups_schemas.protobuf_files import message_of_set, registered_file, with_open_enums
from streamgroups_schemas.protobuf_types import (
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    Field,
    arrow_type,
    indexes_of,
    is_map,
    is_repeated,
    message_at,
    mismatch,
)
from streamgroups_schemas.results import apply, with_numbers

PROTOBUF = "PROTOBUF"
_UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A message and its schema: in a descriptor set, or in a registry. It is pickled, which descriptors are not.

    Args:
        name: the full name of the message. ``None``: the first message of ``registered``.
        descriptor_set: the output of ``protoc``.
        registered: the schema in a registry.
    """

    name: str | None
    descriptor_set: bytes | None = None
    registered: RegisteredSchema | None = None

    def message(self) -> Descriptor:
        """Returns the descriptor of the message.

        Raises:
            InvalidOption: if the schema is malformed, or does not have the message.
        """
        if self.registered is None:
            assert self.descriptor_set is not None
            return message_of_set(self.descriptor_set, str(self.name))
        file = registered_file(self.registered.text, self.registered.references)
        if self.name is None:
            found = message_at(file, (0,))
            if found is not None:
                return found
        try:
            return file.pool.FindMessageTypeByName(str(self.name))  # type: ignore[no-any-return]
        except KeyError:
            raise InvalidOption(
                f"Schema {self.registered.id} of the registry has no message '{self.name}'.",
                remedy=f"Its messages are: {', '.join(sorted(it.full_name for it in file.message_types_by_name.values()))}.",
            ) from None


def decode_protobuf(values: pa.Array, reader: MessageSchema, schemas: SchemaSource | None) -> pa.Array:
    """Decodes values.

    Args:
        values: the values, binary.
        reader: the message of the results.
        schemas: the registry with the schemas of the values. ``None``: values have no header.

    Returns:
        Structs with the fields ``result`` and ``problem``; see :func:`~streamgroups_schemas.results.apply`.

    Raises:
        RegistryUnreachable: if the registry does not answer.
    """
    message, type_, read = _compiled(reader)
    return apply(values, read if schemas is None else _Registered(message, read, schemas), type_, Kind.MALFORMED)


@lru_cache(maxsize=100)
def _compiled(reader: MessageSchema) -> tuple[Descriptor, pa.DataType, Callable[[bytes], Any]]:
    """Returns the message, its type, and the function that reads one value."""
    message = reader.message()
    type_ = arrow_type(message)
    make, convert = GetMessageClass(with_open_enums(message)), _reader(message)

    def read(payload: bytes) -> Any:
        try:
            return convert(make.FromString(payload))
        except DecodeError as e:
            raise CannotDecode(Kind.MALFORMED, f"The value is no message '{message.full_name}': {e}") from None

    return message, type_, read


class _Registered:
    """Decodes values with a schema id. Each schema is requested once for an array."""

    def __init__(self, message: Descriptor, read: Callable[[bytes], Any], schemas: SchemaSource) -> None:
        self._message, self._read, self._schemas = message, read, schemas
        self._problems: dict[tuple[int, tuple[int, ...]], CannotDecode | None] = {}

    def __call__(self, value: bytes) -> Any:
        schema_id, rest = split_header(value)
        indexes, payload = split_indexes(rest)
        written = (schema_id, indexes)
        if written not in self._problems:
            self._problems[written] = self._problem(schema_id, indexes)
        problem = self._problems[written]
        if problem is not None:
            raise problem
        try:
            return self._read(payload)
        except CannotDecode as e:
            raise CannotDecode(e.problem.kind, e.problem.text, schema_id=str(schema_id)) from None

    def _problem(self, schema_id: int, indexes: tuple[int, ...]) -> CannotDecode | None:
        details = {"schema_id": str(schema_id)}
        found = self._schemas.by_id(schema_id, PROTOBUF)
        if found is None:
            return CannotDecode(Kind.UNKNOWN_SCHEMA, f"The registry has no schema {schema_id}.", **details)
        if found.type != PROTOBUF:
            text = f"Schema {schema_id} has the type {found.type}, and not PROTOBUF."
            return CannotDecode(Kind.SCHEMA_MISMATCH, text, **details)
        try:
            written = message_at(registered_file(found.text, found.references), indexes)
        except InvalidOption as e:
            return CannotDecode(Kind.SCHEMA_MISMATCH, str(e), **details)
        name = self._message.full_name
        if written is None or written.full_name != name:
            other = "no message" if written is None else f"message '{written.full_name}'"
            text = f"Schema {schema_id} has {other} at the indexes of the value, and not '{name}'."
            return CannotDecode(Kind.SCHEMA_MISMATCH, text, **details)
        field = mismatch(written, self._message)
        if field is None:
            return None
        text = f"Field '{field}' has a type in schema {schema_id} that cannot be read with the reader's schema."
        return CannotDecode(Kind.SCHEMA_MISMATCH, text, **details, fields=field)


def encode_protobuf(values: pa.Array, schema: MessageSchema) -> pa.Array:
    """Encodes structs. A schema of a registry precedes each value.

    Args:
        values: the structs, with the fields of the message.
        schema: the message.

    Returns:
        Structs with the fields ``result``, binary, and ``problem``.
    """
    message = schema.message()
    make = GetMessageClass(message)
    first = b"" if schema.registered is None else header(schema.registered.id) + joined_indexes(indexes_of(message))

    def one(value: Any) -> bytes:
        filled = make()
        _fill(filled, value)
        return first + filled.SerializeToString(deterministic=True)

    return apply(with_numbers(values), one, pa.binary(), Kind.NOT_ENCODABLE)


# ---- messages to values ----------------------------------------------------------------------------------------------


def _reader(message: Descriptor) -> Callable[[Any], dict[str, Any]]:
    fields = [(it.name, _field_reader(it)) for it in message.fields]
    return lambda found: {name: read(found) for name, read in fields}


def _field_reader(field: Field) -> Callable[[Any], Any]:
    name = field.name
    if is_map(field):
        one_value = _value_reader(field.message_type.fields_by_name["value"])
        one_key = _value_reader(field.message_type.fields_by_name["key"])
        return lambda found: [(one_key(k), one_value(v)) for k, v in getattr(found, name).items()]
    one = _value_reader(field)
    if is_repeated(field):
        return lambda found: [one(it) for it in getattr(found, name)]
    if field.has_presence:
        return lambda found: one(getattr(found, name)) if found.HasField(name) else None
    return lambda found: one(getattr(found, name))


def _value_reader(field: Field) -> Callable[[Any], Any]:
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = {number: it.name for number, it in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.type in _UNSIGNED:
        return Decimal
    if field.message_type is None:
        return _same
    name = field.message_type.full_name
    if name in (TIMESTAMP, DURATION):
        return lambda found: found.seconds * 1_000_000 + int(found.nanos / 1_000)
    if name in WRAPPERS:
        one = _value_reader(field.message_type.fields_by_name["value"])
        return lambda found: one(found.value)
    return _reader(field.message_type)


def _same(value: Any) -> Any:
    return value


# ---- values to messages ----------------------------------------------------------------------------------------------


def _fill(message: Any, values: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = values.get(field.name)
        if value is None:
            continue
        oneof = field.containing_oneof
        if oneof is not None and message.WhichOneof(oneof.name) is not None:
            # The library would clear the first one.
            raise ValueError(
                f"the fields {message.WhichOneof(oneof.name)} and {field.name} of oneof {oneof.name} are both set"
            )
        if is_map(field):
            _fill_map(message, field, value)
        elif is_repeated(field):
            target = getattr(message, field.name)
            for it in value:
                if field.message_type is None:
                    target.append(_scalar(field, it))
                else:
                    _fill_message(target.add(), it)
        elif field.message_type is None:
            setattr(message, field.name, _scalar(field, value))
        else:
            target = getattr(message, field.name)
            target.SetInParent()
            _fill_message(target, value)


def _fill_map(message: Any, field: Field, value: dict[Any, Any]) -> None:
    target = getattr(message, field.name)
    key_field, value_field = (field.message_type.fields_by_name[it] for it in ("key", "value"))
    for key, it in value.items():
        if value_field.message_type is None:
            target[_scalar(key_field, key)] = _scalar(value_field, it)
        else:
            _fill_message(target[_scalar(key_field, key)], it)


def _fill_message(target: Any, value: Any) -> None:
    name = target.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        target.seconds, micros = divmod(value, 1_000_000)
        target.nanos = micros * 1_000
    elif name == DURATION:
        # Seconds and nanoseconds have one sign.
        seconds, micros = divmod(abs(value), 1_000_000)
        sign = -1 if value < 0 else 1
        target.seconds, target.nanos = sign * seconds, sign * micros * 1_000
    elif name in WRAPPERS:
        target.value = _scalar(target.DESCRIPTOR.fields_by_name["value"], value)
    else:
        _fill(target, value)


def _scalar(field: Field, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"{value!r} is no value of {field.enum_type.full_name}")
        return found.number
    return int(value) if field.type in _UNSIGNED else value
