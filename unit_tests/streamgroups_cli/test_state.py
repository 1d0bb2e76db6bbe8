"""S10: ``streamgroups state list``, ``show`` and ``verify`` read state files, and change nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from streamgroups.identity import UNKNOWN
from streamgroups.json_values import read_json
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState, Segment
from streamgroups_cli.output import json_text
from streamgroups_operators.locations import files_below
from streamgroups_operators.store import NewState, Operator, StateStore
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SCHEMA = pa.schema([("k0", pa.string()), ("p0", pa.int64())])
FIRST, SECOND = (StateFileName(n, "1f3a9c2b7d10", 1, n) for n in (1_000, 2_000))


def rows(**counts: int) -> pa.Table:
    return pa.table({"k0": list(counts), "p0": list(counts.values())}, schema=SCHEMA)


def new(tp: TopicPartition, first: int, end: int, *part: pa.Table | Segment) -> NewState:
    state = PartitionState(OffsetRange(tp, first, end), 0, UNKNOWN, values={"newest_ms": 60_000 + end})
    return NewState(state, {"60000": part})


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """The states of partition 0 at offsets 5 and 9, and of partition 1 at offset 7."""
    store = StateStore(Operator("board", "windows", "count(*)", SCHEMA), files_below(str(tmp_path), "board", "windows"))
    first = store.write(FIRST, [new(P0, 0, 5, rows(a=1)), new(P1, 0, 7, rows(b=2))])
    store.write(SECOND, [new(P0, 5, 9, *first.states[0].parts["60000"], rows(a=3, c=4))])
    return tmp_path


def file_of(location: Path, name: StateFileName) -> Path:
    return location / "board" / "windows" / str(name)


def test_list(cli: CommandLine, location: Path) -> None:
    size = sum(file_of(location, name).stat().st_size for name in (FIRST, SECOND))
    assert cli("state", "list", str(location)).out.splitlines() == [
        "GROUP  OPERATOR  PARTITIONS  FILES  BYTES  OLDEST                    NEWEST",
        f"board  windows            2      2  {size:5}  1970-01-01T00:00:01.000Z  1970-01-01T00:00:02.000Z",
    ]
    (found,) = json.loads(cli("state", "list", str(location), "board", "-o", "json").out)["states"]
    assert (found["group"], found["partitions"], found["bytes"]) == ("board", 2, size)


@pytest.mark.parametrize("command", ["list", "show", "verify"])
def test_a_repeated_group_counts_once(cli: CommandLine, location: Path, command: str) -> None:
    once = cli("state", command, str(location), "board", "-o", "json")
    assert cli("state", command, str(location), "board", "board", "-o", "json").out == once.out


def test_show_the_newest_state_of_each_partition(cli: CommandLine, location: Path) -> None:
    found = json.loads(cli("state", "show", str(location), "-o", "json").out)["states"]
    assert [(it["partition"], it["offset"], it["windows"], it["segments"], it["rows"]) for it in found] == [
        (0, 9, 1, 2, 3),
        (1, 7, 1, 1, 1),
    ]
    assert [(it["file"], it["newest_event_time"]) for it in found] == [
        (str(SECOND), "1970-01-01T00:01:00.009Z"),
        (str(FIRST), "1970-01-01T00:01:00.007Z"),
    ]


def test_show_the_state_from_which_a_reset_continues(cli: CommandLine, location: Path) -> None:
    result = cli("state", "show", str(location), "board", "--offset", "8", "-o", "json")
    found = json.loads(result.out)["states"]
    assert [(it["partition"], it["offset"]) for it in found] == [(0, 5), (1, 7)]


def test_C3_show_no_state_of_an_abandoned_program_after_a_restore(cli: CommandLine, location: Path) -> None:
    store = StateStore(Operator("board", "windows", "count(*)", SCHEMA), files_below(str(location), "board", "windows"))
    wrong, right = (new(P0, 5, end, rows(a=1)) for end in (8, 7))
    third, fourth = (StateFileName(n, "1f3a9c2b7d10", 1, n) for n in (3_000, 4_000))
    for file, state in ((third, wrong), (fourth, right)):
        store.write(file, [replace(state, state=replace(state.state, after=FIRST))])
    result = cli("state", "show", str(location), "board", "--offset", "8", "-o", "json")
    assert [it["file"] for it in json.loads(result.out)["states"]] == [str(fourth), str(FIRST)]


def test_show_the_rows_of_open_windows(cli: CommandLine, location: Path) -> None:
    lines = cli("state", "show", str(location), "--rows").out.splitlines()
    assert lines[-5:] == [
        "TOPIC    PARTITION  WINDOW-START              ROW",
        "flights          0  1970-01-01T00:01:00.000Z  k0=a, p0=1",
        "flights          0  1970-01-01T00:01:00.000Z  k0=a, p0=3",
        "flights          0  1970-01-01T00:01:00.000Z  k0=c, p0=4",
        "flights          1  1970-01-01T00:01:00.000Z  k0=b, p0=2",
    ]
    document = json.loads(cli("state", "show", str(location), "--rows", "-o", "json").out)
    assert document["rows"][0]["row"] == {"k0": "a", "p0": 1}


def test_show_the_rows_of_a_function(cli: CommandLine, tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.binary()), ("n", pa.int64())])
    store = StateStore(Operator("board", "counts", "n", schema), files_below(str(tmp_path), "board", "counts"))
    rows = pa.table({"key": [b"a", b"\xff"], "n": [1, 2]}, schema=schema)
    store.write(FIRST, [NewState(PartitionState(OffsetRange(P0, 0, 5), 0, UNKNOWN), {"rows": [rows]})])
    lines = cli("state", "show", str(tmp_path), "--rows").out.splitlines()
    assert [line.split(maxsplit=3)[3] for line in lines[-2:]] == ["key=a, n=1", r"key=\xff, n=2"]
    document = json.loads(cli("state", "show", str(tmp_path), "--rows", "-o", "json").out)
    assert [(it["window_start"], it["row"]) for it in document["rows"]] == [
        (None, {"key": "a", "n": 1}),
        (None, {"key": r"\xff", "n": 2}),
    ]


def test_json_has_no_number_that_is_not_json(cli: CommandLine, tmp_path: Path) -> None:
    """The values of records decide whether a sum is a number. Programs parse the document strictly."""
    schema = pa.schema([("carrier", pa.string()), ("total", pa.float64()), ("all", pa.list_(pa.float64()))])
    store = StateStore(Operator("board", "sums", "", schema), files_below(str(tmp_path), "board", "sums"))
    nan, inf = float("nan"), float("inf")
    rows = pa.table({"carrier": ["UA", "BA"], "total": [nan, -inf], "all": [[inf], [1.5]]}, schema=schema)
    store.write(FIRST, [NewState(PartitionState(OffsetRange(P0, 0, 5), 0, UNKNOWN), {"rows": [rows]})])
    out = cli("state", "show", str(tmp_path), "--rows", "-o", "json").out
    assert [it["row"] for it in read_json(out)["rows"]] == [
        {"carrier": "UA", "total": "NaN", "all": ["Infinity"]},
        {"carrier": "BA", "total": "-Infinity", "all": [1.5]},
    ]
    assert yaml.safe_load(cli("state", "show", str(tmp_path), "--rows", "-o", "yaml").out) == read_json(out)
    assert read_json(json_text({"rows": [{"total": nan}]})) == {"rows": [{"total": "NaN"}]}


def test_show_the_rows_of_sessions(cli: CommandLine, tmp_path: Path) -> None:
    schema = pa.schema([("start", pa.int64()), ("p0", pa.int64())])
    store = StateStore(Operator("board", "sessions", "", schema), files_below(str(tmp_path), "board", "sessions"))
    state = PartitionState(OffsetRange(P0, 0, 5), 0, UNKNOWN)
    starts = {"sessions": 90_000, "sessions flushed": 150_000}
    parts = {name: [pa.table({"start": [start], "p0": [1]}, schema=schema)] for name, start in starts.items()}
    store.write(FIRST, [NewState(state, parts)])
    rows = json.loads(cli("state", "show", str(tmp_path), "--rows", "-o", "json").out)["rows"]
    assert [row["window_start"] for row in rows] == ["1970-01-01T00:01:30.000Z", "1970-01-01T00:02:30.000Z"]


def test_show_the_rows_of_intervals_and_edges(cli: CommandLine, tmp_path: Path) -> None:
    schema = pa.schema([("first", pa.int64()), ("last", pa.int64()), ("begin", pa.int64())])
    store = StateStore(Operator("board", "trips", "", schema), files_below(str(tmp_path), "board", "trips"))
    state = PartitionState(OffsetRange(P0, 0, 5), 0, UNKNOWN, values={"open_edges": 1})
    carried = pa.table({"first": [60_000], "last": [90_000], "begin": [None]}, schema=schema)
    # The last row removes an edge that has ended.
    edges = pa.table({"first": [30_000, None], "last": [None, None], "begin": [31_000, 12_000]}, schema=schema)
    parts = {"120000": [carried], "intervals": [carried], "open": [edges]}
    store.write(FIRST, [NewState(state, parts)])
    found = json.loads(cli("state", "show", str(tmp_path), "--rows", "-o", "json").out)
    assert [(it["windows"], it["open_edges"]) for it in found["states"]] == [(1, 1)]
    assert [it["window_start"] and it["window_start"][14:19] for it in found["rows"]] == [
        "02:00",
        "01:00",
        "00:30",
        None,
    ]


def test_verify_intact_files(cli: CommandLine, location: Path) -> None:
    result = cli("state", "verify", str(location))
    assert (result.code, result.out) == (0, "2 files, 0 problems\n")


def test_verify_reports_a_damaged_file(cli: CommandLine, location: Path) -> None:
    file_of(location, SECOND).write_bytes(b"damaged")
    result = cli("state", "verify", str(location), "-o", "json")
    assert (result.code, json.loads(result.out)["problems"]) == (
        1,
        [
            {
                "group": "board",
                "operator": "windows",
                "file": str(SECOND),
                "problem": "is damaged: it is not a state file",
            }
        ],
    )


def test_verify_reports_a_file_that_another_one_needs(cli: CommandLine, location: Path) -> None:
    file_of(location, FIRST).unlink()
    result = cli("state", "verify", str(location), "board")
    assert result.code == 1
    assert result.out.splitlines()[-1].split(None, 3) == [
        "board",
        "windows",
        str(FIRST),
        f"does not exist, and {SECOND} needs it",
    ]
    shown = cli("state", "show", str(location), "--rows")
    assert (shown.code, "Run 'streamgroups state verify'" in shown.err) == (1, True)


def test_a_group_without_states(cli: CommandLine, location: Path) -> None:
    result = cli("state", "list", str(location), "billing")
    assert (result.code, result.out) == (1, "")
    assert "contains no states of the groups billing. Groups with states there: board." in result.err


def test_a_location_without_states(cli: CommandLine, tmp_path: Path) -> None:
    assert json.loads(cli("state", "list", str(tmp_path / "nothing"), "-o", "json").out)["states"] == []


def test_an_unsupported_location(cli: CommandLine) -> None:
    result = cli("state", "list", "ftp://user:hunter2@host/state")
    assert (result.code, "hunter2" in result.err) == (2, False)
