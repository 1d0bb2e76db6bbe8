"""Requests to a schema registry, by Confluent's client.

Called by ``streamgroups_spark.decoding``, on the driver and in tasks. A process has one client for each registry, which
caches schemas. Source: ``confluent_kafka.schema_registry``; the errors of Confluent's REST API.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from streamgroups.decoding.registry import RegisteredSchema, SchemaRegistry
from streamgroups.errors import InvalidOption, NotAuthorized, RegistryUnreachable, SchemaRejected, StreamGroupsError
from streamgroups.extras import explained

_T = TypeVar("_T")

#: Error codes of the REST API.
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
#: Statuses of an overloaded or restarting registry.
_PASSING = (408, 429)
#: Protobuf: a descriptor instead of the text of the file, which this library does not parse.
_FORM = {"PROTOBUF": "serialized"}
_MAX_TEXT = 300


class RegistryClient:
    """A connection to one registry.

    Args:
        registry: its URL and settings.

    Raises:
        InvalidOption: if Confluent's client rejects a setting.
        MissingExtra: if a package of the extra ``registry`` is not installed.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as e:
            raise explained(e, "sg.SchemaRegistry") from e
        self._url = registry.url
        self._secrets = [str(value) for value in registry.settings.values() if len(str(value)) > 1]
        try:
            self._client: Any = SchemaRegistryClient(registry.configuration())
        except (ValueError, TypeError, OSError) as e:
            raise InvalidOption(
                f"The settings of the schema registry '{self._url}' are rejected: {self._text(e)}.",
                remedy="Correct the settings of sg.SchemaRegistry.",
            ) from None

    def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
        """Returns the schema with an id; ``None`` if the registry has no such schema.

        Args:
            schema_id: the id.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """
        try:
            schema = self._call(lambda: self._client.get_schema(schema_id, fmt=_FORM.get(kind)))
        except _Absent:
            return None
        return self._registered(schema_id, schema, kind)

    def latest(self, subject: str, kind: str) -> RegisteredSchema:
        """Returns the latest schema of a subject.

        Raises:
            SchemaRejected: if the subject has none.
        """
        try:
            found = self._call(lambda: self._client.get_latest_version(subject, fmt=_FORM.get(kind)))
        except _Absent:
            raise SchemaRejected(
                f"The registry '{self._url}' has no subject '{subject}'.",
                remedy="Correct 'subject'. Its name is usually '<topic>-value'.",
            ) from None
        return self._registered(found.schema_id, found.schema, kind)

    def id_of(self, subject: str, kind: str, text: str, *, register: bool) -> int:
        """Returns the id of a schema in a subject.

        Args:
            subject: the subject.
            kind: the type of the schema.
            text: the schema.
            register: whether it is registered if the subject does not have it.

        Raises:
            SchemaRejected: if the subject does not have it, or it is not compatible with the subject.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        try:
            if register:
                return int(self._call(lambda: self._client.register_schema(subject, schema)))
            return int(self._call(lambda: self._client.lookup_schema(subject, schema)).schema_id)
        except _Absent:
            raise SchemaRejected(
                f"Subject '{subject}' of the registry '{self._url}' does not have this schema.",
                remedy="Register it, or pass register=True.",
            ) from None

    def _registered(self, schema_id: int, schema: Any, kind: str) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._add_references(schema, kind, references)
        return RegisteredSchema(schema_id, schema.schema_type or "AVRO", schema.schema_str, tuple(references.items()))

    def _add_references(self, schema: Any, kind: str, found: dict[str, str]) -> None:
        for it in schema.references or ():
            if it.name in found:
                continue
            version = self._call(
                lambda it=it: self._client.get_version(it.subject, it.version, True, _FORM.get(kind))  # type: ignore[misc]
            )
            self._add_references(version.schema, kind, found)
            found[it.name] = version.schema.schema_str

    def _call(self, request: Callable[[], _T]) -> _T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as e:
            raise self._error(e) from None
        except (_Absent, StreamGroupsError):
            raise
        except Exception as e:
            # Network errors of the HTTP client, and answers that are no JSON of a registry.
            raise RegistryUnreachable(
                f"The schema registry '{self._url}' did not answer: {type(e).__name__}: {self._text(e)}.",
                remedy="Check its URL and that it runs.",
            ) from None

    def _error(self, error: Any) -> Exception:
        status, code, text = error.http_status_code, error.error_code, self._text(error.error_message)
        if code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
            return _Absent()
        if status in (401, 403):
            return NotAuthorized(
                f"The schema registry '{self._url}' rejected the login: {text}.",
                remedy="Set 'basic.auth.user.info' or 'bearer.auth.token' in the settings of sg.SchemaRegistry.",
            )
        if status >= 500 or status in _PASSING:
            return RegistryUnreachable(
                f"The schema registry '{self._url}' failed with HTTP status {status}: {text}.",
                remedy="Try again later.",
            )
        return SchemaRejected(
            f"The schema registry '{self._url}' rejected a request with HTTP status {status}: {text}.",
            remedy="For 409 the schema is not compatible with its subject. For 404 correct the URL.",
        )

    def _text(self, what: object) -> str:
        text = str(what).strip().rstrip(".")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:_MAX_TEXT]


class _Absent(Exception):
    """The registry does not have the subject, the version or the id."""


@lru_cache(maxsize=16)
def client_of(registry: SchemaRegistry) -> RegistryClient:
    """Returns the client of this process. Tasks of one worker share it, and its cache of schemas."""
    return RegistryClient(registry)
