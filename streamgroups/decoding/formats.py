"""The formats of values: what ``sg.decode`` and ``sg.encode`` receive from users.

Created by users on the driver. Source: Spark's options of JSON; Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamgroups.errors import InvalidOption

#: Options of Spark's JSON functions that this library sets.
_OURS = {"mode": "A malformed value becomes a dead letter.", "columnnameofcorruptrecord": "The value is in the letter."}


class SparkType(Protocol):
    """A ``pyspark.sql.types.StructType``."""

    def simpleString(self) -> str:
        """Returns the type in SQL."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON objects, which Spark decodes and encodes in the JVM.

    Args:
        schema: the fields: columns with their types, as in ``"airport string, delay int"``, or a ``StructType``. A field
            that a value does not have is null. Other fields of a value are ignored. Encoding needs no schema.
        options: more options of Spark's JSON functions, such as ``timestampFormat``.

    Raises:
        InvalidOption: if an option is one that this library sets.

    >>> Json("airport string, delay int").schema
    'airport string, delay int'
    >>> Json("delay int", {"mode": "DROPMALFORMED"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The options of sg.Json contain 'mode'. Remove it. A malformed value becomes a \
dead letter.
    """

    schema: str | SparkType | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.options:
            if name.lower() in _OURS:
                raise InvalidOption(
                    f"The options of sg.Json contain '{name}'.", remedy=f"Remove it. {_OURS[name.lower()]}"
                )
