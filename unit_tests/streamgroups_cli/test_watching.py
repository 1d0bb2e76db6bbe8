"""``streamgroups groups watch``: line after line in a pipe, and tables on a terminal. It continues after errors."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import BrokerUnreachable
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.time_entries import write_entry
from streamgroups.event_time.watermark import At
from streamgroups.fakes import FakeAdmin
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.monitoring.monitor import Monitor
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named
from streamgroups.state.state_time import GroupWindows, StateTime
from streamgroups_cli.groups.watch_views import Poll, screen
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def board(cli: CommandLine) -> CommandLine:
    cli.cluster.create_topic("flights", 2)
    for tp in (P0, P1):
        cli.cluster.produce(tp, 10, timestamp_ms=940_000)
    cli.cluster.commit("board", {P0: 4, P1: 10})
    cli.join("board", "flights")
    return cli


def watch(cli: CommandLine, *arguments: str, count: int = 2) -> str:
    result = cli("groups", "watch", "--interval", "100ms", "--count", str(count), *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


def test_a_line_for_each_group_and_poll(board: CommandLine) -> None:
    assert watch(board).splitlines() == [
        "TIME                      GROUP  STATE   MEMBERS  LAG  TIME-LAG  READ-PER-S  LAG-STATE",
        "1970-01-01T00:16:40.000Z  board  Stable        1    6        1m           -  unknown",
        "1970-01-01T00:16:40.000Z  board  Stable        1    6        1m           -  unknown",
    ]


def test_O3_a_lag_that_was_not_counted_is_marked(board: CommandLine) -> None:
    board.cluster.leave_gap(P0, 3)
    for arguments, lag, exact in ((["--count-limit", "0"], 9, False), ([], 6, True)):
        _, row = watch(board, *arguments, count=1).splitlines()
        assert row.split()[4] == (str(lag) if exact else f"<={lag}")
        (group,) = json.loads(watch(board, *arguments, "-o", "json", count=1))["groups"]
        assert (group["lag"], group["lag_exact"]) == (lag, exact)
        assert [(p["lag"], p["lag_exact"]) for p in group["partitions"]] == [(lag, exact), (0, True)]


def test_programs_get_one_document_for_each_poll(board: CommandLine) -> None:
    polls = [json.loads(line) for line in watch(board, "-o", "json").splitlines()]
    assert polls == list(yaml.safe_load_all(watch(board, "-o", "yaml")))
    assert len(polls) == 2
    (group,) = polls[0]["groups"]
    assert (group["lag"], group["time_lag_ms"], group["lag_state"]) == (6, 60_000, "unknown")
    assert [(p["owner"], p["lag"], p["lag_state"]) for p in group["partitions"]] == [
        ("alice", 6, "unknown"),
        ("alice", 0, "ok"),
    ]
    rows = list(csv.DictReader(io.StringIO(watch(board, "-o", "csv"))))
    assert [(r["group"], r["lag"], r["time_lag_ms"]) for r in rows] == [("board", "6", "60000")] * 2


def test_W2_groups_with_event_time_show_it(board: CommandLine) -> None:
    settings = TimeSettings(Generation())
    board.cluster.commit(
        event_time_group_of("board"), {P0: 4}, write_entry(PartitionTime(900, At(900), next_offset=4), settings)
    )
    board.cluster.commit(
        event_time_group_of("board"), {P1: 10}, write_entry(PartitionTime(300, At(300), next_offset=10), settings)
    )
    heading, line = watch(board, count=1).splitlines()
    assert (heading.split()[-1], line.split()[-1]) == ("WATERMARK", "1970-01-01T00:00:00.300Z")
    (poll,) = (json.loads(text) for text in watch(board, "-o", "json", count=1).splitlines())
    (group,) = poll["groups"]
    assert group["watermark"] == "1970-01-01T00:00:00.300Z"
    assert [(p["event_time"], p["time_state"]) for p in group["partitions"]] == [
        ("1970-01-01T00:00:00.900Z", "ahead"),
        ("1970-01-01T00:00:00.300Z", "holds back"),
    ]
    (row,) = csv.DictReader(io.StringIO(watch(board, "-o", "csv", count=1)))
    assert row["watermark"] == "1970-01-01T00:00:00.300Z"
    views = Poll(1_000_000, Monitor(board.admin, board.admin, board.clock, event_times=True).poll(), "broker:9092")
    groups, partitions = screen(views, 10)
    assert [column.name for column in groups.columns][-1] == "watermark"
    assert [column.name for column in partitions.columns][-3:] == ["event_time", "watermark", "time_state"]
    assert [(row[2], *row[-3:]) for row in partitions.rows] == [
        (0, "1970-01-01T00:00:00.900Z", "1970-01-01T00:00:00.900Z", "ahead"),
        (1, "1970-01-01T00:00:00.300Z", "1970-01-01T00:00:00.300Z", "holds back"),
    ]


def test_a_screen_has_the_worst_rows_first_and_as_many_as_fit(board: CommandLine) -> None:
    for number in range(9):
        board.cluster.commit(f"idle-{number}", {P0: number})
    poll = Poll(1_000_000, Monitor(board.admin, board.admin, board.clock).poll(), "broker:9092")
    groups, partitions = screen(poll, 6)
    assert (groups.heading, len(groups.rows)) == ("3 of 10 groups", 3)
    assert (partitions.heading, len(partitions.rows)) == ("3 of 11 partitions", 3)
    assert [row[0] for row in groups.rows] == ["idle-0", "idle-1", "idle-2"]
    assert [row[6] for row in partitions.rows] == [10, 9, 8]
    whole = screen(poll, 100)
    assert [table.heading for table in whole] == ["10 groups", "11 partitions"]
    assert [table.heading for table in screen(Poll(0, [], "broker:9092"), -5)] == ["0 groups", "0 partitions"]


def test_a_terminal_shows_tables_and_the_error_of_a_poll(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = 0
    describe_groups = FakeAdmin.describe_groups

    def away_at_the_second_poll(admin: FakeAdmin, group_ids: list[str]) -> object:
        nonlocal polls
        polls += 1
        board.cluster.reachable = polls != 2
        return describe_groups(admin, group_ids)

    monkeypatch.setattr(FakeAdmin, "describe_groups", away_at_the_second_poll)
    result = board.on_terminal("groups", "watch", "board", "--interval", "100ms", "--count", "2")
    assert result.code == 0
    assert all(text in result.out for text in ("1 group", "2 partitions", "board", "alice", "unknown"))
    assert "is unreachable" in result.out


def test_groups_can_be_named_before_they_are_there(board: CommandLine) -> None:
    (poll,) = (json.loads(line) for line in watch(board, "board", "later", "-o", "json", count=1).splitlines())
    assert [(g["group"], g["state"], g["lag"]) for g in poll["groups"]] == [
        ("board", "Stable", 6),
        ("later", "Dead", 0),
    ]


def test_a_cluster_that_is_away_for_a_while_is_no_reason_to_leave(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0
    describe_groups = FakeAdmin.describe_groups

    def away_at_the_second_poll(admin: FakeAdmin, group_ids: list[str]) -> object:
        nonlocal polls
        polls += 1
        if polls == 2:
            raise BrokerUnreachable("No broker responded.")
        return describe_groups(admin, group_ids)

    monkeypatch.setattr(FakeAdmin, "describe_groups", away_at_the_second_poll)
    result = board("groups", "watch", "board", "--interval", "100ms", "--count", "3", "-o", "json")
    assert (result.code, len(result.out.splitlines())) == (0, 2)
    assert result.err.startswith("Warning: ")
    assert board.connections == 2, "Certificates and addresses of the first connection can be the reason."


def test_a_cluster_that_never_answers_is(board: CommandLine) -> None:
    board.cluster.reachable = False
    assert board("groups", "watch").code == 1


@pytest.mark.parametrize(
    "arguments", [["--interval", "soon"], ["--interval", "0s"], ["--window", "x"], ["--count", "0"]]
)
def test_wrong_options(board: CommandLine, arguments: list[str]) -> None:
    assert board("groups", "watch", *arguments).code == 2


def commit_states(cli: CommandLine, *times: tuple[int, StateTime]) -> None:
    file = StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1)
    for tp, (next_offset, time) in zip((P0, P1), times, strict=True):
        mark = CommitMark(False, state=Named(file, next_offset, None, time))
        cli.cluster.commit("board", {tp: next_offset}, mark.encode())


def test_W5_windows_of_partitions_show_their_event_time(board: CommandLine) -> None:
    idle = StateTime(360_000, 300_000, is_idle=True)
    commit_states(board, (10, idle), (10, StateTime(300_000, 300_000)))
    heading, line = watch(board, count=1).splitlines()
    assert (heading.split()[-1], line.split()[-1]) == ("WATERMARK", "-")
    (group,) = json.loads(watch(board, "-o", "json", count=1))["groups"]
    assert group["watermark"] is None
    assert [(p["event_time"], p["watermark"], p["time_state"]) for p in group["partitions"]] == [
        ("1970-01-01T00:05:00.000Z", "1970-01-01T00:06:00.000Z", "idle"),
        ("1970-01-01T00:05:00.000Z", "1970-01-01T00:05:00.000Z", "active"),
    ]
    commit_states(board, (9, idle), (10, StateTime(300_000, 300_000)))
    (group,) = json.loads(watch(board, "-o", "json", count=1))["groups"]
    assert group["partitions"][0]["time_state"] == "active", "a record is available"


def test_W3_windows_of_a_group_show_which_partition_holds_it_back(board: CommandLine) -> None:
    slow, fast = (StateTime(ms, ms, group=GroupWindows(700)) for ms in (300, 900))
    for position, states, watermark in ((10, ["idle", "holds back"], 900), (9, ["holds back", "ahead"], 700)):
        commit_states(board, (position, slow), (10, fast))
        (group,) = json.loads(watch(board, "-o", "json", count=1))["groups"]
        assert group["watermark"] == f"1970-01-01T00:00:00.{watermark}Z"
        assert [p["time_state"] for p in group["partitions"]] == states
    board.cluster.delete_topic("flights")
    (group,) = json.loads(watch(board, "-o", "json", count=1))["groups"]
    assert [p["time_state"] for p in group["partitions"]] == [None, None]
