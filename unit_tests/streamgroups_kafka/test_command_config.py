"""``--command-config``: a file made for Kafka's own tools works unchanged, and its secrets are never shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_kafka.client.java_properties import read_properties
from streamgroups_kafka.client.properties_file import command_config

LOGIN = """\
# As in Kafka's documentation.
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="ann" \\
    password="hunter2:=#\\u00e9";
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_a_file_for_kafkas_tools(file: Path) -> None:
    file.write_text(LOGIN)
    config = command_config("broker:9092", file)
    assert config.get("sasl.username") == "ann"
    assert config.get("sasl.password") == "hunter2:=#é"
    assert config.get("bootstrap.servers") == "broker:9092"
    assert "hunter2" not in repr(config)


def test_a_byte_order_mark_belongs_to_no_name(file: Path) -> None:
    file.write_text("bootstrap.servers=other:1\n", encoding="utf-8-sig")
    assert command_config(None, file).get("bootstrap.servers") == "other:1"


def test_the_option_wins_over_the_file(file: Path) -> None:
    file.write_text("bootstrap.servers=other:1\n")
    assert command_config("broker:9092", file).get("bootstrap.servers") == "broker:9092"
    assert command_config(None, file).get("bootstrap.servers") == "other:1"


def test_a_setting_wins_over_the_file_in_any_case(file: Path) -> None:
    file.write_text("Client.Rack=a\nBootstrap.Servers=b:1\n")
    config = command_config("c:2", file, {"client.rack": "b"})
    assert (config.get("client.rack"), config.get("bootstrap.servers")) == ("b", "c:2")


def test_a_setting_is_given_once(file: Path) -> None:
    file.write_text("client.rack=a\nCLIENT.rack=b\n")
    with pytest.raises(
        InvalidOption, match=r"client\.properties: Options 'client\.rack' and 'CLIENT\.rack' are the same option"
    ):
        command_config("c:2", file)


def test_what_is_not_about_connecting_is_let_pass(file: Path) -> None:
    file.write_text("key.deserializer=x.Y\nacks=all\ngroup.id=g\nauto.offset.reset=earliest\nlinger.ms=5\n")
    assert dict(command_config("broker:9092", file).properties) == {"bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sasl.mechanizm=PLAIN", r"client\.properties: Option 'sasl\.mechanizm' is unknown\. Did you mean 'sasl\.mech"),
        ("security.protocol=SLL", r"client\.properties: librdkafka rejects"),
        ("ssl.key.password=a\\u12", r"invalid \\u escape"),
    ],
)
def test_errors_name_file_and_property(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidOption, match=message):
        command_config("broker:9092", file)


def test_a_file_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(InvalidOption, match=r"client\.properties cannot be read: No such file"):
        command_config("broker:9092", file)
    file.write_bytes(b"ssl.key.password=\xff")
    with pytest.raises(InvalidOption, match="not UTF-8 text"):
        read_properties(file)


def test_a_malformed_server_is_not_blamed_on_a_file() -> None:
    with pytest.raises(InvalidOption, match=r"^--bootstrap-server: .*'broker' is not host:port"):
        command_config("broker")


@pytest.mark.parametrize(
    "wrong",
    [
        LOGIN + "sasl.pasword=hunter2",
        LOGIN.replace("PLAIN\n", "SCRAM-SHA-256\n", 1),
        "ssl.key.password=hunter2\\u12",
        "ssl.key.password=hunter2\nsecurity.protocol=hunter2",
    ],
)
def test_no_error_shows_a_secret(file: Path, wrong: str) -> None:
    file.write_text(wrong)
    with pytest.raises(InvalidOption) as caught:
        command_config("broker:9092", file)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
