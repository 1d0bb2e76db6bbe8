"""The values of a processor file, each with its line.

Created by ``streamgroups_spark.processors.yaml_text`` from a file, and by :func:`node_of` from Python objects. The package
reads these trees only, so that an error names its line. Source: the JSON data model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

#: The line of values that come from no file.
NO_LINE = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value.

    Args:
        value: ``None``, a truth value, a number, or a text. A Python object can also contain a function.
        text: the value as it is written, such as ``0o7``. An option of the source receives this text.
        line: the line in the file, from 1; :data:`NO_LINE` without a file.
    """

    value: Any
    text: str
    line: int = NO_LINE


@dataclass(frozen=True, slots=True)
class Items:
    """A list.

    Args:
        items: its values.
        line: see :class:`Scalar`.
    """

    items: tuple[Node, ...]
    line: int = NO_LINE


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a table, with its value.

    Args:
        key: the key, as it is written.
        value: the value.
        line: the line of the key.
    """

    key: str
    value: Node
    line: int = NO_LINE


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping with different keys, in the order of the file.

    Args:
        entries: the keys with their values.
        line: see :class:`Scalar`.
    """

    entries: tuple[Entry, ...]
    line: int = NO_LINE

    def get(self, key: str) -> Node | None:
        """Returns the value of a key; ``None`` without the key."""
        return next((it.value for it in self.entries if it.key == key), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order of the file."""
        return tuple(it.key for it in self.entries)


Node: TypeAlias = Scalar | Items | Table


def plain(node: Node) -> Any:
    """Returns the values without their lines.

    >>> plain(node_of({"by": ["key"], "flush": True}))
    {'by': ['key'], 'flush': True}
    """
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return {it.key: plain(it.value) for it in node.entries}


def node_of(value: Any) -> Node:
    """Returns the tree of a Python object.

    Args:
        value: mappings, sequences, texts, numbers, truth values, ``None``, or any other object as a single value.

    >>> node_of({"n": 1}).get("n")
    Scalar(value=1, text='1', line=0)
    """
    if isinstance(value, Mapping):
        return Table(tuple(Entry(str(key), node_of(it)) for key, it in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return Items(tuple(node_of(it) for it in value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(value, text)
