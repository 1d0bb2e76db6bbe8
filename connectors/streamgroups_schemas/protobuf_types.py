"""Protobuf schemas: descriptors, the Arrow type of a message, and whether two versions of a message fit.

Called by ``protobuf_values`` and ``streamgroups_spark.decoding``. Source: the Protobuf language guide ("Updating A Message
Type") and "Well-Known Types"; Confluent's serializer for schemas in a registry.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from streamgroups.errors import InvalidOption

_WELL_KNOWN = (
    any_pb2,
    source_context_pb2,
    type_pb2,
    api_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
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
#: Types of one group can replace each other.
_SAME_BYTES = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "varint"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "zigzag"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "fixed64"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "bytes"),
}

#: A ``FieldDescriptor``. Its type of a message or enum is set for some kinds of fields only, which type checkers ignore.
Field: TypeAlias = Any
#: Files that a schema imports: names and descriptors in base64, each after those that it imports.
References = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1000)
def registered_file(text: str, references: References = ()) -> Any:
    """Returns the file descriptor of a schema in a registry.

    Args:
        text: the descriptor in base64.
        references: the files that it imports.

    Raises:
        InvalidOption: if it is no descriptor.
    """
    pool = _pool()
    for name, reference in references:
        if not name.startswith("google/protobuf/"):
            _add(pool, reference, name)
    return _add(pool, text, "streamgroups.schema.proto")


def message_of_set(descriptor_set: bytes, name: str) -> Descriptor:
    """Returns a message of the output of ``protoc --include_imports --descriptor_set_out``.

    Raises:
        InvalidOption: if the set is malformed, or does not have the message.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as e:
        raise _not_a_descriptor(e) from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as e:
        names = sorted(f"{it.package}.{m.name}".lstrip(".") for it in files for m in it.message_type)
        raise InvalidOption(
            f"The descriptor set has no message '{name}': {e}.",
            remedy=f"Its messages are: {', '.join(names)}. Create it with protoc --include_imports.",
        ) from None


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


def arrow_type(message: Descriptor, path: tuple[str, ...] = (), within: tuple[str, ...] = ()) -> pa.DataType:
    """Returns the type of a message.

    Args:
        message: the message.
        path: the field that has this type, for errors.
        within: the messages that contain it.

    Raises:
        InvalidOption: if a field has a type without an equivalent. The error names it.
    """
    where = f"field '{'.'.join(path)}'" if path else "the message"
    if message.full_name in within:
        raise _no_type(where, message.full_name, "The message contains itself.")
    if not message.fields:
        raise _no_type(where, message.full_name, "The message has no fields.")
    inner = (*within, message.full_name)
    return pa.struct([(it.name, _field_type(it, (*path, it.name), inner)) for it in message.fields])


def mismatch(written: Descriptor, read: Descriptor, seen: frozenset[str] = frozenset()) -> str | None:
    """Returns the first field that a reader would ignore silently, because the writer has given its number another type.

    >>> from google.protobuf import timestamp_pb2, wrappers_pb2
    >>> mismatch(wrappers_pb2.StringValue.DESCRIPTOR, wrappers_pb2.Int64Value.DESCRIPTOR)
    'value'
    >>> mismatch(wrappers_pb2.Int32Value.DESCRIPTOR, wrappers_pb2.Int64Value.DESCRIPTOR) is None
    True
    """
    if read.full_name in seen:
        return None
    ours: Field
    theirs: Field
    for number, ours in read.fields_by_number.items():
        theirs = written.fields_by_number.get(number)
        if theirs is None:
            continue
        bytes_of = [_SAME_BYTES.get(it.type, it.type) for it in (theirs, ours)]
        if bytes_of[0] != bytes_of[1] or is_repeated(theirs) != is_repeated(ours):
            return str(ours.name)
        if ours.message_type is not None:
            nested = mismatch(theirs.message_type, ours.message_type, seen | {read.full_name})
            if nested is not None:
                return f"{ours.name}.{nested}"
    return None


def _field_type(field: Field, path: tuple[str, ...], within: tuple[str, ...]) -> pa.DataType:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[it] for it in ("key", "value"))
        return pa.map_(_one_type(key, path, within), _one_type(value, path, within))
    one = _one_type(field, path, within)
    return pa.list_(one) if is_repeated(field) else one


def _one_type(field: Field, path: tuple[str, ...], within: tuple[str, ...]) -> pa.DataType:
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
    return arrow_type(field.message_type, path, within)


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool


def _add(pool: descriptor_pool.DescriptorPool, text: str, name: str) -> Any:
    try:
        proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        proto.name = name
        pool.Add(proto)
        return pool.FindFileByName(name)
    except (binascii.Error, ValueError, DecodeError, TypeError, KeyError) as e:
        raise _not_a_descriptor(e) from None


def _not_a_descriptor(error: Exception) -> InvalidOption:
    return InvalidOption(
        f"The Protobuf schema is no descriptor: {type(error).__name__}: {error}.",
        remedy="The registry must support the parameter format=serialized. Or pass a descriptor set of protoc.",
    )


def _no_type(where: str, kind: str, reason: str) -> InvalidOption:
    return InvalidOption(
        f"Protobuf: {where} has the type '{kind}', which has no equivalent in Spark. {reason}",
        remedy="Pass a descriptor set without the field.",
    )
