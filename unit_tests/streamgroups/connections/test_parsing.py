"""The file of connections: what it may contain, and the errors of everything else, which show no value."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.named import Connections
from streamgroups.connections.parsing import parse_connections
from streamgroups.connections.references import FromConnections, FromEnvironment, FromFile
from streamgroups.connections.variants import (
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
    references_of,
)
from streamgroups.errors import InvalidOption

EXAMPLE = """
current-context = "prod"

[connections.prod]
type = "kafka"
bootstrap-servers = "kafka1:9092,kafka2:9092"
command-config = "prod.properties"
settings = { "kafka.Security.Protocol" = "SASL_SSL", "sasl.password" = { env = "KAFKA_PASSWORD" } }

[connections.warehouse]
type = "postgres"
conninfo = "host=db dbname=flights user=me"
settings = { password = { file = "/run/secrets/pg" } }

[connections.lake]
type = "delta"
location = "s3://bucket/tables"
storage-options = { AWS_REGION = "eu-1", AWS_SECRET_ACCESS_KEY = { file = "keys/aws" } }

[connections.registry]
type = "schema-registry"
url = "https://schemas.example:8081"
settings = { "basic.auth.user.info" = { env = "REGISTRY_LOGIN" } }
"""


def load(directory: Path, text: str, *, mode: int = 0o600) -> Connections:
    path = directory / "config.toml"
    path.write_text(text)
    path.chmod(mode)
    return load_connections(str(path))


def test_all_types_of_connections(tmp_path: Path) -> None:
    found = load(tmp_path, EXAMPLE, mode=0o644)  # it contains no secret
    assert found.get("prod") == KafkaConnection(
        "prod",
        "kafka1:9092,kafka2:9092",
        str(tmp_path / "prod.properties"),
        {"security.protocol": "SASL_SSL", "sasl.password": FromEnvironment("KAFKA_PASSWORD")},
    )
    assert found.get("warehouse") == PostgresConnection(
        "warehouse", "host=db dbname=flights user=me", {"password": FromFile("/run/secrets/pg")}
    )
    assert found.get("lake") == DeltaConnection(
        "lake",
        "s3://bucket/tables",
        {"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": FromFile(str(tmp_path / "keys/aws"))},
    )
    assert found.get("registry") == SchemaRegistryConnection(
        "registry", "https://schemas.example:8081", {"basic.auth.user.info": FromEnvironment("REGISTRY_LOGIN")}
    )
    assert found.current == "prod"
    assert references_of(found.get("warehouse")) == {"password": FromFile("/run/secrets/pg")}


def test_no_file_has_no_connections(tmp_path: Path) -> None:
    found = load_connections(str(tmp_path / "missing.toml"))
    assert dict(found.named) == {}
    with pytest.raises(InvalidOption, match=r"'prod' does not exist in .*missing.toml. .*connections set"):
        found.get("prod")


PLAIN = {
    "a Kafka password": 'type="kafka"\nbootstrap-servers="a:1"\nsettings={"sasl.password"="hunter22"}',
    "a misspelt one": 'type="kafka"\nbootstrap-servers="a:1"\nsettings={"sasl.pasword"="hunter22"}',
    "a connection string": 'type="postgres"\nconninfo="host=db password=hunter22"',
    "a URL": 'type="postgres"\nconninfo="postgresql://me:hunter22@db/flights"',
    "a parameter": 'type="postgres"\nconninfo="host=db"\nsettings={password="hunter22"}',
    "a key of a store": 'type="delta"\nlocation="s3://b"\nstorage-options={AWS_SECRET_ACCESS_KEY="hunter22"}',
    "another password": 'type="postgres"\nconninfo="host=db sslpassword=hunter22"',
    "a password in the query of a URL": 'type="postgres"\nconninfo="postgresql://db/flights?sslpassword=hunter22"',
    "a key of Azure": 'type="delta"\nlocation="az://b"\nstorage-options={azure_storage_account_key="hunter22"}',
    "a login": 'type="schema-registry"\nurl="http://r:1"\nsettings={"basic.auth.user.info"="me:hunter22"}',
    "a proxy": 'type="schema-registry"\nurl="http://r:1"\nsettings={proxy="http://me:hunter22@proxy"}',
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_a_secret_in_plain_text_needs_a_closed_file_and_stays_in_it(tmp_path: Path, text: str) -> None:
    for mode in (0o644, 0o640, 0o604):
        with pytest.raises(InvalidOption) as raised:
            load(tmp_path, f"[connections.c]\n{text}", mode=mode)
        assert f"Run: chmod 600 {tmp_path}/config.toml" in str(raised.value)
        assert "hunter22" not in str(raised.value)
    found = load(tmp_path, f"[connections.c]\n{text}")
    [reference] = references_of(found.get("c")).values()
    assert isinstance(reference, FromConnections)
    for shown in (repr(found), str(pickle.dumps(found)), repr(dict(found.get("c").settings))):
        assert "hunter22" not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[connections\n", "is not TOML: line 1"),
        ("a = 1\na = 2\n", "is not TOML: line 2"),
        ('[connections.p]\ntype="kafka"\n[connections.p]\n', "is not TOML: line 3"),
        (f"a = {'[' * 5000}", "nested too deeply"),
        (f"a = {'9' * 5000}", "is not TOML"),
        ("contexts = {}", "Key 'contexts' of the file is unknown"),
        ("connections = 1", "Write a table"),
        ("connections = [1]", "Write a table"),
        ("connections = {prod = 1}", "Write a table"),
        ("[connections.prod]", "Key 'type' of connection 'prod' is missing. Use one of: kafka, postgres, delta"),
        ("[connections.prod]\ntype = 1", "Key 'type' of connection 'prod' has the wrong type"),
        ('[connections.prod]\ntype = "kafk"', "Did you mean 'kafka'?"),
        ('[connections."a b"]\ntype = "kafka"', "'a b' is not a name of a connection"),
        ('[connections.""]\ntype = "kafka"', "is not a name of a connection"),
        ('[connections."ü"]\ntype = "kafka"', "is not a name of a connection"),
        ('current-context = "prod"', "Connection 'prod' does not exist"),
        ('current-context = ["prod"]', "Key 'current-context' of the file has the wrong type"),
        (
            'current-context = "w"\n[connections.w]\ntype="postgres"\nconninfo="host=db"',
            "of type postgres, but type kafka is required",
        ),
        (
            '[connections.p]\ntype="kafka"\nbootstrap-servers = 9092',
            "Key 'bootstrap-servers' of connection 'p' has the",
        ),
        ('[connections.p]\ntype="kafka"\nbootstrap-serves = "a:1"', "Did you mean 'bootstrap-servers'?"),
        ('[connections.p]\ntype="kafka"', "Connection 'p' names no cluster"),
        (
            '[connections.p]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={"kafka.Bootstrap.Servers"="b:1"}',
            "Use the key bootstrap-servers",
        ),
        ('[connections.p]\ntype="kafka"\nsettings = 1', "Write a table"),
        (
            '[connections.p]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={"client.id"="a", "kafka.client.id"="b"}',
            "Setting 'kafka.client.id' in the settings of connection 'p' is there twice",
        ),
        (
            '[connections.p]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={"client.id"="a", "Client.id "="b"}',
            "Setting 'Client.id ' in the settings of connection 'p' is there twice",
        ),
        (
            '[connections.p]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={""="a"}',
            "has no name",
        ),
        ('[connections.p]\ntype="kafka"\nconninfo="host=db"', "Key 'conninfo' of connection 'p' is unknown"),
        ('[connections.p]\ntype="postgres"', "Key 'conninfo' of connection 'p' is missing"),
        ('[connections.p]\ntype="delta"', "Key 'location' of connection 'p' is missing"),
        (
            '[connections.p]\ntype="delta"\nlocation="s3://me:hunter22@b"',
            "Key 'location' of connection 'p' contains a login",
        ),
        (
            '[connections.p]\ntype="delta"\nlocation="dbfs:/tables"',
            "Key 'location' of connection 'p' has the scheme 'dbfs:' without a host or bucket",
        ),
        (
            '[connections.p]\ntype="delta"\nlocation="file:tables"',
            "Key 'location' of connection 'p' has a relative path after the scheme 'file:'",
        ),
        (
            '[connections.p]\ntype="schema-registry"\nurl="http://me:hunter22@r"',
            "'url' of connection 'p' contains a login",
        ),
    ],
)
def test_an_invalid_file_is_rejected_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        load(tmp_path, text)
    assert str(tmp_path / "config.toml") in str(raised.value)
    assert message in str(raised.value)
    assert "hunter22" not in str(raised.value)


def test_a_location_as_hadoop_and_spark_print_it_is_a_path(tmp_path: Path) -> None:
    for written, location in (("file:/data", "/data"), ("tables", f"{tmp_path}/tables"), ("s3://b/t", "s3://b/t")):
        found = load(tmp_path, f'[connections.p]\ntype="delta"\nlocation="{written}"').get("p")
        assert isinstance(found, DeltaConnection)
        assert found.location == location


@pytest.mark.parametrize(
    "value",
    [
        "1",
        "true",
        "1979-05-27",
        '["a"]',
        "{}",
        "{env = 1}",
        '{env = ""}',
        '{env = "A=B"}',
        '{env = "A", file = "/b"}',
        '{file = ""}',
        '{file = "/a\\u0000"}',
        '{vault = "a"}',
        '"a\\u0000"',
    ],
)
def test_a_setting_is_a_text_or_a_reference(tmp_path: Path, value: str) -> None:
    for name in ("sasl.password", "client.id"):
        with pytest.raises(InvalidOption) as raised:
            load(
                tmp_path,
                f'[connections.p]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={{"{name}" = {value}}}',
            )
        assert f"Key '{name}' in the settings of connection 'p' has the wrong type" in str(raised.value)
        assert 'Write a text in quotes, {env = "VARIABLE"} or {file = "/path"}' in str(raised.value)


def test_a_file_that_is_not_readable_text(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidOption, match="is not UTF-8 text"):
        load_connections(str(path))
    with pytest.raises(InvalidOption, match="cannot be read: Is a directory"):
        load_connections(str(tmp_path))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["type", "bootstrap-servers", "command-config", "settings", "conninfo", "location", "storage-options", "url"]
)
_TABLES = st.dictionaries(_KEYS, _VALUES, max_size=4).flatmap(
    lambda table: st.sampled_from(["kafka", "postgres", "delta", "schema-registry"]).map(
        lambda of: {**table, "type": of}
    )
)


@given(st.dictionaries(st.text(max_size=5), _TABLES | _VALUES, max_size=3), _VALUES)
def test_any_document_is_parsed_or_rejected(tables: dict[str, Any], current: Any) -> None:
    for document in ({"connections": tables, "current-context": current}, {"connections": tables}, tables):
        try:
            found = parse_connections(document, "/c/config.toml")
        except InvalidOption:
            continue
        for name, connection in found.named.items():
            assert connection.name == name
            assert pickle.loads(pickle.dumps(connection)) == connection
            hash(connection)
