"""The formats of values: what ``sg.decode`` and ``sg.encode`` receive from users.

Created by users on the driver. Source: Spark's options of JSON; Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import InvalidOption

#: Options of Spark's JSON functions that this library sets.
_OWN_OPTIONS = {
    "mode": "A malformed value becomes a dead letter.",
    "columnnameofcorruptrecord": "The value is in the letter.",
}


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
    streamgroups.errors.InvalidOption: The options of sg.schemas.Json contain 'mode'. Remove it. A malformed value becomes a \
dead letter.
    """

    schema: str | SparkType | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.options:
            if name.lower() in _OWN_OPTIONS:
                raise InvalidOption(
                    f"The options of sg.schemas.Json contain '{name}'.",
                    remedy=f"Remove it. {_OWN_OPTIONS[name.lower()]}",
                )


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro records: with the id of a schema in a registry before each value, or without a registry.

    Args:
        schema: the schema of the column, as JSON: the *reader's schema*. Without a registry it is also the schema that
            wrote the values. ``None``: the latest schema of ``subject``, when the query starts.
        registry: the registry that has the schemas of the values. ``None``: values have no schema id.
        subject: the subject of the registry, such as ``flights-value``. :func:`encode` needs it.
        register: whether the tasks of :func:`encode` register ``schema``. By default it must be registered.

    Raises:
        InvalidOption: if arguments are missing or contradict each other.

    >>> Avro(registry=SchemaRegistry("http://localhost:8081"), subject="flights-value").subject
    'flights-value'
    >>> Avro()
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: sg.schemas.Avro has neither a schema nor a registry. Pass schema='{...}', or \
registry=sg.schemas.SchemaRegistry(...) and subject='<topic>-value'.
    """

    schema: str | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None
    register: bool = False

    def __post_init__(self) -> None:
        _check_registered(
            "sg.schemas.Avro", "schema='{...}'", self.schema, self.registry, self.subject, register=self.register
        )


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Protobuf messages: with the id of a schema in a registry before each value, or without a registry.

    Args:
        message: the full name of the message, such as ``board.Flight``. ``None``: the first message of the subject.
        descriptor_set: the reader's schema: the output of ``protoc --include_imports --descriptor_set_out=FILE``.
            ``None``: the latest schema of ``subject``, when the query starts.
        registry: the registry that has the schemas of the values. ``None``: values have no schema id.
        subject: the subject of the registry, such as ``flights-value``. :func:`encode` needs it, and uses its latest
            schema.

    Raises:
        InvalidOption: if arguments are missing or contradict each other.

    >>> Protobuf("board.Flight")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: sg.schemas.Protobuf has neither a schema nor a registry. Pass descriptor_set=..., or \
registry=sg.schemas.SchemaRegistry(...) and subject='<topic>-value'.
    """

    message: str | None = None
    descriptor_set: bytes | None = field(default=None, repr=False)
    registry: SchemaRegistry | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        if self.descriptor_set is not None and not isinstance(self.descriptor_set, bytes):
            raise InvalidOption(
                "The descriptor set of sg.schemas.Protobuf is not bytes.",
                remedy="Pass the content of the file, as in open('board.desc', 'rb').read().",
            )
        given, example = self.descriptor_set, "descriptor_set=..."
        _check_registered("sg.schemas.Protobuf", example, given, self.registry, self.subject, register=False)
        if self.descriptor_set is not None and self.message is None:
            raise InvalidOption(
                "sg.schemas.Protobuf has a descriptor set, but not the name of a message.",
                remedy="Pass message, such as message='board.Flight'.",
            )


def _check_registered(
    called: str, example: str, schema: object, registry: SchemaRegistry | None, subject: str | None, *, register: bool
) -> None:
    if schema is None and registry is None:
        raise InvalidOption(
            f"{called} has neither a schema nor a registry.",
            remedy=f"Pass {example}, or registry=sg.schemas.SchemaRegistry(...) and subject='<topic>-value'.",
        )
    if registry is None and (subject is not None or register):
        raise InvalidOption(
            f"{called} has a subject but no registry.", remedy="Pass registry=sg.schemas.SchemaRegistry(...)."
        )
    if schema is None and subject is None:
        raise InvalidOption(
            f"{called} has neither a schema nor a subject.",
            remedy=f"Pass {example}, or subject='<topic>-value' for the latest schema.",
        )
    if register and (schema is None or subject is None):
        raise InvalidOption(
            f"{called} cannot register a schema without 'schema' and 'subject'.", remedy="Pass both, or register=False."
        )
