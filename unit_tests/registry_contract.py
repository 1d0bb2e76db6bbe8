"""The contract between the client of schema registries and a registry: the same for the fake and for a real one.

Run by ``unit_tests/streamgroups_kafka/test_schema_registry.py`` against the fake, and by
``integration_tests/test_schema_registries.py`` against a real one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest

from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import SchemaRejected
from streamgroups_kafka.schema_registry.client import RegistryClient
from streamgroups_testkit.schema_registry import FakeSchemaRegistry

Connect: TypeAlias = Callable[[], RegistryClient]
#: An id that no registry has given out.
UNKNOWN_ID = 2_000_000_000


def record(name: str, *fields: tuple[str, object]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]})


def port_of(server: FakeSchemaRegistry) -> int:
    """Returns the port of a registry, for another one in its place."""
    return int(urlsplit(server.url).port or 0)


class RegistryContract:
    """Tests of one registry. A subclass has the fixture ``registry``."""

    @pytest.fixture
    def connect(self, registry: SchemaRegistry) -> Iterator[Connect]:
        """Returns a new client at each call."""
        with ExitStack() as clients:
            yield lambda: clients.enter_context(RegistryClient(registry))

    @pytest.fixture
    def subject(self) -> str:
        return f"flights-{uuid.uuid4().hex[:8]}-value"

    def test_a_schema_is_registered_once_and_found_by_its_id(self, connect: Connect, subject: str) -> None:
        client, text = connect(), record("Flight", ("delay", "int"))
        with pytest.raises(SchemaRejected, match="register=True"):
            client.id_of(subject, "AVRO", text, register=False)
        found = client.id_of(subject, "AVRO", text, register=True)
        assert client.id_of(subject, "AVRO", text, register=True) == found
        assert connect().id_of(subject, "AVRO", text, register=False) == found
        schema = connect().by_id(found, "AVRO")
        assert schema is not None
        assert (schema.id, schema.type, json.loads(schema.text)) == (found, "AVRO", json.loads(text))

    def test_the_latest_schema_of_a_subject(self, connect: Connect, subject: str) -> None:
        with pytest.raises(SchemaRejected, match=f"no subject '{subject}'"):
            connect().latest(subject, "AVRO")
        first, second = record("Flight", ("delay", "int")), record("Flight", ("delay", "long"))
        client = connect()
        ids = [client.id_of(subject, "AVRO", text, register=True) for text in (first, second)]
        latest = connect().latest(subject, "AVRO")
        assert (latest.id, json.loads(latest.text)) == (ids[1], json.loads(second))

    @pytest.mark.parametrize("schema_id", [0, UNKNOWN_ID, 2**31 - 1, 2**31, 2**32 - 1])
    @pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
    def test_an_unknown_id(self, connect: Connect, schema_id: int, kind: str) -> None:
        assert connect().by_id(schema_id, kind) is None

    def test_a_schema_that_is_not_compatible_is_rejected(
        self, connect: Connect, registry: SchemaRegistry, subject: str
    ) -> None:
        client = connect()
        client.id_of(subject, "AVRO", record("Flight", ("delay", "int")), register=True)
        self.forbid_changes(registry, subject)
        with pytest.raises(SchemaRejected):
            client.id_of(subject, "AVRO", record("Flight", ("delay", "string")), register=True)

    def forbid_changes(self, registry: SchemaRegistry, subject: str) -> None:
        """Makes the registry reject the next schema of a subject. A real one does so by its rules."""
