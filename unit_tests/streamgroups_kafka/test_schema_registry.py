"""P3, P4: requests to a schema registry, their errors, and the secrets in its settings."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from streamgroups.connections.references import FromEnvironment, Setting
from streamgroups.connections.variants import SchemaRegistryConnection
from streamgroups.decoding.registry import RegisteredSchema, SchemaRegistry
from streamgroups.errors import (
    InvalidOption,
    LoginRejected,
    NotAuthorized,
    RegistryUnreachable,
    SchemaRejected,
    StreamGroupsError,
)
from streamgroups_kafka.schema_registry.client import RegistryClient, TaskClients, client_of, secrets_of
from streamgroups_testkit.schema_registry import FakeSchemaRegistry
from unit_tests.registry_contract import RegistryContract, port_of

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


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_P4_tasks_request_schemas_and_their_references_again_after_five_minutes(kind: str) -> None:
    now_s, port, reference = [0.0], 0, {"name": "Code", "subject": "codes", "version": 1}
    clients = TaskClients(timer=lambda: now_s[0])
    for text in ("b2xk", "bmV3"):
        with FakeSchemaRegistry(port=port) as server:
            port, registry = port_of(server), SchemaRegistry(server.url, AT_ONCE)
            server.add("codes", text, kind)
            server.add("flights-value", text * 2, kind, [reference])
            expected = RegisteredSchema(2, kind, text * 2, (("Code", text),))
            for _ in range(3):
                assert clients.client_of(registry).by_id(2, kind) == expected
                now_s[0] += 99.9
            by_schema = [it for it in server.requests if "/types" not in it]
            assert len(by_schema) == (2 if kind == "AVRO" else 3), "one for each text, and one for the type"
        # Now the client is 300.1 s old.
        now_s[0] += 0.4


def test_tasks_register_a_schema_again_after_five_minutes() -> None:
    now_s = [0.0]
    clients = TaskClients(timer=lambda: now_s[0])
    with FakeSchemaRegistry() as server:
        registry = SchemaRegistry(server.url, AT_ONCE)
        assert clients.client_of(registry).id_of("flights-value", "AVRO", '"string"', register=True) == 1
    with FakeSchemaRegistry(port=port_of(server)) as restored:
        restored.add("codes", '"int"')
        for now_s[0], schema_id in ((299.9, 1), (300.1, 2)):
            assert clients.client_of(registry).id_of("flights-value", "AVRO", '"string"', register=True) == schema_id


def test_P4_tasks_continue_with_their_schemas_in_an_outage() -> None:
    now_s = [0.0]
    clients = TaskClients(timer=lambda: now_s[0])
    with FakeSchemaRegistry() as server:
        registry = SchemaRegistry(server.url, AT_ONCE)
        known = server.add("flights-value", '"string"')
        client = clients.client_of(registry)
        assert client.by_id(known, "AVRO") == RegisteredSchema(known, "AVRO", '"string"')
    for now_s[0] in (299.0, 301.0, 599.0, 602.0):
        assert clients.client_of(registry).by_id(known, "AVRO") == RegisteredSchema(known, "AVRO", '"string"')
        with pytest.raises(RegistryUnreachable):
            clients.client_of(registry).by_id(known + 1, "AVRO")
    with FakeSchemaRegistry(port=port_of(server)) as restored:
        restored.add("flights-value", '"int"')
        assert clients.client_of(registry) is client, "it was renewed"
        now_s[0] = 903.0
        assert clients.client_of(registry).by_id(known, "AVRO") == RegisteredSchema(known, "AVRO", '"int"')


def test_P3_tasks_use_a_changed_secret_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, port = TaskClients(), 0
    for login, texts in (("carol:hunter2", ['"string"']), ("carol:hunter3", ['"string"', '"int"'])):
        monkeypatch.setenv("THE_LOGIN", login)
        with FakeSchemaRegistry(login, port=port) as server:
            port = port_of(server)
            settings: dict[str, Setting] = {**AT_ONCE, "basic.auth.user.info": FromEnvironment("THE_LOGIN")}
            registry = SchemaRegistry(connection=SchemaRegistryConnection("registry", server.url, settings))
            added = [server.add("flights-value", it) for it in texts][-1]
            assert clients.client_of(registry).by_id(added, "AVRO") == RegisteredSchema(added, "AVRO", texts[-1])
            assert clients.client_of(registry) is clients.client_of(registry)


@pytest.mark.parametrize(
    ("status", "error", "is_replaced"),
    [(401, LoginRejected, True), (403, NotAuthorized, True), (503, RegistryUnreachable, False)],
)
def test_a_client_with_a_rejected_login_is_replaced(
    fake: FakeSchemaRegistry, status: int, error: type[StreamGroupsError], is_replaced: bool
) -> None:
    clients, registry = TaskClients(), SchemaRegistry(fake.url, AT_ONCE)
    client, fake.fails_with = clients.client_of(registry), status
    with pytest.raises(error):
        client.by_id(1, "AVRO")
    assert (clients.client_of(registry) is not client) is is_replaced


def test_P4_an_id_above_the_integers_of_a_registry_costs_no_request(fake: FakeSchemaRegistry) -> None:
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    assert [client.by_id(it, "AVRO") for it in (2**31, 2**32 - 1)] == [None, None]
    assert fake.requests == []


@pytest.mark.parametrize("status", [404, 422])
@pytest.mark.parametrize("code", [404, 422, 40499, -1])
def test_P4_each_404_and_422_of_a_registry_is_about_the_id(fake: FakeSchemaRegistry, status: int, code: int) -> None:
    fake.answers_ids_with = status, code
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    assert [client.by_id(it, "AVRO") for it in (1, 2)] == [None, None]
    assert fake.requests == ["GET /schemas/ids/1", "GET /schemas/types", "GET /schemas/ids/2"]


def test_an_outage_after_a_404_is_retriable(fake: FakeSchemaRegistry) -> None:
    fake.answers_ids_with = 404, 404
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    assert client.by_id(1, "AVRO") is None
    fake.fails_with = 503
    with pytest.raises(RegistryUnreachable):
        client.by_id(2, "AVRO")


def test_P4_unknown_ids_cost_one_request_for_ten_seconds(fake: FakeSchemaRegistry) -> None:
    now = [0.0]
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE), timer=lambda: now[0])
    for now[0] in (0.0, 5.0, 9.9):
        assert [client.by_id(1000 + it, "AVRO") for it in range(300)] == [None] * 300
    assert len(fake.requests) == 300
    now[0] = 11.0
    added = [fake.add("flights-value", f'{{"type": "fixed", "name": "F", "size": {it}}}') for it in range(1, 1001)][-1]
    found = client.by_id(added, "AVRO")
    assert found is not None
    assert found.id == added == 1000


def test_forms_of_one_schema_are_not_mixed(fake: FakeSchemaRegistry) -> None:
    added = fake.add("flights-value", "CgFh", "PROTOBUF")
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    for kind in ("AVRO", "PROTOBUF", "AVRO", "PROTOBUF"):
        assert client.by_id(added, kind) is not None
    assert fake.requests == [f"GET /schemas/ids/{added}"] * 2, "one request for each form"


def test_P4_a_schema_of_another_type_is_no_outage(fake: FakeSchemaRegistry) -> None:
    reference = {"name": "Code", "subject": "codes", "version": 3}
    added = fake.add("flights-value", "{}", "JSON", [reference])
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    for found in (
        client.by_id(added, "PROTOBUF"),
        client.by_id(added, "AVRO"),
        client.latest("flights-value", "PROTOBUF"),
    ):
        assert found is not None
        assert (found.id, found.type) == (added, "JSON")
    assert fake.requests == [f"GET /schemas/ids/{added}", "GET /subjects/flights-value/versions/latest"]


def test_a_schema_of_protobuf_has_the_form_of_a_descriptor(fake: FakeSchemaRegistry) -> None:
    fake.add("codes", "Y29kZQ==", "PROTOBUF")
    added = fake.add("flights-value", "CgFh", "PROTOBUF", [{"name": "code.proto", "subject": "codes", "version": 1}])
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    found = client.by_id(added, "PROTOBUF")
    assert found == client.latest("flights-value", "PROTOBUF")
    assert found is not None
    assert (found.type, found.references) == ("PROTOBUF", (("code.proto", "Y29kZQ=="),))


def test_P4_a_schema_with_a_deleted_reference_is_unknown(fake: FakeSchemaRegistry) -> None:
    added = fake.add("flights-value", "flight", references=[{"name": "Code", "subject": "codes", "version": 3}])
    client = RegistryClient(SchemaRegistry(fake.url, AT_ONCE))
    assert [client.by_id(added, "AVRO") for _ in range(2)] == [None, None]
    assert len(fake.requests) == 2, "one for the schema, and one for its reference"
    with pytest.raises(SchemaRejected, match="does not have version 3 of subject 'codes'"):
        client.latest("flights-value", "AVRO")


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
        with pytest.raises(LoginRejected) as error:
            RegistryClient(wrong).by_id(added, "AVRO")
    for shown in (repr(wrong), str(wrong), str(error.value)):
        assert "hunter" not in shown


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"basic.auth.user.inf": "a:b"}, "Did you mean 'basic.auth.user.info'?"),
        ({"timeout": "hunter2"}, "Setting 'timeout' of the schema registry is no number of 0 or more."),
        ({"timeout": "nan"}, "Setting 'timeout'"),
        ({"max.retries": "-1"}, "Setting 'max.retries'"),
        ({"cache.capacity": "1e400"}, "Setting 'cache.capacity'"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidOption) as error:
        SchemaRegistry("http://localhost:8081", settings)
    assert names in str(error.value)
    assert "hunter2" not in str(error.value)


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


@pytest.mark.parametrize("proxy", ["http://carol:secret%20word@[proxy", "carol:secret word@proxy", "http://secret@a:1"])
def test_P3_a_login_of_a_proxy_is_not_shown(fake: FakeSchemaRegistry, proxy: str) -> None:
    with pytest.raises((InvalidOption, RegistryUnreachable)) as error:
        RegistryClient(SchemaRegistry(fake.url, {**AT_ONCE, "proxy": proxy})).by_id(1, "AVRO")
    assert "secret" not in str(error.value)


def test_P3_parts_of_a_login_are_not_shown() -> None:
    secrets = secrets_of({"url": "http://a:1", "basic.auth.user.info": "carol:hunter2", "proxy": "http://p:p%20w@x"})
    assert {"hunter2", "carol:hunter2", "p%20w", "p w"} <= set(secrets)
    with pytest.raises(InvalidOption, match="contains a login") as error:
        SchemaRegistry("http://carol:hun,ter2@registry:8081")
    assert "ter2" not in str(error.value)


def test_a_prefix_of_java_is_accepted() -> None:
    registry = SchemaRegistry("http://localhost:8081", {"schema.registry.basic.auth.user.info": "a:b"})
    assert registry.configuration() == {"url": "http://localhost:8081", "timeout": 30, "basic.auth.user.info": "a:b"}


@pytest.mark.parametrize("url", ["localhost:8081", "http://", "ftp://registry", "http://a:8081,", "", "http://[a:8081"])
def test_a_url_must_be_complete(url: str) -> None:
    with pytest.raises(InvalidOption, match="The URL of the schema registry is"):
        SchemaRegistry(url)
