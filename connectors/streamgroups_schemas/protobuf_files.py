"""Files of Protobuf schemas: those of a descriptor set or a registry, and those that clients of registries have themselves.

Called by ``protobuf_types``. Source: Confluent's ``ProtobufSchema`` (``KNOWN_DEPENDENCIES``); the files are those of the
installed Protobuf, and ``known_protos.json`` for ``google/type`` and ``confluent``.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from streamgroups.errors import InvalidOption

#: Files that a schema imports: names and descriptors in base64, each after those that it imports.
References = tuple[tuple[str, str], ...]
_OWN_NAME = "streamgroups.schema.proto"
_OF_PROTOBUF = re.compile(r"google/protobuf/(?:compiler/)?[a-z_]{1,40}\.proto")
_KNOWN = Path(__file__).with_name("known_protos.json")


@lru_cache(maxsize=1000)
def registered_file(text: str, references: References = ()) -> Any:
    """Returns the file descriptor of a schema in a registry.

    Args:
        text: the descriptor in base64.
        references: the files that it imports.

    Raises:
        InvalidOption: if it is no descriptor, or imports a file that is no reference.
    """
    try:
        files = {name: _proto(reference, name) for name, reference in references if not _of_protobuf(name)}
        files[_OWN_NAME] = _proto(text, _OWN_NAME)
        return _pool(files).FindFileByName(_OWN_NAME)
    except (binascii.Error, ValueError, DecodeError, TypeError, KeyError) as e:
        raise _not_a_descriptor(e) from None


def message_of_set(descriptor_set: bytes, name: str) -> Descriptor:
    """Returns a message of the output of ``protoc --include_imports --descriptor_set_out``.

    Raises:
        InvalidOption: if the set is malformed, or does not have the message.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as e:
        raise _not_a_descriptor(e) from None
    try:
        return _pool({it.name: it for it in files}).FindMessageTypeByName(name)
    except (KeyError, TypeError) as e:
        names = sorted(f"{it.package}.{m.name}".lstrip(".") for it in files for m in it.message_type)
        raise InvalidOption(
            f"The descriptor set has no message '{name}': {e}.",
            remedy=f"Its messages are: {', '.join(names)}. Create it with protoc --include_imports.",
        ) from None


def with_open_enums(message: Descriptor) -> Descriptor:
    """Returns a message with the same bytes that has numbers instead of enums.

    Protobuf drops unknown numbers of a closed enum: a field is missing, and a list is shorter.
    """
    files: dict[str, Any] = {}
    left = [message.file]
    while left:
        file = left.pop()
        if file.name in files:
            continue
        files[file.name] = proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        left.extend(file.dependencies)
        for it in proto.message_type:
            _open(it)
    return _pool(files).FindMessageTypeByName(message.full_name)


def _open(message: Any) -> None:
    for field in message.field:
        if field.type == field.TYPE_ENUM:
            field.type = field.TYPE_INT32
            field.ClearField("type_name")
            field.ClearField("default_value")
    for it in message.nested_type:
        _open(it)


def _pool(files: Mapping[str, Any]) -> descriptor_pool.DescriptorPool:
    """Returns a pool with these files, each after those that it imports."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        proto = files.get(name) or _known(name)
        if proto is None:
            raise KeyError(f"the file {name}, which is imported, is missing")
        for it in proto.dependency:
            add(it)
        pool.Add(proto)

    for name in files:
        add(name)
    return pool


def _known(name: str) -> Any:
    if not _of_protobuf(name):
        return _known_files().get(name)
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    proto = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(module).DESCRIPTOR.CopyToProto(proto)
    return proto


def _of_protobuf(name: str) -> bool:
    """Returns whether the installed Protobuf has a file."""
    if not _OF_PROTOBUF.fullmatch(name):
        return False
    try:
        return importlib.util.find_spec(name.removesuffix(".proto").replace("/", ".") + "_pb2") is not None
    except ImportError:
        return False


@lru_cache(maxsize=1)
def _known_files() -> dict[str, Any]:
    found = json.loads(_KNOWN.read_text(encoding="utf-8"))
    return {it["name"]: json_format.ParseDict(it, descriptor_pb2.FileDescriptorProto()) for it in found}


def _proto(text: str, name: str) -> Any:
    proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    proto.name = name
    return proto


def _not_a_descriptor(error: Exception) -> InvalidOption:
    return InvalidOption(
        f"The Protobuf schema is no descriptor: {type(error).__name__}: {error}.",
        remedy="The registry must support the parameter format=serialized. Or pass a descriptor set of protoc.",
    )
