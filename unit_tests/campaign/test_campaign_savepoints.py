"""The check of a campaign of savepoints: its points, its judgement of commands, and the rows that a fork must have."""

from __future__ import annotations

import doctest
import importlib
import json
import signal
from collections import Counter
from hashlib import sha256
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from integration_tests.campaign import forks as campaign_forks
from integration_tests.campaign.forks import positions, reason, wrong_files
from integration_tests.campaign.savepoints import RECORD, Attempt, Creation, SavepointResults, command_points
from integration_tests.campaign.windows import PARTITIONS, Differences, compare
from integration_tests.killed_commands import CREATE_POINTS, RESTORE_POINTS, Point
from unit_tests.campaign.test_campaign_windows import COUNT, EXPECTED, ROWS


@pytest.mark.parametrize("point", {**CREATE_POINTS, **RESTORE_POINTS}.values())
def test_every_point_is_in_the_code(point: Point) -> None:
    owner = getattr(importlib.import_module(point.module), point.owner)
    assert callable(getattr(owner, point.function))


def test_a_round_has_every_point_once_and_the_seed_determines_the_order() -> None:
    n_round = len(CREATE_POINTS) + 3
    for n in (1, 2):
        found = list(islice(command_points(CREATE_POINTS, "create 7"), n * n_round))
        assert Counter(found) == {**dict.fromkeys(CREATE_POINTS, n), None: 3 * n}
        assert found == list(islice(command_points(CREATE_POINTS, "create 7"), n * n_round))
    assert found[:n_round] != list(islice(command_points(CREATE_POINTS, "create 8"), n_round))


SINCE = {partition: int(EXPECTED.offset.quantile(0.5)) + 100 * partition for partition in range(PARTITIONS)}
IS_LATER = [row.offset >= SINCE[row.partition] for row in EXPECTED.itertuples()]
LATER = [row for row, is_later in zip(ROWS, IS_LATER, strict=True) if is_later]


def test_a_fork_has_the_rows_whose_last_record_is_at_its_positions_or_later() -> None:
    assert 0 < len(LATER) < len(ROWS)
    assert compare(LATER, COUNT, since=SINCE) == Differences([], [], [])
    earlier = ROWS[IS_LATER.index(False)]
    assert len(compare([*LATER, earlier], COUNT, since=SINCE).different) == 1
    assert len(compare([*LATER, LATER[3]], COUNT, since=SINCE).repeated) == 1
    changed = json.dumps(json.loads(LATER[3]) | {"n": 999})
    found = compare([changed, *LATER[:3], *LATER[4:]], COUNT, since=SINCE)
    assert (len(found.different), found.repeated) == (1, [])


def test_every_row_that_a_fork_omits_is_missing() -> None:
    is_last = ~EXPECTED.duplicated(["start", "place"], keep="last")
    required = [row for row, is_later, last in zip(ROWS, IS_LATER, is_last.tolist(), strict=True) if is_later and last]
    assert compare(required, COUNT, since=SINCE) == Differences([], [], [])
    assert len(compare(required[1:], COUNT, since=SINCE).missing) == 1
    assert len(compare([], COUNT, since=SINCE).missing) == len(required)


@pytest.mark.parametrize(
    ("point", "code", "has_record", "status", "n_problems"),
    [
        ("before-record", -signal.SIGKILL, False, "incomplete", 0),
        ("before-record", -signal.SIGKILL, True, "complete", 1),
        ("after-record", -signal.SIGKILL, True, "complete", 0),
        ("after-record", -signal.SIGKILL, False, "incomplete", 1),
        (None, 0, True, "complete", 0),
        (None, 0, False, "incomplete", 1),
        (None, 1, False, "rejected", 0),
        (None, 1, True, "rejected", 1),
    ],
)
def test_only_a_command_that_has_written_its_record_leaves_a_savepoint(
    tmp_path: Path, point: str | None, code: int, has_record: bool, status: str, n_problems: int
) -> None:
    creation = Creation((), tmp_path, 1, 1, {}, dict, lambda _: None)
    (tmp_path / "made").mkdir()
    if has_record:
        (tmp_path / "made" / RECORD).write_text("{}")
    error = json.dumps({"error": {"code": "broker_unreachable"}})
    found = creation._judged(1, point, "made", CompletedProcess([], code, "", f"a warning\n{error}\n"))
    assert (found.status, len(creation.problems)) == (status, n_problems)


def test_an_error_that_no_fault_explains_is_a_problem(tmp_path: Path) -> None:
    creation = Creation((), tmp_path, 1, 1, {}, dict, lambda _: None)
    found = creation._judged(1, None, None, CompletedProcess([], 1, "", "Traceback\nKeyError: 7"))
    assert (found.why, len(creation.problems)) == ("exit code 1", 1)


def test_the_table_counts_kills_savepoints_and_forks() -> None:
    attempts = [
        Attempt(1, None, "a", "complete"),
        Attempt(2, "before-record", "b", "incomplete"),
        Attempt(3, "before-first-file", None, "incomplete"),
        Attempt(4, None, None, "rejected", "broker_unreachable"),
    ]
    results = SavepointResults(attempts, 1, Counter({"after-commit": 1}), 1, 2_000, differences=["a: a row"])
    assert results.incomplete == ["b"]
    cells = [line.rsplit(maxsplit=1) for line in results.to_text({"query": 2}).splitlines()[3:-2]]
    assert {name: n for name, n in cells if n != "0"} == {
        "kills: query": "2",
        "kills: create before-first-file": "1",
        "kills: create before-record": "1",
        "kills: restore after-commit": "1",
        "savepoints, complete": "1",
        "different positions of complete savepoints": "1",
        "savepoints, incomplete": "1",
        "commands that were rejected": "1",
        "commands that were killed before they created a directory": "1",
        "forks compared": "1",
        "rows of forks": "2,000",
        "differences": "1",
    }


def test_a_file_beside_those_of_the_record_is_a_problem(tmp_path: Path) -> None:
    record = {"operators": [{"name": "a/b", "files": [{"name": "1.state", "sha256": sha256(b"rows").hexdigest()}]}]}
    (tmp_path / RECORD).write_text(json.dumps(record))
    assert wrong_files(tmp_path) == ["states/a%2Fb/1.state"]
    states = tmp_path / "states" / "a%2Fb"
    states.mkdir(parents=True)
    (states / "1.state").write_bytes(b"rows")
    assert wrong_files(tmp_path) == []
    (states / "2.state").write_bytes(b"rows")
    assert wrong_files(tmp_path) == ["states/a%2Fb/2.state"]
    (states / "1.state").write_bytes(b"other")
    assert wrong_files(tmp_path) == ["states/a%2Fb/1.state", "states/a%2Fb/2.state"]


def test_an_error_of_a_fork_is_shown_without_its_traceback() -> None:
    assert doctest.testmod(campaign_forks) == (0, 2)
    assert reason("no error of this library") == "no error of this library"


def test_the_reason_of_a_failed_fork_is_not_its_plan() -> None:
    start = "Query 13b1 will not be restarted: 20 runs failed. [STREAM_FAILED] Query [id = 13b1] terminated with exception: "
    lost = "Job aborted: Task 0 failed: Lost task 0.0 in stage 59.0 (TID 118) (192.0.2.2 executor driver): "
    plan = "Driver stacktrace: SQLSTATE: XXKST\n=== Streaming Query ===\n\nLogical Plan:\nWriteToMicroBatchDataSource streamgroups\n+- ~Scan"
    java = "java.io.OptionalDataException\n\tat java.base/java.io.ObjectInputStream.readObject0(ObjectInputStream.java:1756)\n"
    python = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'n'\n"
    assert reason(f"{start}{lost}{java}\n{plan}") == "java.io.OptionalDataException"
    assert (
        reason(f"{start}{lost}{java}Caused by: java.lang.Error: first\nCaused by: java.net.E: last\n{plan}")
        == "java.net.E: last"
    )
    assert reason(f"{start}{lost}{python}\tat org.apache\nCaused by: {python}\n{plan}") == "KeyError: 'n'"


def test_the_positions_of_a_savepoint_are_read_without_the_tested_code(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps({"positions": [{"topic": "t", "partition": 2, "next_offset": 9}]}))
    assert positions(tmp_path) == {2: 9}
