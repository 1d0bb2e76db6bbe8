"""O1, O2: ``reset``, ``export``, ``import``, ``delete`` and ``delete-offsets``: plans, undo files, rejections, partial changes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import members_group_of, resets_group_of
from streamgroups.errors import BrokerUnreachable, InvalidOption, NotAuthorized, StreamGroupsError
from streamgroups.fakes import FakeAdmin, FakeExecutor
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.history import no_history
from streamgroups.groups.lag import FirstOfLag
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.reset_participation import ResetParticipation
from streamgroups_admin.groups import applying as changing
from streamgroups_admin.groups import live_reset
from unit_tests.cli_runner import CommandLine

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
#: The committed offsets of the group when a test begins.
BEFORE = {P0: Committed(4, "streamgroups:shared"), P1: Committed(6)}


@pytest.fixture
def board(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli.cluster.create_topic("flights", 3)
    for tp in (P0, P1, P2):
        for hour in range(10):
            cli.cluster.produce(tp, 1, timestamp_ms=hour * 3_600_000)
    cli.cluster.delete_records(P1, 2)
    cli.clock.now_ms = 10 * 3_600_000
    cli.admin.alter_offsets("board", BEFORE)
    return cli


def committed(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, int]:
    return {tp: c.next_offset for tp, c in cli.admin.committed_offsets([group_id])[group_id].items()}


def untouched(cli: CommandLine) -> bool:
    return cli.admin.committed_offsets(["board"])["board"] == BEFORE


def is_restored(cli: CommandLine, *partitions: TopicPartition) -> bool:
    """Whether the group has its earlier offsets again, each with the mark of one command (SEMANTICS F2).

    No member takes it for its own commit: a ledger that is ahead of them follows them.
    """
    found = cli.admin.committed_offsets(["board"])["board"]
    marks = [ToolMark.parse(found[tp].metadata) for tp in partitions or found]
    ids = {mark.reset.id for mark in marks if mark is not None}
    return committed(cli) == {tp: it.next_offset for tp, it in BEFORE.items()} and None not in marks and len(ids) == 1


def undo_command(err: str) -> list[str]:
    (found,) = re.findall(r"[Uu]ndo (?:it|the changes) with: streamgroups (groups (?:import|undo) \S+ --execute)", err)
    return str(found).split()


def test_a_plan_is_shown_and_nothing_is_changed(board: CommandLine) -> None:
    result = board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5")
    assert (result.code, untouched(board)) == (0, True)
    assert result.err == "Nothing was changed: this is the plan. --execute applies it.\n"
    assert result.out.splitlines() == [
        "GROUP  TOPIC    PARTITION  FROM-OFFSET  TO-OFFSET  RECORDS  FROM-TIME                 TO-TIME                   TIME  DETAIL",
        "board  flights          0            4          5       +1  1970-01-01T04:00:00.000Z  1970-01-01T05:00:00.000Z   +1h",
        "board  flights          1            6          5       -1  1970-01-01T06:00:00.000Z  1970-01-01T05:00:00.000Z   -1h",
        "board  flights          2            -          5        -  -                         1970-01-01T05:00:00.000Z     -",
    ]


def test_the_times_of_a_plan_are_read_again_from_a_slow_broker(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = board.admin.first_records
    slow = [P1, P0]

    def with_time_limit(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstOfLag]:
        found = read(offsets)
        if slow:
            found.pop(slow.pop(), None)
        return found

    monkeypatch.setattr(board.admin, "first_records", with_time_limit)
    command = ("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute", "-o", "json")
    result = board(*command)
    assert (result.code, slow) == (0, [])
    moves = json.loads(result.out)["moves"]
    assert [(it["from_time"], it["to_time"]) for it in moves] == [
        ("1970-01-01T04:00:00.000Z", "1970-01-01T05:00:00.000Z"),
        ("1970-01-01T06:00:00.000Z", "1970-01-01T05:00:00.000Z"),
        (None, "1970-01-01T05:00:00.000Z"),
    ]
    assert "The broker did not return" not in result.err
    slow += [P2] * 9
    assert "The broker did not return the times of 1 of the offsets in time." in board(*command).err


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (["--to-earliest"], {P0: 0, P1: 2, P2: 0}),
        (["--to-latest"], {P0: 10, P1: 10, P2: 10}),
        (["--to-current"], {P0: 4, P1: 6, P2: 10}),
        (["--to-offset", "1"], {P0: 1, P1: 2, P2: 1}),
        (["--to-offset", "11"], {P0: 10, P1: 10, P2: 10}),
        (["--to-datetime", "1970-01-01T03:30:00.000"], {P0: 4, P1: 4, P2: 4}),
        (["--to-datetime", "1970-01-01T03:30:00+01:00"], {P0: 3, P1: 3, P2: 3}),
        (["--to-datetime", "1970-01-02T00:00:00Z"], {P0: 10, P1: 10, P2: 10}),
        (["--by-duration", "PT7H"], {P0: 3, P1: 3, P2: 3}),
        (["--by-duration", "9h30m"], {P0: 1, P1: 2, P2: 1}),
    ],
)
def test_O1_every_scenario_moves_every_partition(
    board: CommandLine, scenario: list[str], expected: dict[TopicPartition, int]
) -> None:
    result = board("groups", "reset", "board", "--topic", "flights", *scenario, "--execute")
    assert (result.code, committed(board)) == (0, expected)
    assert board(*undo_command(result.err)).code == 0
    assert is_restored(board)


@pytest.mark.parametrize(
    ("shift", "expected"), [("2", {P0: 6, P1: 8}), ("-5", {P0: 0, P1: 2}), ("9", {P0: 10, P1: 10})]
)
def test_O1_shifting(board: CommandLine, shift: str, expected: dict[TopicPartition, int]) -> None:
    result = board("groups", "reset", "board", "--all-topics", "--shift-by", shift, "--execute")
    assert (result.code, committed(board)) == (0, expected)


def test_shifting_partitions_without_position_is_rejected_completely(board: CommandLine) -> None:
    result = board("groups", "reset", "board", "--topic", "flights", "--shift-by", "1", "--execute")
    assert (result.code, untouched(board)) == (3, True)
    assert "no committed offset for flights-2" in result.err


def test_an_offset_outside_is_moved_to_the_nearer_end_with_a_warning(board: CommandLine) -> None:
    arguments = ["groups", "reset", "board", "--topic", "flights:0,1", "--to-offset", "1"]
    result = board(*arguments, "-o", "json")
    assert result.err.startswith("Warning: Offset 1 is outside flights-1 [2, 10]: offset 2 is used.\n")
    assert [(m["to_offset"], m["detail"]) for m in json.loads(result.out)["moves"]] == [(1, ""), (2, "requested 1")]
    rejected = board(*arguments, "--strict", "--execute")
    assert (rejected.code, untouched(board)) == (3, True)
    assert "Offset 1 is outside flights-1 [2, 10]; nothing was changed." in rejected.err


def test_the_error_names_a_group_with_members(board: CommandLine) -> None:
    member = board.join("other", "flights")
    before = committed(board, "other")
    arguments = ["groups", "reset", "board", "other", "--topic", "flights", "--to-latest", "--execute"]
    result = board(*arguments)
    assert (result.code, untouched(board), committed(board, "other")) == (3, True, before)
    assert result.out == ""
    assert "Group 'other' is Stable with 1 member, alice (/127.0.0.1): it cannot be reset." in result.err
    member.close()
    assert board(*arguments).code == 0


def test_the_broker_rejects_a_change_if_a_member_joins_in_between(board: CommandLine) -> None:
    def join() -> None:
        board.admin.before_change = lambda: None
        board.join("board", "flights")

    board.admin.before_change = join
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert (result.code, "has members" in result.err) == (3, True)
    assert committed(board)[P0] == 4


def test_a_group_that_does_not_exist_is_made(board: CommandLine) -> None:
    result = board("groups", "reset", "new", "--topic", "flights:1", "--to-earliest", "--execute")
    assert (result.code, committed(board, "new")) == (0, {P1: 2})
    assert "These groups will be created by the commit: new." in result.err
    board(*undo_command(result.err))
    assert committed(board, "new") == {}


def test_topics_that_are_gone_are_left_out_of_all_topics(board: CommandLine) -> None:
    board.cluster.commit("board", {TopicPartition("gone", 0): 3})
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert (result.code, committed(board)[P0], committed(board)[TopicPartition("gone", 0)]) == (0, 10, 3)
    assert "Skipped, because they no longer exist: gone-0." in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["board", "--topic", "flihgts", "--to-latest"], 1, "Topic 'flihgts'"),
        (["board", "--topic", "flights:7", "--to-latest"], 1, "Partition flights-7 does not exist"),
        (["board", "--topic", "flights:x", "--to-latest"], 2, "--topic flights:x is invalid"),
        (["board", "--topic", "flights", "--to-datetime", "yesterday"], 2, "'yesterday', which is not a time"),
        (["board", "--topic", "flights", "--to-datetime", "1969-12-31"], 2, "is before 1970"),
        (["board", "--topic", "flights", "--by-duration", "soon"], 2, "'soon', which is not a duration"),
        (["board", "--topic", "flights"], 2, "A reset requires exactly one target"),
        (["board", "--topic", "flights", "--to-latest", "--to-earliest"], 2, "A reset requires exactly one target"),
        (["board", "--to-latest"], 2, "The partitions are missing"),
        (["board", "--topic", "flights", "--all-topics", "--to-latest"], 2, "exclude each other. Omit one of them."),
        (
            ["--topic", "flights", "--to-latest"],
            2,
            "The groups are missing. Name one or more groups, or use --all-groups.",
        ),
        (["board", "--topic", "flights", "--to-offset", "x"], 2, "--to-offset"),
    ],
)
def test_O2_wrong_input_changes_nothing(board: CommandLine, arguments: list[str], code: int, message: str) -> None:
    result = board("groups", "reset", *arguments, "--execute")
    assert (result.code, untouched(board), result.out) == (code, True, "")
    assert message in result.err


def test_a_malformed_option_is_rejected_without_a_network(board: CommandLine) -> None:
    board.cluster.reachable = False
    assert board("groups", "reset", "board", "--topic", "flights", "--to-datetime", "yesterday").code == 2
    assert board("groups", "reset", "board", "--topic", "flights", "--to-latest").code == 1


def test_what_cannot_be_undone_is_not_begun(board: CommandLine, tmp_path: Path) -> None:
    taken = tmp_path / "undo.json"
    taken.write_text("mine")
    arguments = ["groups", "reset", "board", "--all-topics", "--to-latest", "--execute", "--undo-file"]
    for path in (taken, tmp_path / "undo.json" / "below"):
        result = board(*arguments, str(path))
        assert (result.code, untouched(board)) == (2, True)
        assert "cannot be written" in result.err
    assert taken.read_text() == "mine"


def test_partial_changes_are_reported_and_can_be_finished_or_undone(board: CommandLine) -> None:
    board.admin.failures["board", P1] = NotAuthorized("Not P1.")
    result = board("groups", "reset", "board", "--all-topics", "--shift-by", "1", "--execute")
    assert (result.code, committed(board)) == (4, {P0: 5, P1: 6})
    assert "1 of 2 partitions were moved. Not moved: flights-1 of group 'board'. Not P1." in result.err
    (rest,) = re.findall(r"Apply the rest with: streamgroups (groups import \S+ --execute)\.", result.err)
    board.admin.failures.clear()
    for _ in range(2):
        # Doing it again does no harm.
        assert board(*rest.split()).code == 0
        assert committed(board) == {P0: 5, P1: 7}
    assert board(*undo_command(result.err)).code == 0
    assert is_restored(board)


def test_a_broker_that_goes_away_in_the_middle(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "PARTITIONS_PER_COMMIT", 1)
    changes = 0

    def go_away() -> None:
        nonlocal changes
        changes += 1
        if changes == 2:
            raise BrokerUnreachable("No broker answers.")

    board.admin.before_change = go_away
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert (result.code, committed(board)) == (4, {P0: 10, P1: 6})
    assert "1 of 2 partitions were moved. Not moved: flights-1 of group 'board'. No broker answers." in result.err


def interrupt_second_change(board: CommandLine) -> None:
    """Ctrl-C arrives before the second commit."""
    changes = iter([None, KeyboardInterrupt()])

    def interrupt() -> None:
        if (interrupted := next(changes, None)) is not None:
            raise interrupted

    board.admin.before_change = interrupt


def test_O2_ctrl_c_in_the_middle_names_the_rest(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "PARTITIONS_PER_COMMIT", 1)
    interrupt_second_change(board)
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert (result.code, committed(board)) == (130, {P0: 10, P1: 6})
    assert (
        "1 of 2 partitions were moved. Not moved: flights-1 of group 'board'. The command was interrupted."
        in result.err
    )
    (rest,) = re.findall(r"Apply the rest with: streamgroups (groups import \S+ --execute)\.", result.err)
    assert board(*rest.split()).code == 0
    assert committed(board) == {P0: 10, P1: 10}
    assert board(*undo_command(result.err)).code == 0
    assert is_restored(board)


def test_O2_ctrl_c_with_json_is_the_error_of_a_partial_change(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "PARTITIONS_PER_COMMIT", 1)
    interrupt_second_change(board)
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute", "-o", "json")
    error = json.loads(result.err.splitlines()[-1])["error"]
    assert (result.code, error["code"]) == (130, "partly_done")
    assert error["message"].startswith("1 of 2 partitions were moved. Not moved: flights-1 of group 'board'.")


def test_O2_a_rest_that_cannot_be_written_is_named(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk can be full. It must not hide that some partitions were changed."""

    def fail(_path: Path, _text: str) -> Path:
        raise InvalidOption("rest.json cannot be written: No space left on device.", remedy="Nothing was changed.")

    monkeypatch.setattr(changing, "write_new", fail)
    board.admin.failures["board", P1] = NotAuthorized("Not P1.")
    result = board("groups", "reset", "board", "--all-topics", "--shift-by", "1", "--execute")
    assert (result.code, committed(board)) == (4, {P0: 5, P1: 6})
    assert "1 of 2 partitions were moved. Not moved: flights-1 of group 'board'. Not P1." in result.err
    assert (
        "The file with the rest cannot be written: rest.json cannot be written: No space left on device." in result.err
    )
    assert "Nothing was changed" not in result.err
    board.admin.failures.clear()
    assert board(*undo_command(result.err)).code == 0
    assert is_restored(board)


def test_nothing_done_is_an_error_and_leaves_no_undo_file(board: CommandLine, tmp_path: Path) -> None:
    for tp in (P0, P1):
        board.admin.failures["board", tp] = NotAuthorized("Not you.")
    result = board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert (result.code, untouched(board)) == (1, True)
    assert result.err.endswith("Error: Not you.\n")
    assert list((tmp_path / "state" / "streamgroups" / "offsets").iterdir()) == []


def test_export_and_import_are_each_others_inverse(board: CommandLine, tmp_path: Path) -> None:
    board.cluster.commit("other", {P2: 1})
    csv, whole = tmp_path / "offsets.csv", tmp_path / "offsets.json"
    assert board("groups", "export", "--all-groups").out == "board,flights,0,4\nboard,flights,1,6\nother,flights,2,1\n"
    assert board("groups", "export", "board").out == "flights,0,4\nflights,1,6\n"
    assert board("groups", "export", "board", "--topic", "flights:1").out == "flights,1,6\n"
    assert board("groups", "export", "board", "--file", str(csv)).err == f"2 offsets were written to {csv}\n"
    board("groups", "export", "board", "--file", str(whole))
    for file, group in ((csv, ["--group", "board"]), (whole, [])):
        board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
        assert board("groups", "import", str(file), *group, "--execute").code == 0
        assert committed(board) == {tp: c.next_offset for tp, c in BEFORE.items()}
    assert is_restored(board)


def test_O1_an_export_of_a_topic_without_offsets_is_an_error(board: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    for options in (["--file", str(file)], ["--topic", "flights"]):
        result = board("groups", "export", "board", "--topic", "flihgts", *options)
        assert (result.code, result.out, file.exists()) == (1, "", False)
        assert "Group 'board' has no committed offsets of 'flihgts'; nothing was written." in result.err


def test_the_format_of_an_export_is_that_of_its_file_unless_another_is_named(
    board: CommandLine, tmp_path: Path
) -> None:
    def lists(text: str) -> list[tuple[int, int]]:
        ((_, offsets),) = ((g["group"], g["partitions"]) for g in json.loads(text)["groups"])
        return [(o["partition"], o["offset"]) for o in offsets]

    result = board("groups", "export", "board", "-o", "json").out
    assert lists(result) == [(0, 4), (1, 6)]
    board("groups", "export", "board", "--file", str(tmp_path / "a.json"), "-o", "csv")
    assert (tmp_path / "a.json").read_text() == "flights,0,4\nflights,1,6\n"
    board("groups", "export", "board", "--file", str(tmp_path / "b.csv"), "-o", "json")
    assert lists((tmp_path / "b.csv").read_text()) == lists(result)
    assert board("groups", "export", "board", "-o", "yaml").code == 2


def test_a_group_can_be_copied(board: CommandLine, tmp_path: Path) -> None:
    file = str(tmp_path / "offsets.json")
    board("groups", "export", "board", "--file", file)
    assert board("groups", "import", file, "--group", "copy", "--execute").code == 0
    assert committed(board, "copy") == committed(board)
    both = str(tmp_path / "both.json")
    board("groups", "export", "--all-groups", "--file", both)
    result = board("groups", "import", both, "--group", "third", "--execute")
    assert (result.code, "contains 2 groups, but not 'third'" in result.err) == (2, True)


def test_S11_an_export_of_a_topic_that_was_recreated_is_rejected(board: CommandLine, tmp_path: Path) -> None:
    file = str(tmp_path / "offsets.json")
    mark = CommitMark(False, identity=TopicIdentity("fake-cluster", "id-of-flights"))
    board.cluster.commit("board", {P0: 4}, mark.encode())
    board("groups", "export", "board", "--file", file)
    written = json.loads(Path(file).read_text())
    assert (written["cluster_id"], written["topic_ids"]) == ("fake-cluster", {"flights": "id-of-flights"})
    board.cluster.create_topic("flights", 3)
    for tp in (P0, P1, P2):
        board.cluster.produce(tp, 10)
    board.cluster.commit("board", {P0: 1, P1: 1})
    for command in (["import", file], ["import", file, "--group", "board"]):
        result = board("groups", *command, "--execute")
        assert (result.code, committed(board)) == (2, {P0: 1, P1: 1})
        assert "'flights' (topic id id-of-flights, cluster id fake-cluster; now topic id id-1-of-flights" in result.err
        assert "--allow-other-ids" in result.err
        accepted = board("groups", *command, "--allow-other-ids", "--execute")
        assert (accepted.code, committed(board)) == (0, {P0: 4, P1: 6})
        mark = ToolMark.parse(board.admin.committed_offsets(["board"])["board"][P0].metadata)
        assert mark is not None
        assert mark == ToolMark(mark.reset), "members reject the ids of the earlier topic"
        assert mark.reset != NO_RESET
        board.cluster.commit("board", {P0: 1, P1: 1})


def test_O2_a_change_names_the_command_that_undoes_it(board: CommandLine, tmp_path: Path) -> None:
    board.cluster.commit("other", {P2: 1})
    to_end = ("groups", "reset", "board", "--all-topics", "--to-latest", "--execute")
    assert "Undo it with: streamgroups groups undo board --execute\n" in board(*to_end).err
    assert board("groups", "undo", "board", "--execute").code == 0
    own = board(*to_end, "--undo-file", str(tmp_path / "un do.json")).err
    assert f"Undo it with: streamgroups groups import '{tmp_path}/un do.json' --execute\n" in own
    both = board("groups", "reset", "board", "other", "--topic", "flights", "--to-offset", "3", "--execute").err
    assert "Undo it with: streamgroups groups import /" in both


def test_O1_a_change_without_an_effect_does_nothing(board: CommandLine, tmp_path: Path) -> None:
    reset = ("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute")
    assert board(*reset).code == 0
    before = board.admin.committed_offsets(["board"])
    for command in (reset, ("groups", "reset", "board", "--all-topics", "--to-current", "--execute")):
        again = board(*command)
        assert (again.code, again.err) == (0, "There is nothing to do.\n")
    assert board.admin.committed_offsets(["board"]) == before
    assert len(list((tmp_path / "state" / "streamgroups" / "offsets").iterdir())) == 1


def test_S11_an_undo_file_of_another_cluster_is_rejected(board: CommandLine) -> None:
    (file,) = undo_file(board("groups", "reset", "board", "--all-topics", "--to-latest", "--execute").err)
    undo = ["groups", "import", file, "--execute"]
    board.cluster.cluster_id = "other-cluster"
    result = board(*undo)
    assert (result.code, committed(board)) == (2, {P0: 10, P1: 10})
    assert "cluster id fake-cluster; now topic id id-of-flights, cluster id other-cluster" in result.err
    assert board(*undo, "--allow-other-ids").code == 0


def test_import_of_a_file_of_kafkas_tool(board: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("flights,0,1\nflights,1,99\n")
    result = board("groups", "import", str(file), "--group", "board", "--execute")
    assert (result.code, committed(board)) == (0, {P0: 1, P1: 10})
    assert "Warning: Offset 99 is outside flights-1 [2, 10]: offset 10 is used." in result.err
    missing = board("groups", "import", "nowhere.csv", "--group", "board", "--execute")
    assert (missing.code, "nowhere.csv cannot be read: No such file or directory" in missing.err) == (2, True)


def test_O1_a_byte_order_mark_belongs_to_no_group(board: CommandLine, tmp_path: Path) -> None:
    file, whole = tmp_path / "excel.csv", tmp_path / "offsets.json"
    file.write_text("board,flights,0,1\r\nboard,flights,1,3\r\n", encoding="utf-8-sig", newline="")
    board("groups", "export", "board", "--file", str(whole))
    whole.write_text(whole.read_text(), encoding="utf-8-sig")
    assert board("groups", "import", str(file), "--execute").code == 0
    assert (committed(board), committed(board, "\ufeffboard")) == ({P0: 1, P1: 3}, {})
    assert board("groups", "import", str(whole), "--execute").code == 0
    assert is_restored(board)


def test_O1_groups_of_a_file_that_are_not_imported_are_named(board: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("board,flights,0,1\nfares,flights,0,2\n")
    result = board("groups", "import", str(file), "--group", "board", "--execute")
    assert (result.code, committed(board), committed(board, "fares")) == (0, {P0: 1, P1: 6}, {})
    assert f"Warning: {file} also contains offsets of 'fares'. --group leaves them out." in result.err


def test_files_are_not_written_over(board: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("mine")
    assert board("groups", "export", "board", "--file", str(file)).code == 2
    assert file.read_text() == "mine"


def test_deleting_a_group_and_taking_it_back(board: CommandLine) -> None:
    assert board("groups", "delete", "board").out.splitlines()[1].split() == ["board", "Empty", "2"]
    assert untouched(board)
    result = board("groups", "delete", "board", "--execute")
    assert (result.code, committed(board)) == (0, {})
    (undo,) = re.findall(r"The previous offsets are stored in (\S+)", result.err)
    assert board("groups", "import", undo, "--execute").code == 0
    assert is_restored(board)


@pytest.fixture
def recorded(board: CommandLine) -> CommandLine:
    """The same group; its members left metadata entries, and it was reset while they were running."""
    board.cluster.commit(members_group_of("board"), {P0: 4}, "{}")
    board.cluster.commit(resets_group_of("board"), {P0: 4}, "{}")
    board.cluster.commit(resets_group_of("else"), {P0: 1}, "{}")
    return board


def test_all_groups_are_reset_without_their_metadata_groups(recorded: CommandLine) -> None:
    result = recorded("groups", "reset", "--all-groups", "--all-topics", "--to-earliest", "--execute")
    assert (result.code, committed(recorded)) == (0, {P0: 0, P1: 2})
    assert committed(recorded, members_group_of("board")) == committed(recorded, resets_group_of("board")) == {P0: 4}


@pytest.mark.parametrize("which", ["board", "--all-groups"])
def test_a_group_is_deleted_with_its_metadata_groups(recorded: CommandLine, which: str) -> None:
    plan = recorded("groups", "delete", which)
    assert [line.split()[0] for line in plan.out.splitlines()[1:]] == [
        "board",
        resets_group_of("board"),
        members_group_of("board"),
    ]
    assert "board.streamgroups: metadata groups, deleted with their group" in plan.err
    result = recorded("groups", "delete", which, "--execute")
    assert (result.code, recorded.cluster.group_ids()) == (0, [resets_group_of("else")])
    assert "1 group and 2 metadata groups deleted." in result.err
    (undo,) = re.findall(r"The previous offsets are stored in (\S+)", result.err)
    assert [g["group"] for g in json.loads(Path(undo).read_text())["groups"]] == ["board"]
    assert recorded("groups", "import", undo, "--execute").code == 0
    assert is_restored(recorded)
    assert committed(recorded, members_group_of("board")) == {}


def test_metadata_groups_can_be_deleted_by_name(recorded: CommandLine) -> None:
    assert (
        recorded("groups", "delete", resets_group_of("else"), "board", members_group_of("board"), "--execute").code == 0
    )
    assert recorded.cluster.group_ids() == []


def test_a_metadata_group_stays_while_its_applied_requests_stay(
    recorded: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would be applied again, by a group that is created under that name later."""
    delete_groups = recorded.admin.delete_groups

    def without_reset_requests(group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        if resets_group_of("board") in group_ids:
            raise BrokerUnreachable("No broker answers.")
        return delete_groups(group_ids)

    with monkeypatch.context() as patched:
        patched.setattr(recorded.admin, "delete_groups", without_reset_requests)
        result = recorded("groups", "delete", "board", "--execute")
    assert (result.code, committed(recorded)) == (4, {})
    assert recorded.cluster.group_ids() == [
        members_group_of("board"),
        resets_group_of("board"),
        resets_group_of("else"),
    ]
    assert "1 of 3 groups were deleted. No broker answers. Remove the cause" in result.err
    (rest,) = re.findall(r"delete the others with: streamgroups (groups delete --execute .*)\.", result.err)
    assert recorded(*rest.split()).code == 0
    assert recorded.cluster.group_ids() == [resets_group_of("else")]


def test_deleting_a_group_in_use_or_a_missing_group_is_rejected_completely(board: CommandLine) -> None:
    result = board("groups", "delete", "board", "bord", "--execute")
    assert (result.code, untouched(board)) == (1, True)
    assert "Group 'bord' does not exist; nothing was changed." in result.err
    board.join("other", "flights")
    result = board("groups", "delete", "board", "other", "--execute")
    assert (result.code, untouched(board)) == (3, True)
    assert "it cannot be deleted" in result.err


def test_G17_a_group_whose_offsets_are_hidden_is_not_deleted(board: CommandLine, tmp_path: Path) -> None:
    """A broker omits topics that the user may not describe, so an undo file would be empty."""
    board.cluster.rejections["flights"] = NotAuthorized("Not flights.")
    board.cluster.create_topic("airports")
    board.cluster.commit("other", {TopicPartition("airports", 0): 0})
    for options in ([], ["--execute"]):
        result = board("groups", "delete", "other", "board", *options)
        assert (result.code, result.out) == (3, "")
        assert "Group 'board' shows no committed offset: it has none, or this user may not describe" in result.err
        assert "Grant Describe on the Topic: kafka-acls.sh" in result.err
    assert board.cluster.group_ids() == ["board", "other"]
    result = board("groups", "delete", "other", "board", "--allow-no-offsets", "--execute")
    assert (result.code, board.cluster.group_ids()) == (0, [])
    assert "Group 'board' shows no committed offset, so no undo file restores it." in result.err
    assert "Group 'other' shows" not in result.err


def test_G17_the_number_of_partitions_in_an_undo_file_is_printed_before_a_deletion(board: CommandLine) -> None:
    board.cluster.create_topic("airports")
    board.cluster.commit("board", {TopicPartition("airports", 0): 0})
    board.cluster.rejections["airports"] = NotAuthorized("Not airports.")
    hidden = "Offsets of topics that this user may not describe are neither counted nor stored in the undo file.\n"
    assert hidden in board("groups", "delete", "board").err
    result = board("groups", "delete", "board", "--execute")
    assert result.code == 0
    assert re.search(f"{hidden}The previous offsets are stored in \\S+ \\(2 partitions\\)\n1 group deleted", result.err)


def test_deleting_some_offsets_and_taking_them_back(board: CommandLine) -> None:
    result = board("groups", "delete-offsets", "board", "--topic", "flights:0", "--execute")
    assert (result.code, committed(board)) == (0, {P1: 6})
    assert board(*undo_command(result.err)).code == 0
    assert is_restored(board, P0)
    assert board.admin.committed_offsets(["board"])["board"][P1] == BEFORE[P1], "the command did not change it"


def test_offsets_of_a_topic_that_is_gone_can_be_deleted(board: CommandLine) -> None:
    board.cluster.commit("board", {TopicPartition("gone", 0): 3})
    result = board("groups", "delete-offsets", "board", "--topic", "gone", "--execute")
    assert (result.code, untouched(board)) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["board", "--topic", "airports"], 1, "has no committed offsets for 'airports'"),
        (["board", "--topic", "flights:2"], 1, "has no committed offsets for 'flights'"),
        (["bord", "--topic", "flights"], 1, "Group 'bord'"),
        (["board"], 2, "--topic"),
    ],
)
def test_deleting_offsets_that_are_not_there(board: CommandLine, arguments: list[str], code: int, message: str) -> None:
    result = board("groups", "delete-offsets", *arguments, "--execute")
    assert (result.code, untouched(board)) == (code, True)
    assert message in result.err


def test_deleting_offsets_that_are_being_read_is_rejected(board: CommandLine) -> None:
    board.join("board", "flights")
    result = board("groups", "delete-offsets", "board", "--topic", "flights", "--execute")
    assert (result.code, "is reading 'flights' (alice (/127.0.0.1))" in result.err) == (3, True)
    assert committed(board)[P0] == 4


# ---- groups with members ---------------------------------------------------------------------------------------------


class Query:
    """A query of this library in group ``board``, which applies reset requests when it plans its next batch."""

    def __init__(self, cli: CommandLine) -> None:
        self.member = cli.join("board", "flights")
        self.participation = ResetParticipation(
            AdminMetadataStore(FakeAdmin(cli.cluster)),
            cli.cluster,
            "board",
            "alice",
            FakeExecutor(),
            no_history,
            cli.clock,
            cli.clock,
            wait_timeout_ms=0,
        )
        self.participation.join(self.member, (P0,))
        self.cli = cli

    def next_batch(self) -> None:
        self.cli.clock.advance(250)
        self.participation.follow()


@pytest.fixture
def query(board: CommandLine) -> Iterator[Query]:
    query = Query(board)
    query.next_batch()
    yield query
    query.participation.close()


def test_S6_members_receive_the_request_and_the_command_waits_for_them(
    board: CommandLine, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = board.admin.describe_groups

    def describe_later(group_ids: Collection[str]) -> dict[str, GroupDescription]:
        # Each description of the group lets time pass.
        query.next_batch()
        return describe(group_ids)

    monkeypatch.setattr(board.admin, "describe_groups", describe_later)
    result = board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute")
    assert (result.code, committed(board)) == (0, {P0: 5, P1: 5, P2: 5})
    assert "Group 'board' has 1 member, and all will apply the reset." in result.err
    assert "3 partitions moved." in result.err
    assert board(*undo_command(result.err)).code == 0
    assert committed(board) == {P0: 4, P1: 6, P2: 0}


def test_S6_members_at_the_new_offsets_receive_no_request(board: CommandLine, query: Query) -> None:
    for command in (
        ["reset", "board", "--all-topics", "--to-current"],
        ["reset", "board", "--topic", "flights:0", "--to-offset", "4"],
    ):
        result = board("groups", *command, "--execute")
        assert (result.code, result.err.endswith("There is nothing to do.\n")) == (0, True), result.err
    query.next_batch()
    assert committed(board)[P0] == 4


def test_S6_partitions_that_miss_the_deadline_are_reported_and_reset_anyway(board: CommandLine, query: Query) -> None:
    result = board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute", "--wait", "200ms")
    assert result.code == 4
    assert "0 of 3 partitions were moved" in result.err
    assert "Waiting for alice" in result.err
    assert committed(board)[P0] == 4
    query.next_batch()
    assert committed(board) == {P0: 5, P1: 5, P2: 5}
    # Its undo file stayed, and works on members too.
    board("groups", "import", *undo_file(result.err), "--execute", "--wait", "100ms")
    query.next_batch()
    assert committed(board) == {P0: 4, P1: 6, P2: 0}


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_S6_an_undo_replaces_a_request_that_members_have_not_applied(
    board: CommandLine, query: Query, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Its offsets are the committed ones, but the members would leave them."""
    # An earlier change. It is not the one to revert.
    board("groups", "reset", "board", "--topic", "flights", "--to-offset", "7", "--execute", "--wait", "0s")
    query.next_batch()
    assert committed(board) == {P0: 7, P1: 7, P2: 7}
    move_live = live_reset.move_live

    def killed(*args: Any, **kwargs: Any) -> Any:
        failed = move_live(*args, **kwargs)
        if is_killed:
            raise Killed
        return failed

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(changing, "move_live", killed)
        board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute", "--wait", "0s")
    assert committed(board) == {P0: 7, P1: 7, P2: 7}
    assert board("groups", "undo", "board", "--execute", "--wait", "0s").code == 4
    query.next_batch()
    assert committed(board) == {P0: 7, P1: 7, P2: 7}


def test_S6_a_group_whose_members_leave_before_the_request_is_reset_by_a_commit(
    board: CommandLine, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter = board.admin.alter_offsets

    def leave_then(group_id: str, offsets: dict[TopicPartition, Committed]) -> dict[TopicPartition, StreamGroupsError]:
        failures = alter(group_id, offsets)
        query.member.close()
        return failures

    monkeypatch.setattr(board.admin, "alter_offsets", leave_then)
    result = board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute")
    assert (result.code, committed(board)) == (0, {P0: 5, P1: 5, P2: 5})


def test_S6_a_member_that_joins_before_this_commit_applies_the_request(
    board: CommandLine, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter, describe = board.admin.alter_offsets, board.admin.describe_groups
    later: list[Query] = []

    def leave_then(group_id: str, offsets: dict[TopicPartition, Committed]) -> dict[TopicPartition, StreamGroupsError]:
        if group_id == "board" and not later:
            later.append(Query(board))
        failures = alter(group_id, offsets)
        if not later:
            query.member.close()
        return failures

    def describe_later(group_ids: Collection[str]) -> dict[str, GroupDescription]:
        for it in later:
            it.next_batch()
        return describe(group_ids)

    monkeypatch.setattr(board.admin, "alter_offsets", leave_then)
    monkeypatch.setattr(board.admin, "describe_groups", describe_later)
    result = board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute", "--wait", "10s")
    assert (result.code, committed(board), len(later)) == (0, {P0: 5, P1: 5, P2: 5}, 1)
    later[0].participation.close()


def test_a_request_that_was_not_applied_is_void_once_the_group_is_reset_by_a_commit(
    board: CommandLine, query: Query
) -> None:
    board("groups", "reset", "board", "--topic", "flights", "--to-offset", "9", "--execute", "--wait", "0s")
    query.member.close()
    assert board("groups", "reset", "board", "--topic", "flights", "--to-offset", "5", "--execute").code == 0
    later = Query(board)
    later.next_batch()
    assert committed(board) == {P0: 5, P1: 5, P2: 5}
    later.participation.close()


def test_what_members_do_not_read_cannot_be_moved_while_they_are_there(board: CommandLine, query: Query) -> None:
    board.cluster.create_topic("airports", 1)
    result = board("groups", "reset", "board", "--topic", "flights", "--topic", "airports", "--to-latest", "--execute")
    assert result.code == 3
    assert "none of them reads airports-0; nothing was changed." in result.err
    assert committed(board)[P0] == 4


def undo_file(err: str) -> list[str]:
    return re.findall(r"The previous offsets are stored in (\S+)", err)
