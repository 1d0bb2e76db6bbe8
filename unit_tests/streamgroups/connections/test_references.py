"""References are resolved in the process that connects. Its errors name the reference and the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.connections.config_file import (
    config_path,
    config_path_for_others,
    connection_named,
    load_connections,
    resolver,
)
from streamgroups.connections.explicit_options import with_explicit
from streamgroups.connections.references import FromConnections, FromEnvironment, FromFile, Reference, Setting, resolved
from streamgroups.connections.variants import (
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
)
from streamgroups.errors import InvalidOption
from unit_tests.no_home import remove_home


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    here, reference = resolver(), FromEnvironment("PG_PASSWORD")
    with pytest.raises(
        InvalidOption, match=r"Connection 'w': environment variable PG_PASSWORD of 'password' is not set"
    ):
        resolved(reference, "w", "password", here)
    monkeypatch.setenv("PG_PASSWORD", "")
    with pytest.raises(InvalidOption, match=r"is empty on .* The driver and all executors resolve"):
        resolved(reference, "w", "password", here)
    monkeypatch.setenv("PG_PASSWORD", "hunter22")
    assert resolved(reference, "w", "password", here) == "hunter22"
    assert "hunter22" not in repr(here)


@pytest.mark.parametrize(
    ("content", "value"),
    [("a b ", "a b "), ("hunter22\n", "hunter22"), ("hunter22\r\n", "hunter22"), ("a\nb\n", "a\nb"), ("ü", "ü")],
)
def test_a_file(tmp_path: Path, content: str, value: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content.encode())
    assert resolved(FromFile(str(path)), "w", "password", resolver()) == value


def test_a_file_that_has_no_secret(tmp_path: Path) -> None:
    def error(reference: Reference) -> str:
        with pytest.raises(InvalidOption) as raised:
            resolved(reference, "w", "password", resolver())
        return str(raised.value)

    empty, binary, large = tmp_path / "empty", tmp_path / "binary", tmp_path / "large"
    empty.write_text("\n")
    binary.write_bytes(b"hunter22\xff")
    large.write_bytes(b"a" * (1 << 20) + b"b")
    assert "cannot be read (No such file or directory)" in error(FromFile(str(tmp_path / "missing")))
    assert "cannot be read (Is a directory)" in error(FromFile(str(tmp_path)))
    assert f"file {empty} of 'password' is empty" in error(FromFile(str(empty)))
    assert "is not UTF-8 text" in error(FromFile(str(binary)))
    assert "hunter22" not in error(FromFile(str(binary)))
    assert "larger than" in error(FromFile(str(large)))
    assert "larger than" in error(FromFile("/dev/zero"))


def test_plain_text_in_the_file_of_connections_is_read_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[connections.w]\ntype="postgres"\nsettings={password="hunter22"}')
    path.chmod(0o600)
    reference = load_connections(str(path)).get("w").settings["password"]
    assert isinstance(reference, FromConnections)
    assert resolved(reference, "w", "password", resolver()) == "hunter22"
    path.chmod(0o644)
    with pytest.raises(InvalidOption, match="chmod 600"):
        resolved(reference, "w", "password", resolver())
    path.unlink()
    with pytest.raises(InvalidOption, match=r"connections.w.settings.password in .* does not exist on"):
        resolved(reference, "w", "password", resolver())


def test_the_path_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("STREAMGROUPS_CONFIG", raising=False)
    assert config_path() == tmp_path / ".config" / "streamgroups" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config_path() == tmp_path / "xdg" / "streamgroups" / "config.toml"
    monkeypatch.setenv("STREAMGROUPS_CONFIG", "~/mine.toml")
    assert config_path() == tmp_path / "mine.toml"


PROD, WAREHOUSE, LAKE = KafkaConnection("prod"), PostgresConnection("w"), DeltaConnection("lake", "s3://bucket")
REGISTRY = SchemaRegistryConnection("r", "https://schemas.example")


def test_explicit_options_add_and_do_not_contradict() -> None:
    settings: dict[str, Setting] = {"security.protocol": "SASL_SSL", "sasl.password": FromEnvironment("X")}
    added = with_explicit(PROD, settings, {"security.protocol": "SASL_SSL", "client.id": "me"})
    assert added == {**settings, "client.id": "me"}
    for name in settings:
        with pytest.raises(InvalidOption) as raised:
            with_explicit(PROD, settings, {name: "hunter22"}, prefix="kafka.")
        assert f"Option 'kafka.{name}' contradicts connection 'prod'" in str(raised.value)
        assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize(
    ("connection", "names"),
    [
        (PROD, "bootstrap.servers metadata.broker.list sasl.oauthbearer.token.endpoint.url"),
        (WAREHOUSE, "host hostaddr port service oauth_issuer"),
        (
            LAKE,
            "AWS_ENDPOINT_URL endpoint aws_endpoint_url_s3 azure_endpoint google_base_url PROXY_URL Allow_HTTP region "
            "allow_invalid_certificates account_name azure_storage_use_emulator azure_authority_host bucket aws_bucket_name",
        ),
        (REGISTRY, "url proxy bearer.auth.issuer.endpoint.url"),
    ],
)
def test_P3_only_a_connection_selects_the_server_of_its_login(connection: Connection, names: str) -> None:
    for name in names.split():
        with pytest.raises(InvalidOption) as raised:
            with_explicit(connection, {"password": FromEnvironment("X")}, {name: "192.0.2.1"})
        assert f"Option '{name}' selects a server, which only connection '{connection.name}' may do." in str(
            raised.value
        )
        assert with_explicit(connection, {name: "a"}, {name: "a"}) == {name: "a"}
        with pytest.raises(InvalidOption, match="contradicts"):
            with_explicit(connection, {name: "a"}, {name: "192.0.2.1"})


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("AWS_ENDPOINT_URL", "aws_endpoint_url"),
        ("AWS_ENDPOINT_URL", "endpoint"),
        ("AWS_REGION", "region"),
        ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        ("aws_session_token", "token"),
        ("azure_storage_account_key", "AZURE_STORAGE_MASTER_KEY"),
        ("azure_storage_account_key", "access_key"),
        ("azure_storage_sas_key", "sas_token"),
        ("azure_storage_tenant_id", "authority_id"),
        ("google_service_account_path", "service_account"),
    ],
)
def test_P3_another_name_of_a_storage_option_contradicts_too(own: str, other: str) -> None:
    with pytest.raises(InvalidOption, match=f"Option '{other}' contradicts connection 'lake'"):
        with_explicit(LAKE, {own: "a"}, {other: "b"})
    assert with_explicit(LAKE, {own: "a"}, {other: "a", "aws_sse_bucket_key_enabled": "true"})[other] == "a"


def test_only_the_use_of_a_connection_needs_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_home(monkeypatch)
    assert config_path_for_others() is None
    assert (load_connections().named, load_connections().current) == ({}, None)
    with pytest.raises(InvalidOption) as raised:
        connection_named("prod", KafkaConnection)
    assert str(raised.value) == (
        "Connection 'prod' is unknown. The path ~/.config/streamgroups/config.toml cannot be resolved: this user has no home "
        "directory. Set STREAMGROUPS_CONFIG to the path of the file of connections, or set HOME."
    )
    monkeypatch.setenv("STREAMGROUPS_CONFIG", "/etc/streamgroups.toml")
    assert config_path_for_others() == "/etc/streamgroups.toml"
