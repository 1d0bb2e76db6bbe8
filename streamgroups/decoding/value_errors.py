"""Why a value cannot be decoded, encoded or accepted: the classes of errors in dead letters.

Used by ``streamgroups_schemas`` and ``streamgroups_spark.decoding``. ``docs/decoding.rst`` lists them. A value that
cannot be decoded is not an error of the query: it becomes a dead letter (SEMANTICS P4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

#: Values of records appear in errors. More characters would make letters long.
_MAX_TEXT = 500


class Kind(Enum):
    """The class of an error. The value is the ``error_class`` of the letter."""

    EMPTY = "EmptyValue"
    NOT_UTF8 = "NotUtf8"
    MALFORMED = "Malformed"
    NOT_AN_OBJECT = "NotAnObject"
    TRAILING = "TrailingBytes"
    FIELD_TYPE = "FieldType"
    NO_MAGIC_BYTE = "NoMagicByte"
    UNKNOWN_SCHEMA = "UnknownSchemaId"
    SCHEMA_MISMATCH = "SchemaMismatch"
    OUT_OF_RANGE = "OutOfRange"
    INVALID = "InvalidDocument"
    NOT_ENCODABLE = "NotEncodable"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one value is a dead letter.

    Args:
        kind: the class.
        text: one sentence for people.
        details: more facts, such as the id of the schema.
    """

    kind: Kind
    text: str
    details: Mapping[str, str] = field(default_factory=dict)


class CannotDecode(Exception):
    """Raised and caught inside a codec: this value becomes a letter.

    Args:
        kind: the class of the error.
        text: one sentence for people.
        details: more facts.
    """

    def __init__(self, kind: Kind, text: str, **details: str) -> None:
        super().__init__(text)
        self.problem = Problem(kind, shortened(text), details)


def shortened(text: str) -> str:
    """Returns a text of at most 500 characters.

    >>> len(shortened("x" * 1000))
    500
    """
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
