"""O2: wrong input results in a specific exit code and a message with a remedy, and changes nothing on a real broker."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from integration_tests.command_line import streamgroups
from streamgroups_cli.exits import ExitCode
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

#: A port without a listener.
NOWHERE = "127.0.0.1:1"


def cli(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return streamgroups(*arguments, "--bootstrap-server", bootstrap)


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> str:
    name = new_topic(2)
    produce(bootstrap, name, 20, partitions=2)
    return name


@pytest.fixture
def idle(bootstrap: str, topic: str) -> str:
    """A group without members, at offset 5 of both partitions."""
    group = f"idle-{uuid.uuid4().hex[:8]}"
    done = cli(bootstrap, "groups", "reset", group, "--topic", topic, "--to-offset", "5", "--execute")
    assert done.returncode == 0, done.stderr
    return group


@pytest.fixture(params=["classic", "consumer"])
def active(bootstrap: str, topic: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A group with a live member of another client, at offset 3 of both partitions."""
    group = f"active-{uuid.uuid4().hex[:8]}"
    cli(bootstrap, "groups", "reset", group, "--topic", topic, "--to-offset", "3", "--execute")
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "bob", "enable.auto.commit": "false"}
    member = Consumer({**settings, "group.protocol": request.param})
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.1) is not None, "bob reads")
    yield group
    member.close()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--topic", "does-not-exist", "--to-latest"], ExitCode.ERROR, "Topic 'does-not-exist'"),
        (["--topic", "{topic}:7", "--to-latest"], ExitCode.ERROR, "Partition {topic}-7 does not exist"),
        (["--topic", "{topic}", "--to-offset", "99", "--strict"], ExitCode.REJECTED, "Offset 99 is outside {topic}-0"),
        (["--topic", "{topic}", "--to-datetime", "yesterday"], ExitCode.USAGE, "Write it like 2026-01-31T12:00:00Z"),
        (["--topic", "{topic}"], ExitCode.USAGE, "Use one of --to-earliest"),
        (["--topic", "{topic}", "--to-latest", "--kafka", "sasl.mechanizm=X"], ExitCode.USAGE, "Did you mean"),
    ],
)
def test_a_reset(bootstrap: str, topic: str, idle: str, arguments: list[str], code: ExitCode, message: str) -> None:
    result = cli(bootstrap, "groups", "reset", idle, *(a.format(topic=topic) for a in arguments), "--execute")
    assert (result.returncode, result.stdout) == (code, "")
    assert message.format(topic=topic) in result.stderr
    assert committed_offsets(bootstrap, idle, topic) == {0: 5, 1: 5}


def test_an_active_group_of_another_client(bootstrap: str, topic: str, idle: str, active: str) -> None:
    for arguments in (
        ["reset", idle, active, "--topic", topic, "--to-latest"],
        ["delete", idle, active],
        ["delete-offsets", active, "--topic", topic],
    ):
        result = cli(bootstrap, "groups", *arguments, "--execute")
        assert (result.returncode, result.stdout) == (ExitCode.REJECTED, "")
        assert "bob (/" in result.stderr
        assert "nothing was changed" in result.stderr
    assert committed_offsets(bootstrap, idle, topic) == {0: 5, 1: 5}
    assert committed_offsets(bootstrap, active, topic) == {0: 3, 1: 3}


def test_a_broker_that_is_down(idle: str, topic: str) -> None:
    for arguments in (["list"], ["describe", idle], ["reset", idle, "--topic", topic, "--to-latest", "--execute"]):
        result = cli(NOWHERE, "groups", *arguments, "--timeout", "700ms")
        assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
        assert f"No broker can be reached. {NOWHERE}: connection refused." in result.stderr
        assert "Check that the broker runs" in result.stderr


def test_an_unknown_group(bootstrap: str) -> None:
    for arguments in (["describe", "unknown"], ["export", "unknown"], ["delete", "unknown", "--execute"]):
        result = cli(bootstrap, "groups", *arguments)
        assert (result.returncode, "unknown" in result.stderr) == (ExitCode.ERROR, True)
