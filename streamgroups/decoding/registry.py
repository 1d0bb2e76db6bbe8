"""The schema registry: its settings, and what codecs need from it.

``SchemaRegistry`` is created by users on the driver, and Spark pickles it to the tasks.
``streamgroups_kafka.schema_registry`` connects to it. Source: the REST API and the settings of Confluent's Schema
Registry, which Karapace and Apicurio have too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from streamgroups.connections.config_file import connection_named, resolver
from streamgroups.connections.explicit_options import with_explicit
from streamgroups.connections.references import Setting, resolved
from streamgroups.connections.variants import SchemaRegistryConnection
from streamgroups.errors import InvalidOption
from streamgroups.option_values import canonical

_PREFIX = "schema.registry."
#: Settings of the client, and whether they are numbers.
_SETTINGS = {
    "basic.auth.user.info": False,
    "bearer.auth.credentials.source": False,
    "bearer.auth.token": False,
    "bearer.auth.logical.cluster": False,
    "bearer.auth.identity.pool.id": False,
    "bearer.auth.client.id": False,
    "bearer.auth.client.secret": False,
    "bearer.auth.scope": False,
    "bearer.auth.issuer.endpoint.url": False,
    "ssl.ca.location": False,
    "ssl.certificate.location": False,
    "ssl.key.location": False,
    "ssl.key.password": False,
    "proxy": False,
    "timeout": True,
    "max.retries": True,
    "retries.wait.ms": True,
    "retries.max.wait.ms": True,
    "cache.capacity": True,
}
#: The largest id of a schema: an ``Integer`` of Java in Confluent's REST API. The wire format has space for larger ones.
MAX_SCHEMA_ID = 2**31 - 1
#: The client itself waits indefinitely.
_DEFAULTS: Mapping[str, float] = {"timeout": 30}


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry with Confluent's REST API: that of Confluent, Karapace, Apicurio or Redpanda.

    Args:
        url: its URL, or several ones of the same registry, separated by commas. With a connection it can be left out.
        settings: more settings of Confluent's client by their names, such as ``basic.auth.user.info``. Their values are
            never shown.
        connection: the name of a connection of type ``schema-registry``. Driver and tasks resolve its secrets.

    Raises:
        InvalidOption: if a setting is unknown or malformed, or contradicts the connection.

    >>> SchemaRegistry("http://registry.example:8081", {"basic.auth.user.info": "carol:hunter2"})
    SchemaRegistry(url='http://registry.example:8081')
    >>> SchemaRegistry("http://carol:hunter2@registry.example:8081")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The URL of the schema registry contains a login. Set \
settings={'basic.auth.user.info': '<user>:<password>'} instead.
    """

    url: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    connection: str | SchemaRegistryConnection | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.connection is not None:
            found = self.connection
            if isinstance(found, str):
                found = connection_named(found, SchemaRegistryConnection)
            if self.url:
                with_explicit(found, {"url": found.url}, {"url": self.url})
            # With its references, so that the tasks do not need the file.
            object.__setattr__(self, "connection", found)
            object.__setattr__(self, "url", found.url)
        _check_urls(self.url, self.urls)
        for name, value in self._settings().items():
            if _SETTINGS[name] and isinstance(value, str):
                _number(name, value)

    def __hash__(self) -> int:
        return hash((self.url, self.connection, *sorted(self.settings.items())))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the registry."""
        return tuple(url.strip() for url in self.url.split(","))

    def configuration(self) -> dict[str, str | float]:
        """Returns the settings of Confluent's client, with secrets, in the process that connects.

        Raises:
            InvalidOption: if a secret of the connection cannot be resolved here.
        """
        known: dict[str, str | float] = {"url": self.url, **_DEFAULTS}
        here, connection = resolver(), getattr(self.connection, "name", "")
        for name, setting in self._settings().items():
            value = resolved(setting, connection, name, here)
            known[name] = _number(name, value) if _SETTINGS[name] else value
        return known

    def _settings(self) -> dict[str, Setting]:
        """The settings by their names, with the references of the connection."""
        explicit = {_name(given): str(value) for given, value in self.settings.items()}
        if not isinstance(self.connection, SchemaRegistryConnection):
            return {**explicit}
        own = {_name(given): setting for given, setting in self.connection.settings.items()}
        return with_explicit(self.connection, own, explicit)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a registry.

    Args:
        id: its id.
        type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: Avro and JSON: the schema. Protobuf: the file descriptor in base64.
        references: the schemas that it refers to, by name, each after those that it refers to.
    """

    id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaSource(Protocol):
    """Returns schemas by their ids."""

    def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
        """Returns the schema with an id; ``None`` if the registry has no such schema.

        Args:
            schema_id: the id.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``, because the registry has several forms of a schema.

        Raises:
            RegistryUnreachable: if the registry does not answer.
        """


def _check_urls(given: str, urls: tuple[str, ...]) -> None:
    # A password can contain a comma, so the login is searched before the URLs are split.
    if "@" in given:
        raise InvalidOption(
            "The URL of the schema registry contains a login.",
            remedy="Set settings={'basic.auth.user.info': '<user>:<password>'} instead.",
        )
    for url in urls:
        try:
            parts = urlsplit(url)
            is_complete = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_complete = False
        if not is_complete:
            raise InvalidOption(
                f"The URL of the schema registry is '{url}'.", remedy="Write it as in http://localhost:8081."
            )


def _name(given: str) -> str:
    return canonical(given.removeprefix(_PREFIX), _SETTINGS, unknown="is no setting of a schema registry")


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
        if not 0 <= number < float("inf"):
            raise ValueError
    except ValueError:
        # The value can be that of another setting, a secret.
        raise InvalidOption(
            f"Setting '{name}' of the schema registry is no number of 0 or more.", remedy="Set a number."
        ) from None
    return int(number) if number.is_integer() else number
