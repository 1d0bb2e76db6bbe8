"""``streamgroups cursors``: what each command prints and ends with, and how commands find the instance that a cursor belongs to."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import unit_tests.cli_cursors
from streamgroups.cursors.cursor_tokens import LIFETIME_MS, GroupCursor, PartitionCursor, encode
from streamgroups.errors import DataLoss
from streamgroups.partitions import TopicPartition
from streamgroups_cli.cursors import instance_process, opening, reading, requests
from streamgroups_cli.cursors.paths import signing_key
from unit_tests.cli_cursors import SESSION, FakeCursors, Instances, now_ms
from unit_tests.cli_runner import CommandLine

P0 = TopicPartition("flights", 0)
GROUP = ["--group", "billing", "--instance", "worker-1"]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the commands keep things."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "streamgroups" / "cursors"


@pytest.fixture
def stream(cli: CommandLine, state: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A stream of ten messages in one partition."""
    cli.cluster.create_topic("flights")
    for n in range(9):
        cli.cluster.produce(P0, key=b"k", value=f"m{n}".encode(), timestamp_ms=1_000 * n)
    cli.cluster.produce(P0, value=b"\xff\x00", timestamp_ms=9_000)
    monkeypatch.setattr(opening, "open_cursors", lambda servers, settings, key: FakeCursors(cli.cluster, key))
    return cli


@pytest.fixture
def instances(monkeypatch: pytest.MonkeyPatch) -> Iterator[Instances]:
    made = Instances(monkeypatch)
    yield made
    made.close()


def create(cli: CommandLine, *arguments: str) -> str:
    result = cli("cursors", "create", "flights", *arguments)
    assert (result.code, result.err) == (0, "")
    (cursor,) = result.out.splitlines()
    return cursor


def get(cli: CommandLine, cursor: str, *arguments: str) -> tuple[list[str], str]:
    """Values, and the next cursor."""
    result = cli("cursors", "get", cursor, "-o", "json", *arguments)
    assert (result.code, result.err) == (0, "")
    read = json.loads(result.out)
    return [m["value"] for m in read["messages"]], read["cursor"]


def committed(cli: CommandLine) -> int | None:
    found = cli.admin.committed_offsets(["billing"])["billing"].get(P0)
    return found and found.next_offset


# ---- cursors of partitions -------------------------------------------------------------------------------------------


def test_G16_a_partition_is_read_one_command_after_the_other(stream: CommandLine) -> None:
    cursor = create(stream, "--partition", "0", "--type", "at_offset", "--offset", "5")
    first, cursor = get(stream, cursor, "--limit", "2")
    second, cursor = get(stream, cursor)
    nothing, _ = get(stream, cursor)
    assert (first, second, nothing) == (["m5", "m6"], ["m7", "m8", "0xff00"], [])
    assert committed(stream) is None


def test_every_format(stream: CommandLine) -> None:
    cursor = create(stream, "--partition", "0", "--type", "AT_OFFSET", "--offset", "8")
    table = stream("cursors", "get", cursor)
    assert table.out.splitlines() == [
        "1970-01-01T00:00:08.000Z flights-0@8 k m8",
        "1970-01-01T00:00:09.000Z flights-0@9 null 0xff00",
    ]
    after = table.err.removeprefix("The next cursor: ").strip()
    assert get(stream, after)[0] == []
    assert stream("cursors", "get", cursor, "-o", "csv").out.splitlines() == [
        "time,topic,partition,offset,key,value",
        "1970-01-01T00:00:08.000Z,flights,0,8,k,m8",
        "1970-01-01T00:00:09.000Z,flights,0,9,,0xff00",
    ]
    from_json = json.loads(stream("cursors", "get", cursor, "-o", "json", "--show", "hex").out)
    from_yaml = yaml.safe_load(stream("cursors", "get", cursor, "-o", "yaml", "--show", "hex").out)
    assert from_json["messages"] == from_yaml["messages"]
    assert from_json["messages"][0] == {
        "time": "1970-01-01T00:00:08.000Z",
        "topic": "flights",
        "partition": 0,
        "offset": 8,
        "key": "0x6b",
        "value": "0x6d38",
        "headers": [],
    }
    assert list(from_json) == ["schema_version", "messages", "cursor"]
    made = stream("cursors", "create", "flights", "--partition", "0", "-o", "json").out
    assert list(json.loads(made)) == ["schema_version", "cursor"]


# ---- instances -------------------------------------------------------------------------------------------------------


def test_G4_a_get_commits_what_the_one_before_it_returned(stream: CommandLine, instances: Instances) -> None:
    cursor = create(stream, *GROUP)
    first, cursor = get(stream, cursor, "-n", "4")
    assert (first, committed(stream)) == (["m0", "m1", "m2", "m3"], 0)
    second, cursor = get(stream, cursor)
    assert (len(second), committed(stream)) == (6, 4)
    # The last messages come again, to this instance or to another.
    assert stream("cursors", "leave", cursor).code == 0
    instances.join()
    assert committed(stream) == 4


def test_G6_G7_heartbeats_and_commits_are_commands_of_their_own(stream: CommandLine, instances: Instances) -> None:
    cursor = create(stream, *GROUP, "--no-commit-on-get", "--lease-timeout", "1m")
    assert instances.jobs[0].instance_request["lease_timeout_ms"] == 60_000
    _, cursor = get(stream, cursor, "-n", "4")
    again, _ = get(stream, cursor, "-n", "1")
    assert (again, committed(stream)) == (["m4"], 0)
    beaten = stream("cursors", "heartbeat", cursor)
    assert (beaten.code, beaten.err, committed(stream)) == (0, "", 0)
    done = stream("cursors", "commit", beaten.out.strip(), "-o", "json")
    assert (done.code, committed(stream)) == (0, 4)
    assert get(stream, json.loads(done.out)["cursor"], "-n", "1")[0] == ["m4"]


def test_an_instance_that_has_left_is_reported_and_leaves_no_files(
    stream: CommandLine, instances: Instances, state: Path
) -> None:
    cursor = create(stream, *GROUP)
    assert [p.name for p in (state / "instances").iterdir()] == [SESSION]
    assert stream("cursors", "leave", cursor).code == 0
    instances.join()
    assert list((state / "instances").iterdir()) == []
    for command in ("get", "heartbeat", "commit", "leave"):
        result = stream("cursors", command, cursor)
        assert (result.code, result.out) == (3, "")
        assert "Instance 'worker-1' of group 'billing' is not on this machine: it has left" in result.err
        assert "Create a new cursor with streamgroups cursors create" in result.err


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied"),
        OSError(24, "Too many open files"),
        ConnectionAbortedError("It closed."),
    ],
)
def test_G3_an_instance_that_cannot_be_reached_can_be_live(
    stream: CommandLine, instances: Instances, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: object) -> None:
        raise error

    cursor = create(stream, *GROUP)
    with monkeypatch.context() as patch:
        patch.setattr("streamgroups_cli.cursors.requests.call", fail)
        result = stream("cursors", "commit", cursor)
    assert (result.code, "has left, or its process" in result.err, "Create a new cursor" in result.err) == (
        1,
        False,
        False,
    )
    assert f"could not be reached: {error.strerror or error}" in result.err
    assert "with its --signing-key-file" in result.err
    assert stream("cursors", "commit", cursor).code == 0


def test_an_instance_that_ends_during_a_request_is_reported(
    stream: CommandLine, instances: Instances, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    def fail(*_: object) -> None:
        (state / "instances" / SESSION).unlink()
        raise ConnectionResetError(104, "Connection reset by peer")

    cursor = create(stream, *GROUP)
    monkeypatch.setattr("streamgroups_cli.cursors.requests.call", fail)
    result = stream("cursors", "commit", cursor)
    assert (result.code, "is not on this machine: it has left" in result.err) == (3, True)


def test_G7_an_instance_that_was_evicted_is_reported(stream: CommandLine, instances: Instances) -> None:
    cursor = create(stream, *GROUP)
    # As if another process with this instance's key had made it leave; its own stays, to report it.
    instances.servers[0].answer({"do": "leave", "cursor": cursor})
    for command in ("get", "heartbeat", "commit"):
        result = stream("cursors", command, cursor)
        assert (result.code, result.out) == (3, ""), result.err
        assert "It left. Other instances continue its partitions" in result.err
        assert "Join again with streamgroups cursors create." in result.err


def test_an_instance_whose_process_was_killed_is_reported_and_removed(
    stream: CommandLine, instances: Instances, state: Path
) -> None:
    cursor = create(stream, *GROUP)
    stream("cursors", "leave", cursor)
    instances.join()
    # Its socket exists, and no process responds.
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as dead:
        address = Path(directory) / "its" / "socket"
        address.parent.mkdir()
        dead.bind(str(address))
        (state / "instances" / SESSION).symlink_to(address)
        assert stream("cursors", "heartbeat", cursor).code == 3
        assert not address.parent.exists()
    assert list((state / "instances").iterdir()) == []


def test_the_process_of_an_instance_ends_when_all_its_cursors_have_expired(
    stream: CommandLine, instances: Instances, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_process, "LIFETIME_MS", 0)
    create(stream, *GROUP)
    instances.join()
    assert list((state / "instances").iterdir()) == []


def test_errors_in_the_process_of_an_instance_are_reported_here(
    stream: CommandLine, instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = create(stream, *GROUP)

    def lost(*_: object) -> None:
        raise DataLoss("flights-0 has no offset 0 any more.", remedy="Reset the group with update_group.")

    def broken(*_: object) -> None:
        raise ValueError("An unexpected error.")

    monkeypatch.setattr(FakeCursors, "get_messages", lost)
    result = stream("cursors", "get", cursor)
    assert (result.code, result.out) == (1, "")
    assert result.err == "Error: flights-0 has no offset 0 any more. Reset the group with streamgroups groups reset.\n"
    monkeypatch.setattr(FakeCursors, "get_messages", broken)
    result = stream("cursors", "get", cursor)
    assert (result.code, "An unexpected error." in result.err) == (1, True)


def test_an_instance_that_cannot_join_leaves_nothing_behind(
    stream: CommandLine, instances: Instances, state: Path
) -> None:
    result = stream("cursors", "create", "flihgts", *GROUP)
    assert (result.code, result.out, result.err) == (1, "", "Error: There is no 'flihgts'.\n")
    instances.join()
    assert not (state / "instances").exists()


def test_an_instance_receives_the_connection_settings(stream: CommandLine, instances: Instances) -> None:
    create(stream, *GROUP, "-b", "kafka:1", "--kafka", "group.protocol=consumer", "--kafka", "client.id=me")
    (job,) = instances.jobs
    assert (job.bootstrap_servers, job.settings) == ("kafka:1", {"group.protocol": "consumer"})


# ---- files with a cursor in them --------------------------------------------------------------------------------------


def test_a_cursor_can_stay_in_a_file(stream: CommandLine, instances: Instances, tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    file.write_text(create(stream, *GROUP, "--no-commit-on-get") + "\n", encoding="utf-8-sig")
    at = f"@{file}"
    result = stream("cursors", "get", at, "-n", "1")
    assert (result.code, result.out, result.err) == (0, "1970-01-01T00:00:00.000Z flights-0@0 k m0\n", "")
    assert get(stream, at, "-n", "2")[0] == ["m1", "m2"]
    for command in ("commit", "heartbeat", "leave"):
        assert stream("cursors", command, at).out == ""
    assert committed(stream) == 3
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("cursor")] == ["cursor"]


def test_a_cursor_stays_as_it_is_when_a_request_fails(stream: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    before = create(stream, "--partition", "0")
    file.write_text(before)
    stream.cluster.reachable = False
    assert stream("cursors", "get", f"@{file}").code == 1
    assert file.read_text() == before


During = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> During:
    """Calls a function once, after the response to a command and before the command has received it."""
    request = requests.request_instance

    def call_during(command: str, function: Callable[[], object]) -> None:
        waiting = [function]

        def request_and_call(instance: GroupCursor, key: bytes, content: dict[str, Any]) -> dict[str, Any]:
            response = request(instance, key, content)
            if content["do"] == command and waiting:
                waiting.pop()()
            return response

        monkeypatch.setattr(reading, "request_instance", request_and_call)

    return call_during


def test_G4_a_heartbeat_in_the_background_keeps_the_cursor_of_a_later_get(
    stream: CommandLine, instances: Instances, tmp_path: Path, during: During
) -> None:
    file = tmp_path / "cursor"
    file.write_text(create(stream, *GROUP) + "\n")
    during("heartbeat", lambda: get(stream, f"@{file}", "-n", "2"))
    result = stream("cursors", "heartbeat", f"@{file}")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert get(stream, f"@{file}", "-n", "2")[0] == ["m2", "m3"]


def test_G4_a_get_replaces_the_cursor_of_a_heartbeat_in_the_background(
    stream: CommandLine, instances: Instances, tmp_path: Path, during: During, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cursor"
    file.write_text(create(stream, *GROUP) + "\n")
    at = f"@{file}"

    def renew() -> None:
        before = file.read_text()
        monkeypatch.setattr(unit_tests.cli_cursors, "now_ms", lambda: now_ms() + 1_000)
        assert stream("cursors", "heartbeat", at).code == 0
        assert file.read_text() != before

    during("get", renew)
    result = stream("cursors", "get", at, "-n", "2")
    assert (result.code, result.err) == (0, "")
    assert get(stream, at, "-n", "2")[0] == ["m2", "m3"]


@pytest.mark.parametrize("command", ["get", "commit"])
def test_a_command_keeps_the_different_cursor_of_another_one_and_prints_its_own(
    stream: CommandLine, instances: Instances, tmp_path: Path, during: During, command: str
) -> None:
    file = tmp_path / "cursor"
    file.write_text(create(stream, *GROUP, "--no-commit-on-get") + "\n", encoding="utf-8-sig")
    during(command, lambda: get(stream, f"@{file}", "-n", "2"))
    result = stream("cursors", command, f"@{file}")
    assert result.code == 0
    assert f"{file} was not changed: it no longer contains the cursor that this command has read" in result.err
    own = result.err.rpartition("The next cursor of this command: ")[2].strip()
    assert get(stream, f"@{file}", "-n", "2")[0] == ["m2", "m3"]
    assert stream("cursors", "get", own).code == 0


def test_a_heartbeat_does_not_create_a_deleted_file_again(
    stream: CommandLine, instances: Instances, tmp_path: Path, during: During
) -> None:
    file = tmp_path / "cursor"
    file.write_text(create(stream, *GROUP) + "\n")
    during("heartbeat", file.unlink)
    assert stream("cursors", "heartbeat", f"@{file}").code == 0
    assert not file.exists()


def test_a_cursor_that_cannot_be_written_is_in_the_error_and_in_no_other_file(
    stream: CommandLine, instances: Instances, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cursor"
    before = create(stream, *GROUP)
    file.write_text(before)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    result = stream("cursors", "heartbeat", f"@{file}")
    assert (result.code, f"{file} cannot be written: No space left on device." in result.err) == (2, True)
    assert "Continue with the cursor sgc1." in result.err
    assert (file.read_text(), [p.name for p in tmp_path.iterdir() if "cursor" in p.name]) == (before, ["cursor"])


def test_a_file_that_is_not_there(stream: CommandLine, tmp_path: Path) -> None:
    for command in ("get", "heartbeat", "commit", "leave"):
        result = stream("cursors", command, f"@{tmp_path}/nowhere")
        assert (result.code, f"{tmp_path}/nowhere cannot be read" in result.err) == (2, True)


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_the_users_key_is_made_once_and_is_his_alone(stream: CommandLine, state: Path) -> None:
    first, second = create(stream, "--partition", "0"), create(stream, "--partition", "0")
    key = state / "cursor.key"
    assert (stat.S_IMODE(key.stat().st_mode), key.stat().st_size) == (0o600, 32)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert [p.name for p in state.iterdir()] == ["cursor.key"]
    assert get(stream, first)[0] == get(stream, second)[0]


def test_a_key_can_be_given(stream: CommandLine, tmp_path: Path, state: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(os.urandom(16))
    cursor = create(stream, "--partition", "0", "--signing-key-file", str(file))
    assert len(get(stream, cursor, "--signing-key-file", str(file))[0]) == 10
    assert not state.exists()
    result = stream("cursors", "get", cursor)
    assert (result.code, result.out) == (2, "")
    assert "was altered, or it was signed with another key" in result.err
    assert "need one --signing-key-file" in result.err


# ---- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "A cursor requires an instance of a group"),
        (["--group", "billing"], "Set --group and --instance, or --partition."),
        ([*GROUP, "--partition", "0"], "A cursor requires an instance of a group"),
        ([*GROUP, "--type", "AT_OFFSET", "--offset", "1"], "Use TRIM_HORIZON, AT_TIME or LATEST for groups, or --partition."),
        ([*GROUP, "--type", "AT_TIME"], "The cursor type AT_TIME requires --time. Set --time."),
        ([*GROUP, "--time", "2013-01-01T00:00:00Z"], "The cursor type TRIM_HORIZON does not accept --time."),
        ([*GROUP, "--type", "AT_TIME", "--time", "yesterday"], "--time is 'yesterday', which is not a time"),
        ([*GROUP, "--type", "SOMEWHERE"], "Option '--type' is 'SOMEWHERE'. Allowed values: TRIM_HORIZON"),
        ([*GROUP, "--lease-timeout", "soon"], "Option '--lease-timeout' is 'soon', which is not a duration"),
        ([*GROUP, "--lease-timeout", "6m"], "--lease-timeout in milliseconds is 360000. It must be between 1,000 and 300,000."),
        (["--group", "billing.streamgroups", "--instance", "a"], "a name that streamgroups reserves"),
        (["--group", "billing", "--instance", " "], "--instance is ' ', which is not a valid name"),
        (["--partition", "-1"], "--partition"),
        (["--partition", "0", "--type", "AFTER_OFFSET"], "requires --offset. Set --offset."),
        (["--partition", "0", "--signing-key-file", "nowhere.key"], "nowhere.key cannot be read: No such file"),
        (["--partition", "0", "--lease-timeout", "1m"], "--lease-timeout and --commit-on-get require an instance of a group."),
        (["--partition", "0", "--no-commit-on-get"], "Omit them, or set --group and --instance."),
        (["--partition", "0", "--kafka", "group.id=x"], "Set the group with --group."),
    ],
)  # fmt: skip
def test_O2_wrong_input_is_rejected(
    stream: CommandLine, instances: Instances, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "group.id=x" not in arguments:
        # Without a request to the cluster.
        stream.cluster.reachable = False
    monkeypatch.setenv("COLUMNS", "400")
    result = stream("cursors", "create", "flights", *arguments)
    assert (result.code, result.out, instances.jobs) == (2, "", [])
    assert message in result.err


def test_a_key_that_is_too_short(stream: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"hunter2")
    result = stream("cursors", "create", "flights", "--partition", "0", "--signing-key-file", str(file))
    assert (result.code, "hunter2" in result.err) == (2, False)
    assert f"The key in {file} has 7 bytes; it needs at least 16." in result.err


def test_G5_cursors_that_are_no_good(stream: CommandLine, instances: Instances) -> None:
    cursor = create(stream, *GROUP)
    version, claims, signature = cursor.split(".")
    expired = encode(PartitionCursor("flights", 0, 0), signing_key(None), now_ms() - LIFETIME_MS - 2_000)
    for wrong, code, message in (
        ("nonsense", 2, "This is not a cursor."),
        (f"{version}.{claims[:-4]}AAAA.{signature}", 2, "This cursor was altered"),
        (f"sgc9.{claims}.{signature}", 2, "has version 'sgc9'"),
        (expired, 3, "s ago. A cursor is valid for 5 minutes. Create a new cursor with streamgroups cursors create"),
    ):
        for command in ("get", "heartbeat", "commit", "leave"):
            result = stream("cursors", command, wrong)
            assert (result.code, result.out) == (code, "")
            assert message in result.err
    assert get(stream, cursor, "-n", "1")[0] == ["m0"]


def test_a_cursor_of_a_partition_has_nothing_to_commit(stream: CommandLine) -> None:
    cursor = create(stream, "--partition", "0")
    for command in ("heartbeat", "commit", "leave"):
        result = stream("cursors", command, cursor)
        assert (result.code, "which belongs to no group. Commit, heartbeat and leave require" in result.err) == (
            2,
            True,
        )


@pytest.mark.parametrize("limit", ["0", "10001", "x"])
def test_G4_a_limit_that_cannot_be(stream: CommandLine, limit: str) -> None:
    result = stream("cursors", "get", create(stream, "--partition", "0"), "--limit", limit)
    assert (result.code, "--limit" in result.err) == (2, True)


def test_a_cluster_that_does_not_answer(stream: CommandLine, instances: Instances) -> None:
    cursor = create(stream, "--partition", "0")
    stream.cluster.reachable = False
    for arguments in (["create", "flights", "--partition", "0"], ["create", "flights", *GROUP], ["get", cursor]):
        result = stream("cursors", *arguments)
        assert (result.code, result.out, result.err.startswith("Error: ")) == (1, "", True)


def test_a_directory_that_cannot_be_made(stream: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    result = stream("cursors", "create", "flights", "--partition", "0")
    assert (result.code, "Set XDG_STATE_HOME to a directory that you can write." in result.err) == (2, True)


def test_a_request_to_an_instance_loads_no_client(state: Path) -> None:
    code = (
        "import sys; sys.argv = ['streamgroups', 'cursors', 'heartbeat', 'x']\n"
        "from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit as e: print(e.code)\n"
        "heavy = ('pyspark', 'confluent_kafka', 'kafka', 'pyarrow', 'pandas', 'yaml', 'prometheus_client')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.splitlines() == ["2", "[]"]
