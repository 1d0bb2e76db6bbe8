"""The broker in a container behaves as the embedded broker does, and no container remains.

Part of the integration tests; skipped with a reason if Docker or the image is unavailable. Source: ``containers.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroups.errors import InvalidOption
from streamgroups_testkit.containers import (
    ContainerKafka,
    ContainerKafkaError,
    docker,
    reaper_available,
    why_unavailable,
)
from unit_tests.requirements import without

TOPIC, GROUP, RECORDS = "containers", "containers-group", 100
DEADLINE_S = 30.0


@pytest.fixture(scope="module", autouse=True)
def _docker_is_there() -> None:
    reason = why_unavailable()
    if reason is not None:
        without("containers", reason)


@pytest.fixture(scope="module")
def kafka() -> Iterator[ContainerKafka]:
    with ContainerKafka(properties={"log.retention.hours": 1}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(DEADLINE_S)
        yield kafka


def produce(bootstrap_servers: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(DEADLINE_S) == 0


def consume(bootstrap_servers: str, group: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    values: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.subscribe([TOPIC])
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(count - len(values), 0.5)]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def answers(bootstrap_servers: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=1.0)
    except KafkaException:
        return False
    return True


def exists(container_id: str) -> bool:
    client = docker.from_env()
    try:
        client.containers.get(container_id)
    except docker.errors.NotFound:
        return False
    finally:
        client.close()
    return True


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_records_go_through_and_kafkas_own_tool_sees_the_group(kafka: ContainerKafka) -> None:
    sent = [b"%d" % number for number in range(RECORDS)]
    produce(kafka.bootstrap_servers, sent)
    received = consume(kafka.bootstrap_servers, GROUP, RECORDS)
    assert sorted(received, key=lambda value: int(value or -1)) == sent

    described = kafka.run_tool("consumer-groups", "--describe", "--offsets", "--group", GROUP)
    assert described.returncode == 0, described.stderr
    rows = [line.split() for line in described.stdout.splitlines() if line.startswith(GROUP)]
    assert {row[1] for row in rows} == {TOPIC}
    assert sum(int(row[3]) for row in rows) == RECORDS
    assert {row[5] for row in rows} == {"0"}


def test_properties_reach_the_broker_and_win_over_the_defaults(kafka: ContainerKafka) -> None:
    reported = kafka.run_tool("configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    lines = {line.strip().split(" ")[0] for line in reported.stdout.splitlines()}
    assert {"log.retention.hours=1", "auto.create.topics.enable=false"} <= lines


def test_a_tool_reads_standard_input(kafka: ContainerKafka) -> None:
    topic = "containers-stdin"
    kafka.run_tool("topics", "--create", "--topic", topic)
    kafka.run_tool("console-producer", "--topic", topic, stdin="one\ntwo\n")
    ends = kafka.run_tool("get-offsets", "--topic", topic)
    assert ends.stdout.split() == [f"{topic}:0:2"]


def test_a_tool_that_takes_too_long_is_ended(kafka: ContainerKafka) -> None:
    with pytest.raises(ContainerKafkaError, match="took longer than 3 s"):
        kafka.run_tool("console-consumer", "--topic", TOPIC, "--group", "too-long", timeout_s=3)


def test_a_killed_node_comes_back_with_its_data_at_the_same_address(kafka: ContainerKafka) -> None:
    address = kafka.bootstrap_servers
    produce(address, [b"before"])
    kafka.kill_node(1)
    kafka.kill_node(1)
    assert not kafka.running
    assert not answers(address)
    kafka.restart_node(1)
    assert kafka.bootstrap_servers == address
    assert b"before" in consume(address, "after-the-kill", RECORDS + 1)


def test_a_paused_node_is_silent_until_it_resumes(kafka: ContainerKafka) -> None:
    kafka.pause_node(1)
    try:
        assert kafka.running
        assert not answers(kafka.bootstrap_servers)
    finally:
        kafka.resume_node(1)
    assert until(lambda: answers(kafka.bootstrap_servers))


def test_stop_removes_the_container() -> None:
    with ContainerKafka() as kafka:
        container_id = kafka.container_id
        assert exists(container_id)
    assert not exists(container_id)
    kafka.stop()
    with pytest.raises(ContainerKafkaError, match="not started"):
        _ = kafka.bootstrap_servers


def test_a_killed_test_run_leaves_no_container(tmp_path: Path) -> None:
    if reaper_available():
        pytest.skip("testcontainers' reaper does it here, after a time-out of its own")
    script = tmp_path / "run.py"
    script.write_text(
        "from streamgroups_testkit.containers import ContainerKafka\n"
        "import signal\n"
        "with ContainerKafka() as kafka:\n"
        "    print(kafka.container_id, flush=True)\n"
        "    signal.pause()\n"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=os.environ | paths
    ) as run:
        assert run.stdout is not None
        container_id = run.stdout.readline().strip()
        assert exists(container_id)
        run.send_signal(signal.SIGKILL)
    assert until(lambda: not exists(container_id))


def test_a_broker_that_cannot_start_gives_the_reason() -> None:
    with pytest.raises(ContainerKafkaError, match=r"num\.io\.threads"), ContainerKafka({"num.io.threads": "none"}):
        pass


@pytest.mark.parametrize("name", ["node.id", "log.dirs"])
def test_what_the_node_is_made_of_cannot_be_overridden(name: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        ContainerKafka({name: "7"})
