"""All connections of one file, by their names.

``streamgroups.connections.parsing`` creates them, and the option ``connection`` names one. Source: ``kubectl config``, from
which the current context is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamgroups.connections.references import FromConnections
from streamgroups.connections.variants import Connection, references_of
from streamgroups.errors import InvalidOption
from streamgroups.similar_names import nearest

_CREATE = "Create it there, or: streamgroups connections set. STREAMGROUPS_CONFIG names the file."
_Variant = TypeVar("_Variant", bound=Connection)


@dataclass(frozen=True, slots=True)
class Connections:
    """The content of a file of connections.

    Args:
        named: each connection by its name.
        current: the name of the current context: the Kafka connection of commands that name no cluster. ``None`` without
            one.
        path: the path of the file, for errors.
        missing: why the path of the file is unknown. A use of a connection raises it. ``None`` if the path is known.
    """

    named: Mapping[str, Connection] = field(default_factory=dict)
    current: str | None = None
    path: str = ""
    missing: InvalidOption | None = None

    def get(self, name: str) -> Connection:
        """Returns a connection.

        Raises:
            InvalidOption: if it does not exist, or the path of the file is unknown. The error contains the nearest name.

        >>> from streamgroups.connections.variants import KafkaConnection
        >>> Connections({"prod": KafkaConnection("prod")}, path="/etc/streamgroups.toml").get("prdo")
        Traceback (most recent call last):
        streamgroups.errors.InvalidOption: Connection 'prdo' does not exist in /etc/streamgroups.toml. Did you mean 'prod'?
        """
        if self.missing is not None:
            raise self.missing.with_text(f"Connection '{name}' is unknown. {self.missing.what}", self.missing.remedy)
        if name not in self.named:
            where = f" in {self.path}" if self.path else ""
            raise InvalidOption(
                f"Connection '{name}' does not exist{where}.",
                remedy=nearest(name, self.named, otherwise=None if self.named else _CREATE),
            )
        return self.named[name]

    def typed(self, name: str, variant: type[_Variant]) -> _Variant:
        """Returns a connection of one type.

        Args:
            name: its name.
            variant: the type.

        Raises:
            InvalidOption: if it does not exist, or is of another type.

        >>> from streamgroups.connections.variants import KafkaConnection, PostgresConnection
        >>> Connections({"prod": KafkaConnection("prod")}).typed("prod", PostgresConnection)
        Traceback (most recent call last):
        streamgroups.errors.InvalidOption: Connection 'prod' is of type kafka, but type postgres is required here. Name \
another connection.
        """
        found = self.get(name)
        if not isinstance(found, variant):
            others = sorted(it.name for it in self.named.values() if isinstance(it, variant))
            raise InvalidOption(
                f"Connection '{name}' is of type {found.type}, but type {variant.type} is required here.",
                remedy=f"Use one of: {', '.join(others)}." if others else "Name another connection.",
            )
        return found

    @property
    def has_plain_secrets(self) -> bool:
        """Whether the file contains secrets in plain text."""
        return any(
            isinstance(it, FromConnections) for found in self.named.values() for it in references_of(found).values()
        )
