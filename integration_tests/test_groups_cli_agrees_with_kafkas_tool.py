"""O1: each reset scenario of ``kafka-consumer-groups.sh`` results in the same positions as ours, and both tools show
the same groups.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.tiers import LONG
from streamgroups.errors import UnknownGroup
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.reading import committed_offsets, describe_group

PARTITIONS = 3
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def start_ms() -> int:
    """The timestamp of the first record: an hour ago, at a full minute, so that durations can reach it."""
    return (time.time_ns() // 1_000_000 // MINUTE_MS - 60) * MINUTE_MS


@pytest.fixture
def topic(bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], start_ms: int) -> str:
    """Three partitions: ten records a minute apart, the same without the earliest three records, and an empty one."""
    name = new_topic(PARTITIONS)
    producer = ordered_producer(bootstrap)
    for minute in range(10):
        for partition in (0, 1):
            producer.produce(name, str(minute), partition=partition, timestamp=start_ms + minute * MINUTE_MS)
    assert producer.flush(30) == 0
    gone = TopicPartition(name, 1, 3)
    admin.delete_records([gone])[gone].result(30)
    return name


def own(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return streamgroups("groups", *arguments, "--bootstrap-server", bootstrap)


def other(kafka: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kafka.run_tool("consumer-groups", *arguments)


def iso(timestamp_ms: int, zone: str = "") -> str:
    time_of_day = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
    return time_of_day.strftime("%Y-%m-%dT%H:%M:%S.000") + zone


SCENARIOS: dict[str, Callable[[int], list[str]]] = {
    "to-earliest": lambda start_ms: ["--to-earliest"],
    "to-latest": lambda start_ms: ["--to-latest"],
    "to-current": lambda start_ms: ["--to-current"],
    "to-offset inside": lambda start_ms: ["--to-offset", "5"],
    "to-offset before the oldest": lambda start_ms: ["--to-offset", "1"],
    "to-offset past the end": lambda start_ms: ["--to-offset", "99"],
    "to-datetime of a record": lambda start_ms: ["--to-datetime", iso(start_ms + 4 * MINUTE_MS)],
    "to-datetime between records": lambda start_ms: ["--to-datetime", iso(start_ms + 4 * MINUTE_MS + 1_000, "Z")],
    "to-datetime in another zone": lambda start_ms: ["--to-datetime", iso(start_ms + 64 * MINUTE_MS, "+01:00")],
    "to-datetime after all": lambda start_ms: ["--to-datetime", iso(start_ms + 600 * MINUTE_MS)],
    "to-datetime before all": lambda start_ms: ["--to-datetime", "1990-01-01T00:00:00.000"],
    # Half a minute after a record, so that both tools select the same record.
    "by-duration": lambda start_ms: ["--by-duration", _ago(start_ms + 6 * MINUTE_MS - 30_000)],
    "by-duration before all": lambda start_ms: ["--by-duration", "P7DT1H"],
    "by-duration of nothing": lambda start_ms: ["--by-duration", "PT0S"],
}
#: These scenarios need a committed offset in every partition.
SHIFTS = {"forward": "2", "back": "-2", "far forward": "1000", "far back": "-1000"}


def test_O1_python_describes_a_group_as_the_command_does(bootstrap: str, group: str, topic: str) -> None:
    with pytest.raises(UnknownGroup, match=f"'{group}' does not exist"):
        sg.groups.describe_group(group, bootstrap_servers=bootstrap)
    assert own(bootstrap, "reset", group, "--topic", topic, "--to-offset", "4", "--execute").returncode == 0
    described = sg.groups.describe_group(group, bootstrap_servers=bootstrap, settings={"client.id": "notebook"})
    (document,) = json.loads(own(bootstrap, "describe", group, "-o", "json").stdout)["groups"]
    names = ("partition", "committed_offset", "end_offset", "lag")
    in_python = [
        (it.topic_partition.partition, it.committed_offset, it.end_offset, it.records) for it in described.partitions
    ]
    assert in_python == [tuple(it[name] for name in names) for it in document["partitions"]]
    assert (described.state, described.lag, described.members) == (document["state"], document["lag"], ())
    heading, columns, *rows = own(bootstrap, "describe", group, "--no-time-lag").stdout.splitlines()
    own_in_python = str(described).splitlines()
    assert own_in_python[0].startswith(heading)
    assert (own_in_python[1].split(), len(own_in_python)) == (columns.split(), len(rows) + 2)
    assert described._repr_html_().count("<tr>") == len(rows) + 1


def _ago(timestamp_ms: int) -> str:
    return f"PT{(time.time_ns() // 1_000_000 - timestamp_ms) // 1000}S"


#: Each scenario starts Kafka's tool, a JVM. The others run in ``make test-long``.
IN_EACH_RUN = {"to-datetime between records"}


@pytest.mark.parametrize("scenario", [it if it in IN_EACH_RUN else pytest.param(it, marks=LONG) for it in SCENARIOS])
def test_every_scenario_leaves_the_same_positions(
    kafka: Broker, bootstrap: str, topic: str, start_ms: int, scenario: str
) -> None:
    arguments = SCENARIOS[scenario](start_ms)
    positions = {}
    for name in ("theirs", "ours"):
        group = f"{name}-{uuid.uuid4().hex[:8]}"
        # One partition of the three has a committed offset.
        own(bootstrap, "reset", group, "--topic", f"{topic}:0", "--to-offset", "4", "--execute")
        if name == "ours":
            result = own(bootstrap, "reset", group, "--topic", topic, *arguments, "--execute")
        else:
            result = other(kafka, "--reset-offsets", "--group", group, "--topic", topic, *arguments, "--execute")
        assert result.returncode == 0, result.stderr
        positions[name] = committed_offsets(bootstrap, group, topic)
    assert positions["ours"] == positions["theirs"]
    assert len(positions["ours"]) == PARTITIONS


@LONG
@pytest.mark.parametrize("shift", SHIFTS)
def test_shifting_leaves_the_same_positions(kafka: Broker, bootstrap: str, topic: str, shift: str) -> None:
    positions = {}
    for name in ("theirs", "ours"):
        group = f"{name}-{uuid.uuid4().hex[:8]}"
        own(bootstrap, "reset", group, "--topic", f"{topic}:0,1", "--to-offset", "5", "--execute")
        if name == "ours":
            result = own(bootstrap, "reset", group, "--all-topics", "--shift-by", SHIFTS[shift], "--execute")
        else:
            arguments = ["--group", group, "--all-topics", "--shift-by", SHIFTS[shift], "--execute"]
            result = other(kafka, "--reset-offsets", *arguments)
        assert result.returncode == 0, result.stderr
        positions[name] = committed_offsets(bootstrap, group, topic)
    assert positions["ours"] == positions["theirs"]


@LONG
def test_files_go_both_ways(kafka: Broker, bootstrap: str, topic: str, tmp_path: Path) -> None:
    source, copy, back = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "copy", "back"))
    own(bootstrap, "reset", source, "--topic", f"{topic}:0,1", "--to-offset", "7", "--execute")
    exported = own(bootstrap, "export", source).stdout
    assert exported == f"{topic},0,7\n{topic},1,7\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    read = other(kafka, "--reset-offsets", "--group", copy, "--from-file", str(file), "--execute")
    assert read.returncode == 0, read.stdout
    assert committed_offsets(bootstrap, copy, topic) == {0: 7, 1: 7}
    arguments = ["--reset-offsets", "--group", copy, "--all-topics", "--to-current", "--export", "--dry-run"]
    file.write_text("".join(f"{line}\n" for line in sorted(other(kafka, *arguments).stdout.split())))
    assert file.read_text() == exported
    result = own(bootstrap, "import", str(file), "--group", back, "--execute")
    assert result.returncode == 0, result.stderr
    assert committed_offsets(bootstrap, back, topic) == {0: 7, 1: 7}


def test_both_show_the_same_offsets_and_lag(kafka: Broker, bootstrap: str, topic: str, group: str) -> None:
    own(bootstrap, "reset", group, "--topic", topic, "--to-offset", "4", "--execute")
    result = {(r["TOPIC"], int(r["PARTITION"])): r for r in describe_group(kafka, group)}
    (shown,) = json.loads(own(bootstrap, "describe", group, "-o", "json").stdout)["groups"]
    assert {
        (p["topic"], p["partition"]): (str(p["committed_offset"]), str(p["end_offset"]), str(p["lag"]))
        for p in shown["partitions"]
    } == {tp: (r["CURRENT-OFFSET"], r["LOG-END-OFFSET"], r["LAG"]) for tp, r in result.items()}
    names = other(kafka, "--list").stdout.split()
    listed = json.loads(own(bootstrap, "list", "--internal", "-o", "json").stdout)["groups"]
    assert sorted(names) == [g["group"] for g in listed]


@LONG
def test_what_was_deleted_is_gone_for_both(kafka: Broker, bootstrap: str, topic: str, group: str) -> None:
    own(bootstrap, "reset", group, "--topic", topic, "--to-earliest", "--execute")
    assert own(bootstrap, "delete-offsets", group, "--topic", f"{topic}:0", "--execute").returncode == 0
    assert {r["PARTITION"] for r in describe_group(kafka, group)} == {"1", "2"}
    assert own(bootstrap, "delete", group, "--execute").returncode == 0
    assert group not in other(kafka, "--list").stdout.split()
