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
        url: its URL, or several ones of the same registry, separated by commas.
        settings: more settings of Confluent's client by their names, such as ``basic.auth.user.info``. Their values are
            never shown.

    Raises:
        InvalidOption: if a setting is unknown or malformed.

    >>> SchemaRegistry("http://registry.example:8081", {"basic.auth.user.info": "carol:hunter2"})
    SchemaRegistry(url='http://registry.example:8081')
    >>> SchemaRegistry("http://carol:hunter2@registry.example:8081")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The URL of the schema registry contains a login. Set \
settings={'basic.auth.user.info': '<user>:<password>'} instead.
    """

    url: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check_urls(self.url, self.urls)
        self.configuration()

    def __hash__(self) -> int:
        return hash((self.url, *sorted(self.settings.items())))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the registry."""
        return tuple(url.strip() for url in self.url.split(","))

    def configuration(self) -> dict[str, str | float]:
        """Returns the settings of Confluent's client, with secrets."""
        known: dict[str, str | float] = {"url": self.url, **_DEFAULTS}
        for given, value in self.settings.items():
            name = canonical(given.removeprefix(_PREFIX), _SETTINGS, unknown="is no setting of a schema registry")
            known[name] = _number(name, value) if _SETTINGS[name] else str(value)
        return known


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
