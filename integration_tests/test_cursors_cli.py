"""G1, G3-G7, G11, G16, O2: on a real broker the cursor commands do the same as the API calls, and reject the same
input.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.cursors.cursor_tokens import LIFETIME_MS, PartitionCursor, encode
from streamgroups_cli.exits import ExitCode
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.reading import committed_offsets, describe_group
from streamgroups_testkit.waits import wait_until

#: A port without a listener.
NOWHERE = "127.0.0.1:1"
COMMAND = [sys.executable, "-c", "from streamgroups_cli import main; main()", "cursors"]
PROTOCOLS = {
    "classic": ["--kafka", "group.protocol=classic", "--kafka", "session.timeout.ms=6000"],
    "consumer": ["--kafka", "group.protocol=consumer"],
}


class Shell:
    """Runs commands as a script does."""

    def __init__(self, bootstrap: str, state: Path) -> None:
        self.bootstrap, self.state = bootstrap, state
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(state),
            "STREAMGROUPS_BOOTSTRAP_SERVER": bootstrap,
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, check=False, env=self._environment
        )

    def create(self, stream: str, *arguments: str) -> str:
        done = self("create", stream, *arguments)
        assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
        return done.stdout.strip()

    def get(self, cursor: str, *arguments: str) -> tuple[list[str], str]:
        """The values without padding, and the next cursor."""
        done = self("get", cursor, "-o", "json", *arguments)
        assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
        read = json.loads(done.stdout)
        return [m["value"].rstrip(".") for m in read["messages"]], read["cursor"]

    def resume(self, command: str, cursor: str) -> str:
        done = self(command, cursor)
        assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
        return done.stdout.strip()

    @property
    def instances(self) -> list[Path]:
        directory = self.state / "streamgroups" / "cursors" / "instances"
        return list(directory.iterdir()) if directory.exists() else []

    def processes(self) -> list[int]:
        """The processes of this shell's instances, which listen at their sockets."""
        found = []
        for link in self.instances:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(os.readlink(link))
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                found.append(struct.unpack("3i", peer)[0])
        return found


@pytest.fixture
def shell(bootstrap: str, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(bootstrap, tmp_path)
    yield made
    for pid in made.processes():
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not made.instances, "the processes of instances have ended")


@pytest.fixture
def stream(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """A stream of twenty messages in one partition."""
    name = new_topic(1)
    produce(bootstrap, name, 20, partitions=1)
    return name


@pytest.fixture
def billing() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


def has_members(kafka: Broker, group: str) -> bool:
    return any(row["CLIENT-ID"] != "-" for row in describe_group(kafka, group))


def instance(group: str, name: str = "worker-1") -> list[str]:
    return ["--group", group, "--instance", name]


@LONG
@EITHER_PROTOCOL
def test_G1_G4_an_instance_lives_from_command_to_command(
    kafka: Broker, shell: Shell, stream: str, billing: str, protocol: str
) -> None:
    cursor = shell.create(stream, *instance(billing), *PROTOCOLS[protocol])
    (row,) = describe_group(kafka, billing)
    assert (row["CLIENT-ID"], row["PARTITION"]) == ("worker-1", "0")
    first, cursor = shell.get(cursor, "--limit", "8")
    assert (len(first), committed_offsets(shell.bootstrap, billing, stream)) == (8, {0: 0})
    second, cursor = shell.get(cursor, "--limit", "8")
    assert (len(second), committed_offsets(shell.bootstrap, billing, stream)) == (8, {0: 8})
    assert shell("leave", cursor).returncode == ExitCode.DONE
    wait_until(lambda: not shell.instances, "the process has ended")
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 8}
    # The group resumes at its position, independently of the cursor type.
    again = shell.create(stream, *instance(billing), "--type", "LATEST", *PROTOCOLS[protocol])
    rest, _ = shell.get(again)
    assert rest[:8] == second
    assert sorted(map(int, first + rest)) == list(range(20))


@LONG
def test_G7_commit_and_heartbeat(shell: Shell, stream: str, billing: str) -> None:
    cursor = shell.create(stream, *instance(billing), "--no-commit-on-get")
    _, cursor = shell.get(cursor, "--limit", "5")
    _, cursor = shell.get(cursor, "--limit", "5")
    cursor = shell.resume("heartbeat", cursor)
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 0}
    cursor = shell.resume("commit", cursor)
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 10}
    rest, _ = shell.get(cursor)
    assert len(rest) == 10


@LONG
def test_G3_G11_instances_share_and_take_over(shell: Shell, stream: str, billing: str) -> None:
    """Two instances share one partition: the second receives no messages before the first leaves."""
    first = shell.create(stream, *instance(billing, "worker-1"))
    taken = shell("create", stream, *instance(billing, "worker-1"))
    assert (taken.returncode, taken.stdout) == (ExitCode.REJECTED, "")
    assert "has a live member named 'worker-1'" in taken.stderr
    second = shell.create(stream, *instance(billing, "worker-2"))
    given, first = shell.get(first, "--limit", "4")
    assert len(given) == 4
    assert shell.get(second)[0] == []
    shell.resume("commit", first)
    shell.resume("leave", first)
    found: list[str] = []

    def taken_over() -> bool:
        nonlocal second
        more, second = shell.get(second)
        found.extend(more)
        return len(found) == 16

    wait_until(taken_over, "worker-2 has what worker-1 left", timeout_s=30)
    assert not set(found) & set(given)


@LONG
def test_G6_an_instance_that_is_silent_leaves_though_its_process_lives(
    kafka: Broker, shell: Shell, stream: str, billing: str
) -> None:
    # Longer than any command takes to start, also on a busy machine.
    cursor = shell.create(stream, *instance(billing), "--lease-timeout", "6s")
    began_s = time.monotonic()
    while time.monotonic() - began_s < 8:
        cursor = shell.resume("heartbeat", cursor)
    given, cursor = shell.get(cursor, "--limit", "5")
    wait_until(lambda: not has_members(kafka, billing), "it has left")
    assert len(shell.processes()) == 1
    for command in ("get", "heartbeat", "commit"):
        late = shell(command, cursor)
        assert (late.returncode, late.stdout) == (ExitCode.REJECTED, "")
        assert "longer than its timeout of 6 s" in late.stderr
        assert "Join again with streamgroups cursors create." in late.stderr
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 0}
    again = shell.create(stream, *instance(billing))
    assert shell.get(again, "--limit", "5")[0] == given


@LONG
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_instance_whose_process_is_ended(
    kafka: Broker, shell: Shell, stream: str, billing: str, how: signal.Signals
) -> None:
    # The instance leaves the group in an orderly way, long before the session timeout of 45 seconds.
    session = PROTOCOLS["classic"] if how is signal.SIGKILL else []
    cursor = shell.create(stream, *instance(billing), *session)
    _, cursor = shell.get(cursor)
    (pid,) = shell.processes()
    os.kill(pid, how)
    wait_until(lambda: not has_members(kafka, billing), "it has left", timeout_s=25)
    gone = shell("get", cursor)
    assert (gone.returncode, gone.stdout) == (ExitCode.REJECTED, "")
    assert "is not on this machine: it has left, or its process was ended" in gone.stderr
    assert shell.instances == []
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 0}


@LONG
def test_G16_a_partition_from_any_place(shell: Shell, bootstrap: str, new_topic: Callable[..., str]) -> None:
    stream = new_topic(2, retention_ms="-1")
    producer = ordered_producer(bootstrap)
    for n in range(10):
        producer.produce(stream, value=f"m{n}", partition=1, timestamp=1_357_016_400_000 + n * 1_000)
    producer.produce(
        stream, value=b"\xff\x00", key=b"k", headers=[("h", b"x")], partition=1, timestamp=1_357_016_500_000
    )
    assert producer.flush(30) == 0
    for arguments, first in (
        ([], "m0"),
        (["--type", "AT_OFFSET", "--offset", "7"], "m7"),
        (["--type", "after_offset", "--offset", "7"], "m8"),
        (["--type", "AT_TIME", "--time", "2013-01-01T05:00:04Z"], "m4"),
        (["--type", "AT_TIME", "--time", "1357016404500"], "m5"),
    ):
        cursor = shell.create(stream, "--partition", "1", *arguments)
        assert shell.get(cursor, "--limit", "1")[0] == [first]
    cursor = shell.create(stream, "-p", "1", "--type", "LATEST")
    assert shell.get(cursor)[0] == []
    cursor = shell.create(stream, "-p", "1", "--type", "AT_OFFSET", "--offset", "8")
    values, cursor = shell.get(cursor, "-n", "2")
    assert values == ["m8", "m9"]
    (last,) = json.loads(shell("get", cursor, "-o", "json").stdout)["messages"]
    assert (last["key"], last["value"], last["headers"], last["offset"]) == ("k", "0xff00", [["h", "x"]], 10)
    assert last["time"] == "2013-01-01T05:01:40.000Z"


@LONG
def test_G16_another_machine_reads_on_with_the_same_key(
    shell: Shell, stream: str, bootstrap: str, tmp_path: Path
) -> None:
    key = tmp_path / "cursor.key"
    key.write_bytes(os.urandom(32))
    given = ["--signing-key-file", str(key)]
    values, cursor = shell.get(shell.create(stream, "--partition", "0", *given), "-n", "5", *given)
    other = Shell(bootstrap, tmp_path / "other")
    more, _ = other.get(cursor, *given)
    assert len({*values, *more}) == 20
    rejected = other("get", cursor)
    assert (rejected.returncode, "signed with another key" in rejected.stderr) == (ExitCode.USAGE, True)


@LONG
def test_O2_wrong_input_changes_nothing(kafka: Broker, shell: Shell, stream: str, billing: str) -> None:
    group, partition = instance(billing), ["--partition", "0"]
    for arguments, code, message in (
        (["does-not-exist", *group], ExitCode.ERROR, "Stream 'does-not-exist' does not exist"),
        (["does-not-exist", *partition], ExitCode.ERROR, "If it exists: Grant Read on Topic"),
        ([stream, "--partition", "1"], ExitCode.ERROR, "has no partition 1. It has 1 partitions, numbered from 0."),
        ([stream, *partition, "--type", "AT_OFFSET", "--offset", "21"], ExitCode.USAGE, "the available offsets are [0, 20). Use an offset in"),
        ([stream, *group, "--type", "AT_TIME", "--time", "yesterday"], ExitCode.USAGE, "Write it like 2026-01-31T12:00:00Z"),
        ([stream, *group, "--kafka", "sesion.timeout.ms=1"], ExitCode.USAGE, "Did you mean 'session.timeout.ms'?"),
        ([stream, *group, "-b", NOWHERE, "--timeout", "1s"], ExitCode.ERROR, f"{NOWHERE}: connection refused. Check that the broker runs"),
        ([stream, *partition, "-b", NOWHERE, "--timeout", "1s"], ExitCode.ERROR, "Check that the broker runs"),
    ):  # fmt: skip
        result = shell("create", *arguments)
        assert (result.returncode, result.stdout) == (code, ""), result.stderr
        assert message in result.stderr
        assert "_cursor" not in result.stderr
    assert shell.instances == []
    assert describe_group(kafka, billing) == []


@LONG
def test_O2_cursors_that_are_no_good(shell: Shell, stream: str, billing: str, tmp_path: Path) -> None:
    # Longer than two dozen commands take, also on a busy machine.
    cursor = shell.create(stream, *instance(billing), "--lease-timeout", "5m")
    version, claims, signature = cursor.split(".")
    key = (tmp_path / "streamgroups" / "cursors" / "cursor.key").read_bytes()
    expired = encode(PartitionCursor(stream, 0, 0), key, time.time_ns() // 1_000_000 - LIFETIME_MS - 1_000)
    for wrong, code, message in (
        ("nonsense", ExitCode.USAGE, "This is not a cursor."),
        (f"{version}.{claims}.{signature[::-1]}", ExitCode.USAGE, "This cursor was altered"),
        (
            expired,
            ExitCode.REJECTED,
            "A cursor is valid for 5 minutes. Create a new cursor with streamgroups cursors create",
        ),
    ):
        for command in ("get", "heartbeat", "commit", "leave"):
            result = shell(command, wrong)
            assert (result.returncode, result.stdout) == (code, "")
            assert message in result.stderr
    of_partition = shell.create(stream, "--partition", "0")
    assert shell("commit", of_partition).returncode == ExitCode.USAGE
    assert shell("get", of_partition, "-b", NOWHERE, "--timeout", "1s").returncode == ExitCode.ERROR
    assert shell("get", cursor, "--limit", "10001").returncode == ExitCode.USAGE
    assert len(shell.get(cursor)[0]) == 20


@LONG
def test_messages_that_are_gone_are_reported(shell: Shell, stream: str, admin: AdminClient) -> None:
    cursor = shell.create(stream, "--partition", "0")
    tp = TopicPartition(stream, 0, 5)
    admin.delete_records([tp])[tp].result(30)
    result = shell("get", cursor)
    assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
    assert f"{stream}-0 no longer has offset 0: it contains [5, 20)." in result.stderr


@LONG
def test_a_script(shell: Shell, stream: str, billing: str, tmp_path: Path) -> None:
    """The script of the documentation."""
    document = (Path(__file__).parent.parent / "docs" / "cursors-cli.rst").read_text(encoding="utf-8")
    (script,) = [block for block in document.split(".. code-block:: bash\n")[1:] if "while true" in block]
    indented = takewhile(lambda line: not line.strip() or line.startswith("    "), script.splitlines())
    lines = [line[4:] for line in indented if line.strip()]
    text = "\n".join(lines).replace("localhost:9092", shell.bootstrap).replace("flights", stream)
    text = text.replace("billing", billing).replace("--limit 1000", "--limit 7").replace("handle", "tee -a handled")
    command = tmp_path / "bin" / "streamgroups"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from streamgroups_cli import main; main()" "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", text], check=True, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    handled = (tmp_path / "handled").read_text().splitlines()
    assert sorted(int(line.split()[-1].rstrip(".")) for line in handled) == list(range(20))
    assert committed_offsets(shell.bootstrap, billing, stream) == {0: 20}
    wait_until(lambda: not shell.instances, "the instance has left")
