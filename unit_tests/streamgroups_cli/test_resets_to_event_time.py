"""O1: ``groups reset --to-event-time``: one cut for several groups, by timestamps or by a header."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamgroups.errors import NotAuthorized
from streamgroups.partitions import TopicPartition
from unit_tests.cli_runner import CommandLine, Result

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
MINUTE_MS = 60_000


def departs(cli: CommandLine, tp: TopicPartition, *minutes: int | None, behind: int = 0) -> None:
    """A record for each minute. Its timestamp is ``behind`` minutes later; ``None`` is a record without the header."""
    last = 0
    for minute in minutes:
        last = last if minute is None else minute
        headers = () if minute is None else (("ts", str(minute * MINUTE_MS).encode()),)
        cli.cluster.produce(tp, 1, headers=headers, timestamp_ms=(last + behind) * MINUTE_MS)


@pytest.fixture
def board(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli.cluster.create_topic("flights", 3)
    return cli


def reset(cli: CommandLine, minute: int, *arguments: str, groups: tuple[str, ...] = ("board",)) -> Result:
    time = ["--to-event-time", f"1970-01-01T00:{minute:02d}:00Z"]
    return cli("groups", "reset", *groups, "--topic", "flights", *time, *arguments)


def planned(result: Result) -> dict[int, tuple[Any, ...]]:
    assert result.code == 0, result.err
    return {m["partition"]: (m["to_offset"], m["detail"]) for m in json.loads(result.out)["moves"]}


def committed(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, int]:
    return {tp: c.next_offset for tp, c in cli.admin.committed_offsets([group_id])[group_id].items()}


def test_O1_the_first_record_at_or_after_the_cut_in_each_partition(board: CommandLine) -> None:
    departs(board, P0, 10, 20, 15, 30)
    departs(board, P1, 10, 11)
    assert planned(reset(board, 12, "-o", "json")) == {
        0: (1, ""),
        1: (2, "after all records"),
        2: (0, "no records"),
    }
    assert committed(board) == {}, "this is only the plan"


def test_O1_a_cut_before_the_first_retained_record_is_shown(board: CommandLine) -> None:
    departs(board, P0, 10, 20, 30)
    departs(board, P1, 20)
    board.cluster.delete_records(P0, 1)
    found = planned(reset(board, 12, "-o", "json"))
    assert found[0] == (1, "the earliest record; earlier ones are deleted")
    assert found[1] == (0, "")


def test_O1_several_groups_are_reset_to_one_cut_and_back(board: CommandLine) -> None:
    departs(board, P0, 10, 20, 15, 30)
    departs(board, P1, 10, 21)
    for group_id, offset in (("board", 4), ("counts", 2)):
        board.cluster.commit(group_id, {P0: offset, P1: 1})
    result = reset(board, 15, "--execute", groups=("board", "counts"))
    assert result.code == 0
    for group_id in ("board", "counts"):
        assert committed(board, group_id) == {P0: 1, P1: 1, P2: 0}
    (undo,) = re.findall(r"Undo it with: streamgroups (groups import \S+ --execute)", result.err)
    assert board(*undo.split()).code == 0
    assert (committed(board), committed(board, "counts")) == ({P0: 4, P1: 1}, {P0: 2, P1: 1})


def test_O1_no_group_is_reset_if_one_of_them_cannot_be(board: CommandLine) -> None:
    departs(board, P0, 10, 20)
    board.cluster.commit("board", {P0: 2})
    board.join("counts", "flights")
    result = reset(board, 15, "--execute", groups=("board", "counts"))
    assert (result.code, committed(board)) == (3, {P0: 2})
    assert "Group 'counts' is Stable with 1 member" in result.err


def test_O1_an_error_in_one_group_names_the_complete_ones_and_both_commands(board: CommandLine) -> None:
    departs(board, P0, 10, 20)
    for group_id in ("board", "counts", "sums"):
        board.cluster.commit(group_id, {P0: 2})
    board.admin.failures["counts", P0] = NotAuthorized("Not counts.")
    result = reset(board, 15, "--execute", groups=("board", "counts", "sums"))
    assert result.code == 4
    assert "8 of 9 partitions were moved. Complete: group 'board', 'sums'. Not moved: flights-0 of group 'counts'." in (
        result.err
    )
    board.admin.failures.clear()
    (rest,) = re.findall(r"Apply the rest with: streamgroups (groups import \S+ --execute)\.", result.err)
    assert board(*rest.split()).code == 0
    assert {committed(board, group_id)[P0] for group_id in ("board", "counts", "sums")} == {1}


class TestHeaders:
    def test_O1_the_header_counts_and_not_the_timestamp(self, board: CommandLine) -> None:
        departs(board, P0, 10, 20, 15, 30, behind=5)
        result = reset(board, 20, "--event-time-header", "ts", "-o", "json")
        assert planned(result)[0] == (1, "scanned 2 records from offset 0 to 1")
        assert "Scanning up to 3 offsets for header 'ts'." in result.err, "the timestamp of the last record is too late"
        assert planned(reset(board, 20, "-o", "json"))[0] == (1, "")
        assert planned(reset(board, 21, "-o", "json"))[0] == (1, "")
        found = planned(reset(board, 21, "--event-time-header", "ts", "--event-time-scan", "20m", "-o", "json"))
        assert found[0] == (3, "scanned 4 records from offset 0 to 3")

    def test_O1_a_record_before_the_timestamp_index_is_found(self, board: CommandLine) -> None:
        """Its producer wrote it before its event: a planned departure."""
        departs(board, P0, 10, 11, 12, behind=-5)
        departs(board, P0, 30)
        assert planned(reset(board, 11, "-o", "json"))[0] == (3, "")
        assert planned(reset(board, 11, "--event-time-header", "ts", "-o", "json"))[0][0] == 1

    def test_O1_the_scan_is_limited_on_both_sides(self, board: CommandLine) -> None:
        departs(board, P0, 0, 10, 20, 30, 40)
        arguments = ["--event-time-header", "ts", "--event-time-scan", "10m", "-o", "json"]
        assert planned(reset(board, 20, *arguments))[0] == (2, "scanned 2 records from offset 1 to 2")
        board.cluster.create_topic("flights", 3)
        departs(board, P0, 0, 10, 20, 30, 40, behind=15)
        assert planned(reset(board, 25, *arguments))[0] == (
            2,
            "scanned 2 records from offset 0 to 1, no record at or after the time",
        )

    def test_O1_records_without_the_header_have_no_event_time(self, board: CommandLine) -> None:
        departs(board, P0, 10, None, None, 20)
        departs(board, P1, None)
        found = planned(reset(board, 15, "--event-time-header", "ts", "--event-time-scan", "1h", "-o", "json"))
        assert found == {
            0: (3, "scanned 4 records from offset 0 to 3, 2 without the header"),
            1: (1, "scanned 1 record from offset 0 to 0, 1 without the header, no record at or after the time"),
            2: (0, "no records"),
        }

    def test_O1_a_header_that_no_scanned_record_has_is_rejected(self, board: CommandLine) -> None:
        departs(board, P0, 10, 20)
        result = reset(board, 15, "--event-time-header", "tz", "--execute")
        assert (result.code, committed(board), result.out) == (2, {}, "")
        assert "The 2 scanned records have no header 'tz' with milliseconds since 1970; nothing was changed." in (
            result.err
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to-event-time", "yesterday"], "Option '--to-event-time' is 'yesterday', which is not a time"),
        (["--to-event-time", "1970-01-01", "--to-latest"], "A reset requires exactly one target"),
        (["--to-latest", "--event-time-header", "ts"], "Option '--event-time-header' needs --to-event-time"),
        (["--to-event-time", "1970-01-01", "--event-time-scan", "5m"], "'--event-time-scan' needs --event-time-header"),
        (["--to-event-time", "1970-01-01", "--event-time-header", " "], "Option '--event-time-header' is empty"),
        (
            ["--to-event-time", "1970-01-01", "--event-time-header", "ts", "--event-time-scan", "0s"],
            "Option '--event-time-scan' is '0s'. It must be longer than 0.",
        ),
    ],
)
def test_O2_wrong_input_is_rejected_without_a_network(board: CommandLine, arguments: list[str], message: str) -> None:
    board.cluster.reachable = False
    result = board("groups", "reset", "board", "--topic", "flights", *arguments)
    assert (result.code, message in result.err) == (2, True), result.err
