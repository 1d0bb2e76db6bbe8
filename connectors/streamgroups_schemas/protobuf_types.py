"""Protobuf schemas: descriptors, the Arrow type of a message, and whether two versions of a message fit.

Called by ``protobuf_values`` and ``streamgroups_spark.decoding``. Source: the Protobuf language guide ("Updating A Message
Type") and "Well-Known Types"; Confluent's serializer for schemas in a registry.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from streamgroups.errors import InvalidOption

_F = FieldDescriptor
_SCALARS = {
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{it}Value"
    for it in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
#: Types of the reader that have each value of a type of the writer, with the same bytes.
_WIDER = {
    _F.TYPE_BOOL: (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64),
    _F.TYPE_INT32: (_F.TYPE_INT64,),
    _F.TYPE_UINT32: (_F.TYPE_INT64, _F.TYPE_UINT64),
    _F.TYPE_SINT32: (_F.TYPE_SINT64,),
    _F.TYPE_ENUM: (_F.TYPE_INT32, _F.TYPE_INT64),
    _F.TYPE_STRING: (_F.TYPE_BYTES,),
    # Other bytes than UTF-8 are no text, so their value is malformed.
    _F.TYPE_BYTES: (_F.TYPE_STRING,),
}
#: A few messages, each used twice by the next, are more fields than Spark can plan.
_MAX_FIELDS = 10_000

#: A ``FieldDescriptor``. Its type of a message or enum is set for some kinds of fields only, which type checkers ignore.
Field: TypeAlias = Any


def message_at(file: Any, indexes: tuple[int, ...]) -> Descriptor | None:
    """Returns the message at these indexes of a file; ``None`` if the file has no such message."""
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    level, names = proto.message_type, [proto.package] if proto.package else []
    for index in indexes:
        if not 0 <= index < len(level):
            return None
        names.append(level[index].name)
        level = level[index].nested_type
    return file.pool.FindMessageTypeByName(".".join(names))  # type: ignore[no-any-return]


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Returns the indexes of a message in its file."""
    parent = message.containing_type
    if parent is not None:
        return (*indexes_of(parent), [it.full_name for it in parent.nested_types].index(message.full_name))
    proto = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(proto)
    return ([it.name for it in proto.message_type].index(message.name),)


def is_repeated(field: Field) -> bool:
    """Returns whether a field is a list or a map."""
    return bool(field.is_repeated)


def is_map(field: Field) -> bool:
    """Returns whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def arrow_type(message: Descriptor) -> pa.DataType:
    """Returns the type of a message.

    Raises:
        InvalidOption: if a field has a type without an equivalent. The error names it.
    """
    return _Types().message(message, (), ())


def mismatch(written: Descriptor, read: Descriptor) -> str | None:
    """Returns the first field with a type of the writer that has other values than the type of the reader.

    >>> from google.protobuf import timestamp_pb2, wrappers_pb2
    >>> mismatch(wrappers_pb2.StringValue.DESCRIPTOR, wrappers_pb2.Int64Value.DESCRIPTOR)
    'value'
    >>> mismatch(wrappers_pb2.Int32Value.DESCRIPTOR, wrappers_pb2.Int64Value.DESCRIPTOR) is None
    True
    >>> mismatch(wrappers_pb2.Int64Value.DESCRIPTOR, wrappers_pb2.Int32Value.DESCRIPTOR)
    'value'
    """
    return _mismatch(written, read, {})


def _mismatch(written: Descriptor, read: Descriptor, found: dict[tuple[str, str], str | None]) -> str | None:
    """Each pair of messages is compared once."""
    pair = (written.full_name, read.full_name)
    if pair not in found:
        found[pair] = None
        found[pair] = _first_mismatch(written, read, found)
    return found[pair]


def _first_mismatch(written: Descriptor, read: Descriptor, found: dict[tuple[str, str], str | None]) -> str | None:
    read_field: Field
    written_field: Field
    for number, read_field in read.fields_by_number.items():
        written_field = written.fields_by_number.get(number)
        if written_field is None:
            continue
        is_wider = read_field.type == written_field.type or read_field.type in _WIDER.get(written_field.type, ())
        if (
            not is_wider
            or is_repeated(written_field) != is_repeated(read_field)
            or is_map(written_field) != is_map(read_field)
        ):
            return str(read_field.name)
        if read_field.message_type is not None:
            nested = _mismatch(written_field.message_type, read_field.message_type, found)
            if nested is not None:
                return f"{read_field.name}.{nested}"
    return None


class _Types:
    """The types of one message."""

    def __init__(self) -> None:
        self._fields = 0

    def message(self, message: Descriptor, path: tuple[str, ...], within: tuple[str, ...]) -> pa.DataType:
        where = f"field '{'.'.join(path)}'" if path else "the message"
        if message.full_name in within:
            raise _no_type(where, message.full_name, "The message contains itself.")
        if not message.fields:
            raise _no_type(where, message.full_name, "The message has no fields.")
        self._fields += len(message.fields)
        if self._fields > _MAX_FIELDS:
            raise _no_type("the message", path[0], f"It has more than {_MAX_FIELDS:,} fields, with those of each use.")
        inner = (*within, message.full_name)
        return pa.struct([(it.name, self._field(it, (*path, it.name), inner)) for it in message.fields])

    def _field(self, field: Field, path: tuple[str, ...], within: tuple[str, ...]) -> pa.DataType:
        if is_map(field):
            key, value = (field.message_type.fields_by_name[it] for it in ("key", "value"))
            return pa.map_(self._one(key, path, within), self._one(value, path, within))
        one = self._one(field, path, within)
        return pa.list_(one) if is_repeated(field) else one

    def _one(self, field: Field, path: tuple[str, ...], within: tuple[str, ...]) -> pa.DataType:
        if field.type == _F.TYPE_GROUP:
            raise _no_type(f"field '{'.'.join(path)}'", "group", "Groups are deprecated.")
        if field.message_type is None:
            return _SCALARS[field.type]
        name = field.message_type.full_name
        if name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        if name == DURATION:
            return pa.duration("us")
        if name in WRAPPERS:
            return _SCALARS[field.message_type.fields_by_name["value"].type]
        return self.message(field.message_type, path, within)


def _no_type(where: str, kind: str, reason: str) -> InvalidOption:
    return InvalidOption(
        f"Protobuf: {where} has the type '{kind}', which has no equivalent in Spark. {reason}",
        remedy="Pass a descriptor set without the field.",
    )
