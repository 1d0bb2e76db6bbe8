"""A Kafka connection as the configuration of a client: its pickle has references, which another process resolves."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.connected import connected_settings
from unit_tests.connections_file import SECRET, write_connections


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_connections(tmp_path, monkeypatch)


def config_of(name: str, explicit: dict[str, str] | None = None) -> ClientConfig:
    connected = connected_settings(name, explicit or {})
    assert SECRET not in repr(connected)
    return ClientConfig.from_options(connected.values, connected.references)


@pytest.mark.parametrize("name", ["prod", "plain", "properties"])
def test_a_pickle_has_no_secret_and_another_process_resolves_it(name: str) -> None:
    config = config_of(name, {"client.id": "mine"})
    assert config.get("sasl.password") == SECRET
    assert config.get("bootstrap.servers") == "127.0.0.1:1"
    assert config.get("client.id") == "mine"
    pickled = pickle.dumps(config)
    assert SECRET.encode() not in pickled
    assert SECRET not in repr(config)
    again = pickle.loads(pickled)
    assert again == config
    assert pickle.dumps(again) == pickled, "tasks pickle it again"


def test_a_changed_secret_applies_in_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(config_of("prod"))
    monkeypatch.setenv("THE_SECRET", "rotated-22")
    assert pickle.loads(pickled).get("sasl.password") == "rotated-22"


def test_another_machine_without_the_secret(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    pickles = {name: pickle.dumps(config_of(name)) for name in ("prod", "plain", "properties")}
    monkeypatch.delenv("THE_SECRET")
    file.unlink()
    (file.parent / "client.properties").write_text("bootstrap.servers=127.0.0.1:1\n")
    messages = {
        "prod": "Connection 'prod': environment variable THE_SECRET of 'sasl.password' is not set on",
        "plain": "Connection 'plain': connections.plain.settings.sasl.password in",
        "properties": "Connection 'properties': ",
    }
    for name, pickled in pickles.items():
        with pytest.raises(InvalidOption) as raised:
            pickle.loads(pickled)
        assert messages[name] in str(raised.value)
        assert "all executors" in str(raised.value)
    # The error of a task is pickled to the driver.
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_configuration_without_references_is_pickled_as_it_is() -> None:
    config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    assert config.recipe is None
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("name", "explicit", "option"),
    [
        ("prod", {"bootstrap.servers": "other:9092"}, "kafka.bootstrap.servers"),
        ("prod", {"sasl.username": "you"}, "kafka.sasl.username"),
        ("prod", {"sasl.password": "secret-23"}, "kafka.sasl.password"),
        ("plain", {"sasl.password": "secret-23"}, "kafka.sasl.password"),
        ("properties", {"bootstrap.servers": "other:9092"}, "kafka.bootstrap.servers"),
        ("properties", {"sasl.jaas.config": "secret-23"}, "kafka.sasl.jaas.config"),
    ],
)
def test_an_option_that_contradicts_is_rejected(name: str, explicit: dict[str, str], option: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        config_of(name, explicit)
    assert str(raised.value).startswith(f"Option '{option}' contradicts connection '{name}', which sets it too.")
    for text in (str(raised.value), repr(raised.value.__context__)):
        assert "secret-23" not in text
        assert SECRET not in text


def test_another_name_of_a_property_contradicts_too() -> None:
    jaas = 'x.PlainLoginModule required username="you" password="secret-23";'
    with pytest.raises(InvalidOption, match=r"set the same property to different values") as raised:
        config_of("prod", {"sasl.jaas.config": jaas})
    assert "secret-23" not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_misspelt_setting_of_a_connection(file: Path) -> None:
    file.write_text('[connections.c]\ntype="kafka"\nbootstrap-servers="a:1"\nsettings={"sesion.timeout.ms"="1"}')
    with pytest.raises(InvalidOption, match=r"Did you mean 'kafka.session.timeout.ms'"):
        config_of("c")


def test_properties_of_a_file_that_do_not_affect_the_connection_are_named(file: Path) -> None:
    path = file.parent / "client.properties"
    path.write_text(path.read_text() + "\nSession.Timeout.Ms=60000\ncompression.type=zstd\n")
    connected = connected_settings("properties", {"compression.type": "lz4"})
    assert connected.ignored == ("session.timeout.ms",), "the option replaces the other one"
    assert connected.values["compression.type"] == "lz4"
    assert "session.timeout.ms" not in connected.values
