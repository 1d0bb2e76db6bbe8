"""P3, P4: requests to a schema registry, their errors, and the secrets in its settings."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import InvalidOption, NotAuthorized, RegistryUnreachable, SchemaRejected
from streamgroups_kafka.schema_registry.client import RegistryClient, client_of
from streamgroups_testkit.schema_registry import FakeSchemaRegistry
from unit_tests.registry_contract import RegistryContract

AT_ONCE = {"max.retries": "0", "timeout": "5"}


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as server:
        yield server


class TestFakeRegistry(RegistryContract):
    @pytest.fixture(autouse=True)
    def _server(self, fake: FakeSchemaRegistry) -> None:
        self.server = fake

    @pytest.fixture
    def registry(self, fake: FakeSchemaRegistry) -> SchemaRegistry:
        return SchemaRegistry(fake.url, AT_ONCE)

    def forbid_changes(self, registry: SchemaRegistry, subject: str) -> None:
        self.server.incompatible.add(subject)


def test_a_process_requests_a_schema_once(fake: FakeSchemaRegistry) -> None:
    added = fake.add("flights-value", '"string"')
    for _ in range(3):
        # As in tasks, which unpickle the registry.
        client = client_of(pickle.loads(pickle.dumps(SchemaRegistry(fake.url, AT_ONCE))))
        assert client.by_id(added, "AVRO") is not None
    assert fake.requests == [f"GET /schemas/ids/{added}"]


def test_references_come_after_those_that_they_refer_to(fake: FakeSchemaRegistry) -> None:
    def reference(name: str) -> dict[str, object]:
        return {"name": name, "subject": name, "version": 1}

    fake.add("Code", "code")
    fake.add("Place", "place", references=[reference("Code")])
    added = fake.add("flights-value", "flight", references=[reference("Place"), reference("Code")])
    schema = RegistryClient(SchemaRegistry(fake.url)).by_id(added, "AVRO")
    assert schema is not None
    assert schema.references == (("Code", "code"), ("Place", "place"))


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_P4_an_outage_is_retriable_and_no_dead_letter(fake: FakeSchemaRegistry, status: int) -> None:
    fake.fails_with = status
    with pytest.raises(RegistryUnreachable) as error:
        RegistryClient(SchemaRegistry(fake.url, AT_ONCE)).by_id(1, "AVRO")
    assert error.value.retriable


def test_a_registry_that_does_not_listen_is_unreachable() -> None:
    with FakeSchemaRegistry() as server:
        url = server.url
    with pytest.raises(RegistryUnreachable, match="Check its URL and that it runs"):
        RegistryClient(SchemaRegistry(url, AT_ONCE)).latest("flights-value", "AVRO")


def test_an_address_of_another_service_is_no_unknown_schema(fake: FakeSchemaRegistry) -> None:
    with pytest.raises(SchemaRejected, match="404"):
        RegistryClient(SchemaRegistry(f"{fake.url}/other", AT_ONCE)).by_id(1, "AVRO")


def test_P3_a_login_is_sent_and_never_shown() -> None:
    with FakeSchemaRegistry("carol:hunter2") as server:
        added = server.add("flights-value", '"string"')
        right = SchemaRegistry(server.url, {**AT_ONCE, "basic.auth.user.info": "carol:hunter2"})
        assert RegistryClient(right).by_id(added, "AVRO") is not None
        wrong = SchemaRegistry(server.url, {**AT_ONCE, "basic.auth.user.info": "carol:hunter3"})
        with pytest.raises(NotAuthorized) as error:
            RegistryClient(wrong).by_id(added, "AVRO")
    for shown in (repr(wrong), str(wrong), str(error.value)):
        assert "hunter" not in shown


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"basic.auth.user.inf": "a:b"}, "Did you mean 'basic.auth.user.info'?"),
        ({"timeout": "soon"}, "Setting 'timeout' is 'soon'"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidOption) as error:
        SchemaRegistry("http://localhost:8081", settings)
    assert names in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"basic.auth.user.info": "secretwithoutcolon"},
        {"ssl.ca.location": "/nonexistent/secretfile"},
        {"ssl.key.password": "secretpassword"},
        {"bearer.auth.credentials.source": "secretsource"},
    ],
)
def test_P3_settings_that_the_client_rejects_are_not_shown(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidOption) as error:
        RegistryClient(SchemaRegistry("http://localhost:8081", settings))
    assert "secret" not in str(error.value)


def test_a_prefix_of_java_is_accepted() -> None:
    registry = SchemaRegistry("http://localhost:8081", {"schema.registry.basic.auth.user.info": "a:b"})
    assert registry.configuration() == {"url": "http://localhost:8081", "timeout": 30, "basic.auth.user.info": "a:b"}


@pytest.mark.parametrize("url", ["localhost:8081", "http://", "ftp://registry", "http://a:8081,", ""])
def test_a_url_must_be_complete(url: str) -> None:
    with pytest.raises(InvalidOption, match="The URL of the schema registry is"):
        SchemaRegistry(url)
