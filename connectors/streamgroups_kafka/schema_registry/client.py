"""Requests to a schema registry, by Confluent's client.

Called by ``streamgroups_spark.decoding``. A client caches schemas, and for some seconds the ids that the registry does not
have. The driver creates a new client for each build of a query. The tasks of a process share one for some minutes. Source:
``confluent_kafka.schema_registry``; the errors of Confluent's REST API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from streamgroups.decoding.registry import MAX_SCHEMA_ID, RegisteredSchema, SchemaRegistry
from streamgroups.errors import (
    InvalidOption,
    LoginRejected,
    NotAuthorized,
    RegistryUnreachable,
    SchemaRejected,
    StreamGroupsError,
)
from streamgroups.extras import explained

_T = TypeVar("_T")

#: Error codes of the REST API: no such subject, version, schema.
_NO_SUCH = (40401, 40402, 40403)
#: Statuses that concern the id in the URL of a schema. Confluent's JAX-RS answers some ids itself, with other error codes.
_ABOUT_THE_ID = (404, 422)
#: Statuses of an overloaded or restarting registry.
_PASSING = (408, 429)
#: Protobuf: a descriptor instead of the text of the file, which this library does not parse. Confluent's registry fails with
#: the status 500 for a JSON Schema in this form, so the type of a schema is requested first.
_FORM = {"PROTOBUF": "serialized"}
_MAX_TEXT = 300
#: A producer chooses the ids in its values, so unknown ones are remembered: at most these, and for this time.
_MAX_UNKNOWN_IDS = 100_000
_UNKNOWN_S = 10.0
#: How long tasks share a client. Confluent's client never requests a schema again. A restored registry can have other schemas
#: for its ids, and a deleted version can be registered again.
_MAX_AGE_S = 300.0


class RegistryClient:
    """A connection to one registry. As a context manager it is closed at the end.

    Args:
        registry: its URL and settings.
        timer: a steady clock, in seconds.

    Raises:
        InvalidOption: if Confluent's client rejects a setting, or a secret of the connection cannot be resolved here.
        MissingExtra: if a package of the extra ``registry`` is not installed.
    """

    def __init__(self, registry: SchemaRegistry, *, timer: Callable[[], float] = time.monotonic) -> None:
        try:
            from cachetools import TTLCache
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as e:
            raise explained(e, "sg.schemas.SchemaRegistry") from e
        configuration = registry.configuration()
        self._url = registry.url
        self._secrets = secrets_of(configuration)
        try:
            # One for each form of schemas, because its cache does not distinguish them. The second one is created when needed.
            self._new_client: Callable[[], Any] = lambda: SchemaRegistryClient(configuration)
            self._clients: dict[str | None, Any] = {None: self._new_client()}
        except (ValueError, TypeError, OSError) as e:
            raise InvalidOption(
                f"The settings of the schema registry '{self._url}' are rejected: {self._text(e)}.",
                remedy="Correct the settings of sg.schemas.SchemaRegistry.",
            ) from None
        self._timer, self._renewed_s = timer, timer()
        self._has_answered = False
        #: Whether the registry has rejected its login or its rights.
        self.is_rejected = False
        self._unknown: Any = TTLCache(_MAX_UNKNOWN_IDS, _UNKNOWN_S, timer)
        self._lock = threading.Lock()

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def is_current(self) -> bool:
        """Whether tasks continue to use this client: it is less than five minutes old, and the registry has rejected neither
        its login nor its rights.
        """
        return not self.is_rejected and self._timer() - self._renewed_s < _MAX_AGE_S

    def renew(self) -> None:
        """Extends its use by five minutes."""
        self._renewed_s = self._timer()

    def is_reachable(self) -> bool:
        """Sends a request. Returns whether the registry answers, with a result or a rejection."""
        try:
            self._call(None, lambda client: client.get_schema_types())
        except RegistryUnreachable:
            return False
        except (_Absent, StreamGroupsError):
            # A rejection is an answer too.
            pass
        return True

    def by_id(self, schema_id: int, kind: str) -> RegisteredSchema | None:
        """Returns the schema with an id; ``None`` if the registry has no such schema, or not all of its references.

        An id that the registry does not have is not requested again for ten seconds.

        Args:
            schema_id: the id.
            kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        """
        # Registries count ids as integers of 32 bits, and reject larger ones as malformed.
        if not 0 <= schema_id <= MAX_SCHEMA_ID:
            return None
        with self._lock:
            if schema_id in self._unknown:
                return None
        form = _FORM.get(kind)
        try:
            schema = self._call(None, lambda client: client.get_schema(schema_id), about=_ABOUT_THE_ID)
            if schema.schema_type != kind:
                return _without_references(schema_id, schema)
            if form is not None:
                schema = self._call(form, lambda client: client.get_schema(schema_id, fmt=form), about=_ABOUT_THE_ID)
            return self._registered(schema_id, schema, form)
        except _Absent:
            with self._lock:
                self._unknown[schema_id] = True
            return None

    def latest(self, subject: str, kind: str) -> RegisteredSchema:
        """Returns the latest schema of a subject.

        Raises:
            SchemaRejected: if the subject has none, or a schema that it refers to was deleted.
        """
        form = _FORM.get(kind)
        try:
            found = self._call(None, lambda client: client.get_latest_version(subject))
            if found.schema.schema_type != kind:
                return _without_references(found.schema_id, found.schema)
            if form is not None:
                version = found.version
                found = self._call(form, lambda client: client.get_version(subject, version, fmt=form))
        except _Absent:
            raise SchemaRejected(
                f"The registry '{self._url}' has no subject '{subject}'.",
                remedy="Correct 'subject'. Its name is usually '<topic>-value'.",
            ) from None
        try:
            return self._registered(found.schema_id, found.schema, form)
        except _Absent as e:
            raise SchemaRejected(
                f"The registry '{self._url}' does not have {e}, which the latest schema of subject '{subject}' refers to.",
                remedy="Register it again, or pass another schema.",
            ) from None

    def subjects(self) -> list[str]:
        """Returns the subjects that this user may read."""
        return list(self._call(None, lambda client: client.get_subjects()))

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
                return int(self._call(None, lambda client: client.register_schema(subject, schema)))
            return int(self._call(None, lambda client: client.lookup_schema(subject, schema)).schema_id)
        except _Absent:
            raise SchemaRejected(
                f"Subject '{subject}' of the registry '{self._url}' does not have this schema.",
                remedy="Register it, or pass register=True.",
            ) from None

    def _registered(self, schema_id: int, schema: Any, form: str | None) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._add_references(schema, form, references)
        return RegisteredSchema(schema_id, schema.schema_type, schema.schema_str, tuple(references.items()))

    def _add_references(self, schema: Any, form: str | None, found: dict[str, str]) -> None:
        for it in schema.references or ():
            if it.name in found:
                continue
            where = f"version {it.version} of subject '{it.subject}'"
            version = self._call(
                form,
                lambda client, it=it: client.get_version(it.subject, it.version, True, form),  # type: ignore[misc]
                about=_ABOUT_THE_ID,
                what=where,
            )
            self._add_references(version.schema, form, found)
            found[it.name] = version.schema.schema_str

    def _call(
        self, form: str | None, request: Callable[[Any], _T], *, about: tuple[int, ...] = (), what: str = "it"
    ) -> _T:
        """Returns the answer of the registry.

        Args:
            form: the form of the schemas; ``None`` for their texts.
            request: calls a method of the client.
            about: the statuses that mean that the registry does not have what is requested, with any error code.
            what: what is requested.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            answer = request(self._client_of(form))
        except SchemaRegistryError as e:
            if e.error_code in _NO_SUCH or (e.http_status_code in about and self._is_registry()):
                self._has_answered = True
                raise _Absent(what) from None
            error = self._error(e)
            # A new client has the certificate or the token of that time.
            self.is_rejected = self.is_rejected or isinstance(error, (LoginRejected, NotAuthorized))
            raise error from None
        except Exception as e:
            # Network errors of the HTTP client, and answers that are no JSON of a registry.
            raise RegistryUnreachable(
                f"The schema registry '{self._url}' did not answer: {type(e).__name__}: {self._text(e)}.",
                remedy="Check its URL and that it runs.",
            ) from None
        self._has_answered = True
        return answer

    def _client_of(self, form: str | None) -> Any:
        with self._lock:
            if form not in self._clients:
                self._clients[form] = self._new_client()
            return self._clients[form]

    def _is_registry(self) -> bool:
        """Returns whether the URL is one of a registry. Another service answers each request with the status 404."""
        if not self._has_answered:
            try:
                self._call(None, lambda client: client.get_schema_types())
            except SchemaRejected:
                return False
        return self._has_answered

    def _error(self, error: Any) -> StreamGroupsError:
        status, text = error.http_status_code, self._text(error.error_message)
        if status == 403:
            return NotAuthorized(
                f"The schema registry '{self._url}' rejected the request: {text}.",
                remedy="Grant this user the right to read the subjects, and to register schemas if the query encodes.",
            )
        if status == 401:
            return LoginRejected(
                f"The schema registry '{self._url}' rejected the login: {text}.",
                remedy="Set 'basic.auth.user.info' or 'bearer.auth.token' in the settings of sg.schemas.SchemaRegistry.",
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


def _without_references(schema_id: int, schema: Any) -> RegisteredSchema:
    """Returns a schema of another type than the requested one. It is not parsed."""
    return RegisteredSchema(schema_id, schema.schema_type, schema.schema_str)


class _Absent(Exception):
    """The registry does not have the subject, the version or the id."""


def secrets_of(configuration: Mapping[str, object]) -> list[str]:
    """Returns the texts that errors do not contain: texts of settings, and the parts of logins. The longest first.

    >>> secrets_of({"url": "http://a:1", "basic.auth.user.info": "carol:hunter2", "timeout": 5})
    ['carol%3Ahunter2', 'carol:hunter2', 'hunter2', 'carol']
    """
    found: set[str] = set()
    for name, value in configuration.items():
        if name == "url" or not isinstance(value, str):
            continue
        address = value.rpartition("://")[2]
        logins = (address, address.rpartition("@")[0])
        texts = {value, *logins, *(part for login in logins for part in login.split(":", 1))}
        found |= {form for text in texts for form in (text, quote(text, safe=""), unquote(text))}
    return sorted((it for it in found if len(it) > 1), key=lambda it: (-len(it), it))


class TaskClients:
    """The clients that the tasks of a process share: one for each registry and its resolved settings.

    So a changed secret of a connection applies to the next array of values.

    Args:
        timer: a steady clock, in seconds.
    """

    def __init__(self, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        #: By their settings. These contain secrets: do not print them.
        self._clients: dict[tuple[tuple[str, str | float], ...], RegistryClient] = {}
        self._lock = threading.Lock()

    def client_of(self, registry: SchemaRegistry) -> RegistryClient:
        """Returns the client of a registry, with its cache of schemas. A client that is not current is replaced, unless the
        registry is unreachable: its schemas are better than none.

        Raises:
            InvalidOption: see :class:`RegistryClient`.
            MissingExtra: see :class:`RegistryClient`.
        """
        settings = tuple(sorted(registry.configuration().items()))
        with self._lock:
            client = self._clients.get(settings)
            if client is None or not client.is_current:
                client = self._replacement(registry, client)
            # Without close(): another thread can still use a client. Its connections are closed with its last reference.
            self._clients = {of: it for of, it in self._clients.items() if it.is_current} | {settings: client}
            return client

    def _replacement(self, registry: SchemaRegistry, client: RegistryClient | None) -> RegistryClient:
        replacement = RegistryClient(registry, timer=self._timer)
        if client is None or client.is_rejected or replacement.is_reachable():
            return replacement
        client.renew()
        return client


_TASK_CLIENTS = TaskClients()


def client_of(registry: SchemaRegistry) -> RegistryClient:
    """Returns the client that the tasks of this process share; see :class:`TaskClients`."""
    return _TASK_CLIENTS.client_of(registry)
