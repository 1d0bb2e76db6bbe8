"""The files for Kafka and Ivy, and arguments that are rejected before anything starts."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker import EmbeddedKafka
from streamgroups_broker._cache import KafkaJars, cache_root
from streamgroups_broker._data_dir import Cluster, DataDir
from streamgroups_broker._ivy import could_not_fetch, ivy_module, ivy_settings, write_bootstrap_checkpoint
from streamgroups_broker._java import Java
from streamgroups_broker._node import port_in_use
from streamgroups_broker._ports import free_ports, is_free, require_free
from streamgroups_broker._properties import as_file, default_properties, node_properties
from streamgroups_broker._tools import TOOLS, tool_command


def test_properties_of_one_node_of_three() -> None:
    made = node_properties(2, [9001, 9002, 9003], [9011, 9012, 9013], Path("/data/node-2"), {})
    assert made["node.id"] == "2"
    assert made["process.roles"] == "broker,controller"
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:9012"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9002"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:9011,2@127.0.0.1:9012,3@127.0.0.1:9013"
    assert made["offsets.topic.replication.factor"] == "3"
    assert made["auto.create.topics.enable"] == "false"


def test_properties_of_the_user_win() -> None:
    made = node_properties(1, [9001], [9011], Path("/d"), {"auto.create.topics.enable": "true", "x.y": "z"})
    assert made["auto.create.topics.enable"] == "true"
    assert made["x.y"] == "z"


@pytest.mark.parametrize("name", ["node.id", "log.dirs", "controller.quorum.voters", "process.roles"])
def test_properties_of_the_embedded_broker_are_rejected(name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        EmbeddedKafka(properties={name: "1"})


def test_one_node_copies_nothing() -> None:
    copies = {value for name, value in default_properties(1).items() if name.endswith("replication.factor")}
    assert copies == {"1"}


def test_a_properties_file_is_escaped() -> None:
    assert as_file({"a b": " c\\d\né😀"}) == "a\\ b=\\ c\\\\d\\n\\u00e9\\ud83d\\ude00\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "1 to 3 nodes"),
        ({"ports": [9092, 9093]}, "1 distinct ports"),
        ({"nodes": 2, "ports": [9092, 9092]}, "2 distinct ports"),
        ({"ports": [70000]}, "distinct ports"),
        ({"version": "3.6.2"}, "3.7.0 or newer"),
    ],
)
def test_arguments_are_rejected_early(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        EmbeddedKafka(**arguments)  # type: ignore[arg-type]


def test_before_the_start_there_is_no_state() -> None:
    kafka = EmbeddedKafka()
    assert not kafka.running
    kafka.stop()
    for request in (lambda: kafka.bootstrap_servers, lambda: kafka.data_dir, lambda: kafka.kill_node(1)):
        with pytest.raises(EmbeddedBrokerError, match="not running"):
            request()


def test_every_tool_gets_the_address() -> None:
    assert tool_command("kafka-consumer-groups.sh", ["--list"], "h:1") == [
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", "h:1", "--list",
    ]  # fmt: skip
    assert tool_command("topics", ["--bootstrap-server", "other:1"], "h:1") == [
        TOOLS["topics"], "--bootstrap-server", "other:1",
    ]  # fmt: skip
    assert tool_command("storage", ["random-uuid"], "h:1") == ["kafka.tools.StorageTool", "random-uuid"]
    assert tool_command("org.example.Main", ["x"], "h:1") == ["org.example.Main", "x"]
    with pytest.raises(InvalidOption, match=r"no tool 'nonsense'.*consumer-groups"):
        tool_command("nonsense", [], "h:1")


def test_ivy_files_are_xml_and_the_mirror_is_escaped() -> None:
    resolver = ElementTree.fromstring(ivy_settings('https://m.example/a?b="1"&c', Path("/c"))).find("resolvers/ibiblio")
    assert resolver is not None
    assert resolver.attrib == {"name": "maven", "m2compatible": "true", "root": 'https://m.example/a?b="1"&c'}
    module = ElementTree.fromstring(ivy_module("4.1.2"))
    assert {(d.get("name"), d.get("rev")) for d in module.iter("dependency")} >= {
        ("kafka_2.13", "4.1.2"), ("kafka-tools", "4.1.2"),
    }  # fmt: skip


def test_a_failed_fetch_names_what_and_how_to_help() -> None:
    printed = "\t\t::          UNRESOLVED DEPENDENCIES\n\t\t:: org.apache.kafka#kafka_2.13;9.9.9: not found\n"
    error = could_not_fetch("Kafka 9.9.9", printed)
    assert "org.apache.kafka#kafka_2.13;9.9.9: not found" in error.what
    assert "STREAMGROUPS_MAVEN_REPOSITORY" in error.remedy
    assert str(cache_root()) in error.remedy


@pytest.mark.parametrize(
    "printed",
    [
        "\tServer access error at url https://ann:hunter2@maven.example/org/a.pom (java.io.IOException: 401)",
        "java.net.UnknownHostException: https://ann:hun@ter2@maven.example",
        "java.net.UnknownHostException: https://ann:hun/ter2@maven.example/maven2",
        "\n".join(["first", *["url=https://ann:hunter2@maven.example/org/a.pom is bad"] * 5]),
        "\t\t:: org.a#b;1: not found in https://hunter2@maven.example",
    ],
)
def test_a_failed_fetch_does_not_show_the_login_of_the_mirror(printed: str) -> None:
    what = could_not_fetch("Kafka 9.9.9", printed).what
    assert "https://***@maven.example" in what
    assert not {"ann", "hunter2", "hun", "ter2"} & set(re.findall(r"\w+", what))


def test_a_failed_storage_tool_does_not_show_the_login_of_the_mirror(tmp_path: Path) -> None:
    java = tmp_path / "java"
    # The last characters that are shown begin within the URL.
    java.write_text(f"#!/bin/sh\necho https://ann:hunter2@maven.example{'x' * 470}\nexit 1\n")
    java.chmod(0o700)
    with pytest.raises(EmbeddedBrokerError, match="StorageTool failed") as raised:
        write_bootstrap_checkpoint(KafkaJars("4.1.2", tmp_path, ()), Java(str(java), "17.0.15"))
    assert "hunter2" not in str(raised.value)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(EmbeddedBrokerError, match=f"Port {port} on 127.0.0.1 is already in use"):
            require_free([port])
    assert port_in_use("Socket server failed to bind to 127.0.0.1:9092: Address already in use.") == 9092


def test_free_ports_are_distinct_and_below_the_outgoing_range() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(20_000 <= port < 32_000 for port in ports)
    assert not set(free_ports(3, taken=ports)) & set(ports)


def test_a_data_directory_has_one_user_and_remembers(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(b"features")
    first = DataDir(tmp_path / "data")
    first.save(Cluster("A" * 22, 1, (9092,), (9093,)))
    log_dir = first.format_node(1, "A" * 22, checkpoint)
    meta = (log_dir / "meta.properties").read_text()
    with pytest.raises(EmbeddedBrokerError, match="Another embedded broker uses the data directory"):
        DataDir(tmp_path / "data")
    first.close()
    first.close()
    again = DataDir(tmp_path / "data")
    assert again.load() == Cluster("A" * 22, 1, (9092,), (9093,))
    again.format_node(1, "B" * 22, checkpoint)
    assert (log_dir / "meta.properties").read_text() == meta
    again.close()


def test_a_temporary_directory_is_deleted() -> None:
    data = DataDir(None)
    assert data.path.is_dir()
    data.close()
    assert not data.path.exists()


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedBrokerError, match="cannot be used"):
        DataDir(tmp_path / "file" / "data")


def test_a_foreign_cluster_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("[]")
    data = DataDir(tmp_path)
    with pytest.raises(EmbeddedBrokerError, match=r"cluster\.json is unreadable"):
        data.load()
    data.close()
