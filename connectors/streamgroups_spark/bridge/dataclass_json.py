"""Encodes dataclasses as JSON, and decodes them by their annotations.

``bridge.rpc`` encodes its messages with it, and ``streamgroups_cli.cursors`` the messages of an instance. Only classes that the
expected type names are created, unlike with pickle. A dataclass becomes an object with the name of its class, an enum its value,
bytes base64, tuples and sets an array, and a mapping an object, or an array of pairs if its keys are no strings.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_CLASS = "class"


def to_json(value: Any) -> Any:
    """Returns the JSON value of a dataclass, or of a value of its fields.

    >>> from streamgroups.partitions import OffsetRange, TopicPartition
    >>> to_json(TopicPartition("flights", 3))
    {'class': 'TopicPartition', 'topic': 'flights', 'partition': 3}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {_CLASS: type(value).__name__} | {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: to_json(it) for key, it in value.items()}
        return [[to_json(key), to_json(it)] for key, it in value.items()]
    if isinstance(value, tuple | list | frozenset):
        return [to_json(it) for it in value]
    return value


def from_json(document: Any, expected: Any) -> Any:
    """Returns the value of a type from its JSON value.

    Args:
        document: the JSON value.
        expected: the type: a dataclass, a union, or the annotation of a field.

    Raises:
        ValueError: if the document names a class that is not expected.

    >>> from streamgroups.event_time.watermark import At, Watermark
    >>> from_json(to_json(At(5)), Watermark)
    At(time_ms=5)
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if document is None or expected is Any:
        return document
    if origin in (Union, UnionType):
        return from_json(document, _member(document, arguments))
    if origin is tuple and arguments[-1] is not ...:
        return tuple(map(from_json, document, arguments))
    if origin in (tuple, frozenset):
        return origin(from_json(it, arguments[0]) for it in document)
    if origin is Mapping:
        pairs = document.items() if isinstance(document, dict) else document
        return {from_json(key, arguments[0]): from_json(it, arguments[1]) for key, it in pairs}
    if isinstance(expected, type) and is_dataclass(expected):
        _member(document, (expected,))
        hints = _hints(expected)
        return expected(**{name: from_json(it, hints[name]) for name, it in document.items() if name != _CLASS})
    if issubclass(expected, Enum):
        return expected(document)
    return base64.b64decode(document) if expected is bytes else document


def _member(document: Any, types: tuple[Any, ...]) -> Any:
    """The type of a union that a document belongs to."""
    if not isinstance(document, dict) or _CLASS not in document:
        others = [it for it in types if it is not NoneType and not is_dataclass(it)]
        return others[0] if len(others) == 1 else Any
    for it in types:
        if isinstance(it, type) and is_dataclass(it) and it.__name__ == document[_CLASS]:
            return it
    raise ValueError(f"{document[_CLASS]!r} is not an expected message")


@lru_cache(maxsize=256)
def _hints(of: Any) -> dict[str, Any]:
    return get_type_hints(of)
