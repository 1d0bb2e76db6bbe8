"""The embedded broker is a real Kafka: it starts, keeps its data, survives faults, and no process remains."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.tiers import LONG
from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker import EmbeddedKafka

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs. A process that has ended and has not been reaped does not run."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def java_processes(data_dir: Path) -> list[int]:
    """The ids of the JVMs with a data directory."""
    listed = subprocess.run(["ps", "-Awwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "kafka.Kafka" in line and str(data_dir) in line]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as running:
        yield running


def test_clients_and_kafkas_own_tools_reach_it(kafka: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic("flights", 6)]).values():
        future.result(20)
    described = kafka.run_tool("topics", "--describe", "--topic", "flights")
    assert described.returncode == 0, described.stderr
    assert "PartitionCount: 6" in described.stdout
    assert kafka.run_tool("consumer-groups", "--list").returncode == 0
    assert "Kafka Server started" in kafka.log_path(1).read_text()


@LONG
def test_a_record_goes_in_and_out(kafka: EmbeddedKafka) -> None:
    assert kafka.run_tool("topics", "--create", "--topic", "letters").returncode == 0
    sent = kafka.run_tool("console-producer", "--topic", "letters", stdin="a\nb\n")
    assert sent.returncode == 0, sent.stderr
    arguments = ["--topic", "letters", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"]
    assert kafka.run_tool("console-consumer", *arguments).stdout.split() == ["a", "b"]


def test_both_group_protocols_are_on(kafka: EmbeddedKafka) -> None:
    features = kafka.run_tool("features", "describe").stdout
    assert any(
        line.split()[1] == "group.version" and "FinalizedVersionLevel: 1" in line for line in features.splitlines()
    )


@LONG
def test_kept_data_is_the_same_cluster_again(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=tmp_path / "kept") as first:
        assert first.run_tool("topics", "--create", "--topic", "stays").returncode == 0
        before = first.cluster_id, first.bootstrap_servers
        with pytest.raises(EmbeddedBrokerError, match="Another embedded broker uses"):
            EmbeddedKafka(data_dir=tmp_path / "kept").start()
    assert java_processes(tmp_path) == []
    with pytest.raises(EmbeddedBrokerError, match=r"holds a cluster of 1 node\(s\), not 3"):
        EmbeddedKafka(nodes=3, data_dir=tmp_path / "kept").start()
    with EmbeddedKafka(data_dir=tmp_path / "kept") as second:
        assert (second.cluster_id, second.bootstrap_servers) == before
        assert "stays" in AdminClient({"bootstrap.servers": second.bootstrap_servers}).list_topics(timeout=20).topics


@pytest.mark.long
def test_three_nodes_lose_one_and_get_it_back() -> None:
    with EmbeddedKafka(nodes=3) as cluster:
        data_dir = cluster.data_dir
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for future in admin.create_topics([NewTopic("copied", 3, 3)]).values():
            future.result(20)

        def in_sync() -> set[int]:
            return {
                len(part.isrs) for part in admin.list_topics("copied", timeout=20).topics["copied"].partitions.values()
            }

        eventually(lambda: in_sync() == {3})
        cluster.kill_node(2)
        with pytest.raises(EmbeddedBrokerError, match=r"Node 2 .* died \(exit code 137\)"):
            cluster.require_running()
        eventually(lambda: in_sync() == {2}, 30)
        cluster.restart_node(2)
        eventually(lambda: in_sync() == {3}, 30)
        assert cluster.running
    assert not data_dir.exists()
    assert java_processes(data_dir) == []


def test_a_paused_node_answers_again_when_resumed(kafka: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    kafka.pause_node(1)
    try:
        with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT|timed out"):
            admin.list_topics(timeout=0.5)
    finally:
        kafka.resume_node(1)
    assert len(admin.list_topics(timeout=20).brokers) == 1


PARENT = """
import os, signal, sys
from streamgroups_broker import EmbeddedKafka
kafka = EmbeddedKafka()
kafka.start()
print(kafka.data_dir, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_of_the_parent_leaves_neither_java_nor_data() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert parent.returncode == -signal.SIGKILL
    data_dir = Path(parent.stdout.strip())
    assert data_dir.name.startswith("streamgroups-kafka-")
    eventually(lambda: java_processes(data_dir) == [])
    eventually(lambda: not data_dir.exists())


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EmbeddedBrokerError, match=f"Port {port} on 127.0.0.1 is already in use"):
            EmbeddedKafka(ports=[port]).start()


def test_a_broker_that_dies_on_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"(?s)Node 1 .* died.*num\.io\.threads"):
        EmbeddedKafka(data_dir=tmp_path, properties={"num.io.threads": "none"}).start()
    assert java_processes(tmp_path) == []


def test_what_cannot_be_fetched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STREAMGROUPS_MAVEN_REPOSITORY", (tmp_path / "empty").as_uri())
    with pytest.raises(EmbeddedBrokerError, match=r"kafka_2\.13;4\.1\.2.*STREAMGROUPS_MAVEN_REPOSITORY"):
        EmbeddedKafka().start()


@LONG
def test_the_command_line_runs_the_tools_of_kafka(kafka: EmbeddedKafka) -> None:
    kafka.run_tool("topics", "--create", "--topic", "tools", "--partitions", "3")

    def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from streamgroups_cli import main; main()", "broker", "tool", *arguments]
        environment = {**ENVIRONMENT, "STREAMGROUPS_BOOTSTRAP_SERVER": kafka.bootstrap_servers}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    described = tool("topics", "--describe", "--topic", "tools")
    assert (described.returncode, "PartitionCount: 3" in described.stdout) == (0, True), described.stderr
    assert tool("topics", "--describe", "--topic", "tools-2").returncode == 1


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_in_the_foreground_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    code = "from streamgroups_cli import main; main()"
    command = [sys.executable, "-c", code, "broker", "run", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline(), run.stdout.readline()]
        assert lines[1].startswith("bootstrap servers: 127.0.0.1:")
        run.send_signal(number)
        _, complaints = run.communicate(timeout=30)
    assert (run.returncode, complaints) == (0, "")
    assert java_processes(tmp_path) == []
    assert "shut down" in (tmp_path / "node-1" / "broker.log").read_text()
