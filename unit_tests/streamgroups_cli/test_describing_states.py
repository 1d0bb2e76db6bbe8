"""S10, O1: ``groups describe --state`` shows the states that committed offsets name."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.state.manifest import decode
from streamgroups.state.origins import Earlier, Named, New
from streamgroups.state.state_time import GroupWindows, StateTime
from streamgroups_operators.file_format import unpack
from unit_tests.cli_runner import CommandLine
from unit_tests.cli_states import NOW_MS, P0, P1, States

#: The bytes of one row of a state.
ROW_BYTES = pa.table({"n": [1]}).nbytes


@pytest.fixture
def states(cli: CommandLine, tmp_path: Path) -> States:
    """Partition 0 has a state in two files. A tool has reset partition 1."""
    states = States(cli, tmp_path)
    cli.cluster.produce(P0, 20, timestamp_ms=NOW_MS)
    cli.cluster.produce(P1, 20, timestamp_ms=NOW_MS)
    first = states.write(90, 10)
    [state] = decode(unpack(states.files.read(first))[0], first).states
    states.commit(15, states.write(2, 15, before=state.parts["0"]))
    states.commit(3, tp=P1)
    return states


def newest(states: States) -> str:
    return str(max(states.left()))


def state_of(cli: CommandLine, *arguments: str, partition: int = 0) -> Any:
    result = cli("groups", "describe", "board", "--state", *arguments, "-o", "json")
    assert (result.code, result.err) == (0, "")
    (group,) = json.loads(result.out)["groups"]
    return group["partitions"][partition]["state"]


def test_each_commit_and_the_state_that_it_names(cli: CommandLine, states: States) -> None:
    result = cli("groups", "describe", "board", "--state", "--state-location", str(states.location))
    assert (result.code, result.err) == (0, "")
    name, width = newest(states), len(newest(states))
    assert result.out.splitlines()[1:] == [
        "TOPIC    PARTITION  COMMITTED-OFFSET  STATE  STATE-OFFSET  AGE  EVENT-TIME  WATERMARK  TIME-STATE  ROWS  BYTES  "
        f"FILES  {'FILE':{width}}  DETAIL",
        "flights          0                15  named            15   2m  -           -          -              2     "
        f"{2 * ROW_BYTES}      2  {name}",
        "flights          1                 3  none              -    -  -           -          -              -      -  "
        "    -  -",
    ]


def test_without_a_location_the_size_is_unknown(cli: CommandLine, states: States) -> None:
    assert state_of(cli) == {
        "kind": "named",
        "offset": 15,
        "file": newest(states),
        "age_ms": 120_000,
        "event_time_ms": None,
        "watermark_ms": None,
        "time_state": None,
        "rows": None,
        "bytes": None,
        "files": None,
        "error": None,
    }
    assert state_of(cli, partition=1) is None


def test_C3_the_state_of_a_savepoint_that_no_batch_has_continued_yet(cli: CommandLine, states: States) -> None:
    file = states.write(30, 12)
    cli.cluster.commit("board", {P0: 15}, ToolMark(NO_RESET, state=Earlier(file, 12)).encode())
    found = state_of(cli, "--state-location", str(states.location))
    assert (found["kind"], found["offset"], found["file"], found["rows"]) == ("named", 12, str(file), 1)


def test_csv_has_the_age_in_milliseconds(cli: CommandLine, states: States) -> None:
    location = str(states.location)
    result = cli("groups", "describe", "board", "--state", "--state-location", location, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [(it["group"], it["partition"], it["state"], it["age_ms"], it["files"]) for it in rows] == [
        ("board", "0", "named", "120000", "2"),
        ("board", "1", "none", "", ""),
    ]


def test_a_starting_position_has_an_empty_state(cli: CommandLine, states: States) -> None:
    cli.cluster.commit("board", {P1: 0}, CommitMark(False, state=New()).encode())
    found = state_of(cli, partition=1)
    assert (found["kind"], found["file"]) == ("empty", None)


def commit_times(cli: CommandLine, states: States, *times: StateTime) -> None:
    """Commits the end of each partition, with a state of this event time."""
    for tp, time in zip((P0, P1), times, strict=True):
        named = Named(max(states.left()), 20, None, time)
        cli.cluster.commit("board", {tp: 20}, CommitMark(False, state=named).encode())


def test_W5_the_event_time_of_windows_of_partitions_is_shown(cli: CommandLine, states: States) -> None:
    event_ms, closed_ms = 1_732_334_870_000, 1_732_334_880_000
    commit_times(cli, states, StateTime(closed_ms, event_ms, is_idle=True), StateTime(event_ms, event_ms))
    names = ("event_time_ms", "watermark_ms", "time_state")
    shown = [tuple(state_of(cli, partition=p)[name] for name in names) for p in (0, 1)]
    assert shown == [(event_ms, closed_ms, "idle"), (event_ms, event_ms, "active")]
    lines = cli("groups", "describe", "board", "--state").out.splitlines()
    assert "2024-11-23T04:07:50.000Z  2024-11-23T04:08:00.000Z  idle" in lines[2]
    result = cli("groups", "describe", "board", "--state", "-o", "csv")
    rows = [tuple(it[name] for name in names) for it in csv.DictReader(io.StringIO(result.out))]
    assert rows == [(str(event_ms), str(closed_ms), "idle"), (str(event_ms), str(event_ms), "active")]


def test_W2_the_partition_that_holds_back_the_group_is_shown(cli: CommandLine, states: States) -> None:
    slow, fast = (StateTime(ms, ms, group=GroupWindows(ms)) for ms in (1_732_334_870_000, 1_732_334_880_000))
    commit_times(cli, states, slow, StateTime(fast.watermark_ms, group=GroupWindows()))
    assert [state_of(cli, partition=p)["time_state"] for p in (0, 1)] == ["holds back", "ahead"]


def test_a_state_that_cannot_be_read_is_shown_with_its_problem(cli: CommandLine, states: States) -> None:
    file = max(states.left())
    states.path(file).write_bytes(b"damaged")
    assert state_of(cli, "--state-location", str(states.location))["error"] == "damaged"
    states.path(file).unlink()
    assert state_of(cli, "--state-location", str(states.location))["error"] == "missing"
    assert state_of(cli, "--state-location", str(states.location / "elsewhere"))["error"] == "missing"


def test_views_are_not_combined(cli: CommandLine, states: States) -> None:
    assert cli("groups", "describe", "board", "--state", "--members").code == 2
    rejected = cli("groups", "describe", "board", "--state-location", str(states.location))
    assert (rejected.code, "Use it with --state." in rejected.err) == (2, True)


def test_W13_the_sizes_of_operators_behind_each_other_are_added(cli: CommandLine, states: States) -> None:
    for minutes_ago, end in ((90, 10), (2, 15)):
        states.write(minutes_ago, end, operator="peaks")
    # The state of an operator whose name has changed does not count.
    states.write(200, 5, operator="old")
    state = state_of(cli, "--state-location", str(states.location))
    assert (state["rows"], state["files"], state["error"]) == (3, 3, None)
