"""S10, O1: the plan of a reset shows with which states the queries continue, and rejects a reset that would stop them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import ToolMark, position_of
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.state.origins import Earlier
from streamgroups.state.state_lookup import Position
from unit_tests.cli_runner import CommandLine, Result
from unit_tests.cli_states import NOW_MS, P0, P1, States
from unit_tests.streamgroups_cli.test_changing_groups import Query


@pytest.fixture
def states(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> States:
    """A group with states of partition 0 at the offsets 10, 15 and 20, the current one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    states = States(cli, tmp_path / "files")
    for tp in (P0, P1):
        cli.cluster.produce(tp, 25, timestamp_ms=NOW_MS)
    states.write(3, 10, first=0)
    states.write(2, 15, first=10)
    states.commit(20, states.write(1, 20, first=15))
    return states


def reset(cli: CommandLine, states: States, to_offset: int, *arguments: str) -> Result:
    location = ["--state-location", str(states.location)]
    return cli("groups", "reset", "board", "--topic", "flights:0", "--to-offset", str(to_offset), *location, *arguments)


def committed(cli: CommandLine) -> dict[TopicPartition, int]:
    return {tp: it.next_offset for tp, it in cli.admin.committed_offsets(["board"])["board"].items()}


def planned(result: Result) -> tuple[Any, ...]:
    (move,) = json.loads(result.out)["moves"]
    return move["state"], move["state_offset"], move["read_again"]


def test_the_plan_shows_the_state_and_the_offsets_to_read_again(cli: CommandLine, states: States) -> None:
    result = reset(cli, states, 17)
    assert result.out.splitlines() == [
        "GROUP  TOPIC    PARTITION  FROM-OFFSET  TO-OFFSET  RECORDS  FROM-TIME                 TO-TIME                   "
        "TIME  STATE   STATE-OFFSET  READ-AGAIN  DETAIL",
        "board  flights          0           20         17       -3  2024-11-23T03:53:20.000Z  2024-11-23T03:53:20.000Z  "
        " +0s  stored            15           2",
    ]
    assert result.err.splitlines() == [
        "Group 'board' reads 2 offsets again before the new positions, without output, to rebuild its states.",
        "Nothing was changed: this is the plan. --execute applies it.",
    ]
    assert (result.code, committed(cli)) == (0, {P0: 20})


@pytest.mark.parametrize(
    ("to_offset", "expected"),
    [
        (25, ("stored", 20, 5)),
        (15, ("stored", 15, 0)),
        (14, ("stored", 10, 4)),
        (9, ("empty", None, 9)),
        (0, ("empty", None, 0)),
    ],
)
def test_every_target_continues_with_the_latest_state_before_it(
    cli: CommandLine, states: States, to_offset: int, expected: tuple[Any, ...]
) -> None:
    assert planned(reset(cli, states, to_offset, "-o", "json")) == expected
    assert reset(cli, states, to_offset, "--execute").code == 0
    assert committed(cli) == {P0: to_offset}


def test_a_target_without_a_state_is_rejected_after_the_plan(cli: CommandLine, states: States) -> None:
    for file in sorted(states.left())[:2]:
        states.path(file).unlink()
    for arguments in ([], ["--execute"]):
        result = reset(cli, states, 17, "-o", "json", *arguments)
        assert (result.code, planned(result), committed(cli)) == (3, ("missing", None, None), {P0: 20})
        error = json.loads(result.err.splitlines()[-1])["error"]
        assert error["message"] == (
            "No state leads group 'board' to the new offset of flights-0; nothing was changed. flights-0: no stored state "
            "leads to offset 17: the oldest stored state is at 20."
        )
        assert "onMissingState" in error["remedy"]
    accepted = reset(cli, states, 17, "--execute", "--ignore-state")
    assert (accepted.code, committed(cli)) == (0, {P0: 17})


def test_a_target_behind_deleted_records_is_rejected(cli: CommandLine, states: States) -> None:
    cli.cluster.delete_records(P0, 12)
    rejected = reset(cli, states, 14, "--execute")
    assert (rejected.code, committed(cli)) == (3, {P0: 20})
    assert "those before offset 12 are deleted" in rejected.err
    assert reset(cli, states, 16, "--execute").code == 0


def test_a_partition_without_states_is_rejected(cli: CommandLine, states: States) -> None:
    location = str(states.location)
    result = cli(
        "groups", "reset", "board", "--topic", "flights:0,1", "--to-offset", "15", "--state-location", location
    )
    assert (result.code, "the new offset of flights-1; nothing was changed" in result.err) == (3, True)


def test_C4_a_reset_of_all_partitions_gives_an_added_one_no_offset(cli: CommandLine, states: States) -> None:
    location = ["--state-location", str(states.location)]
    arguments = ["groups", "reset", "board", "--to-earliest", "--execute"]
    for more in (location, ["--ignore-state"]):
        rejected = cli(*arguments, "--topic", "flights", *more)
        assert (rejected.code, committed(cli)) == (3, {P0: 20})
        assert "flights-1 has no committed offset, and the partitions before have one" in rejected.err
        assert "to the same target: streamgroups groups reset board --topic flights:0. The queries" in rejected.err
        assert "name the added partitions too: --topic flights:1." in rejected.err
    assert cli(*arguments, "--topic", "flights", "--topic", "flights:1", *location).code == 3
    assert cli(*arguments, "--topic", "flights:0,1", *location).code == 0
    assert committed(cli) == {P0: 0, P1: 0}


def test_C4_the_remedy_for_added_partitions_covers_all_topics(cli: CommandLine, states: States) -> None:
    cli.cluster.create_topic("airports", 4)
    cli.cluster.create_topic("planes", 1)
    cli.cluster.commit("board", {TopicPartition("airports", p): 0 for p in (0, 1)})
    topics = [it for topic in ("flights", "airports", "planes") for it in ("--topic", topic)]
    arguments = ["--to-earliest", "--execute", "--state-location", str(states.location)]
    rejected = cli("groups", "reset", "board", *topics, *arguments)
    others = ["--topic", "airports:0,1", "--topic", "flights:0", "--topic", "planes:0"]
    assert f"streamgroups groups reset board {' '.join(others)}. The queries" in rejected.err
    assert "name the added partitions too: --topic airports:2,3 --topic flights:1." in rejected.err
    assert cli("groups", "reset", "board", *others, *arguments).code == 0


def test_C4_a_group_without_states_gets_an_offset_for_an_added_partition(cli: CommandLine, states: States) -> None:
    cli.cluster.commit("plain", {P0: 4})
    assert cli("groups", "reset", "plain", "--topic", "flights", "--to-earliest", "--execute").code == 0


def test_without_a_location_a_plan_warns_and_a_reset_is_rejected(cli: CommandLine, states: States) -> None:
    arguments = ["groups", "reset", "board", "--all-topics", "--to-offset", "15"]
    plan = cli(*arguments)
    assert (plan.code, "STATE" in plan.out) == (0, False)
    assert plan.err.startswith("Warning: The committed offsets of group 'board' name states")
    rejected = cli(*arguments, "--execute")
    assert (rejected.code, committed(cli)) == (3, {P0: 20})
    assert "Use --state-location" in rejected.err
    assert "--ignore-state. Then the option 'onMissingState' of the queries decides" in rejected.err
    accepted = cli(*arguments, "--execute", "--ignore-state")
    assert (accepted.code, committed(cli)) == (0, {P0: 15})
    assert accepted.err.rstrip().endswith(" --execute --ignore-state")


def test_C3_a_group_whose_states_are_those_of_a_savepoint_needs_a_location(cli: CommandLine, states: States) -> None:
    cli.cluster.commit("board", {P0: 20}, ToolMark(NO_RESET, state=Earlier(max(states.left()), 15)).encode())
    rejected = cli("groups", "reset", "board", "--all-topics", "--to-offset", "15", "--execute")
    assert (rejected.code, "Use --state-location" in rejected.err, committed(cli)) == (3, True, {P0: 20})
    elsewhere = ["--state-location", str(states.location / "elsewhere")]
    assert cli("groups", "reset", "board", "--all-topics", "--to-offset", "15", *elsewhere, "--execute").code == 1


def test_a_reset_after_a_reset_finds_the_states_at_the_location(cli: CommandLine, states: States) -> None:
    assert reset(cli, states, 15, "--execute").code == 0
    assert planned(reset(cli, states, 12, "-o", "json")) == ("stored", 10, 2)


def test_a_location_of_other_groups_is_rejected(cli: CommandLine, states: States, tmp_path: Path) -> None:
    arguments = ["--all-topics", "--to-offset", "15", "--state-location", str(tmp_path / "elsewhere"), "--execute"]
    result = cli("groups", "reset", "board", *arguments)
    assert (result.code, committed(cli)) == (1, {P0: 20})
    assert "contains no states of group 'board', whose committed offsets name some" in result.err


def test_a_group_without_states_needs_no_location(cli: CommandLine, states: States) -> None:
    cli.cluster.commit("plain", {P0: 4})
    arguments = ["groups", "reset", "plain", "--all-topics", "--to-latest"]
    for more in ([], ["--state-location", str(states.location)], ["--execute"]):
        result = cli(*arguments, *more)
        assert (result.code, "STATE" in result.out, "Warning" in result.err) == (0, False, False)


def _positions(committed: Mapping[TopicPartition, Committed]) -> list[Position]:
    """The offsets with their states. The mark of a tool differs from that of a member."""
    return [position_of(tp, it.next_offset, it.metadata) for tp, it in sorted(committed.items())]


def undo_of(result: Result) -> str:
    (file,) = re.findall(r"The previous offsets are stored in (\S+)", result.err)
    return str(file)


def test_an_undo_names_the_state_again_and_needs_no_location(cli: CommandLine, states: States) -> None:
    before = cli.admin.committed_offsets(["board"])
    result = reset(cli, states, 17, "--execute")
    assert result.err.rstrip().endswith(f" --execute --state-location {states.location}")
    undone = cli("groups", "import", undo_of(result), "--execute")
    assert (undone.code, _positions(cli.admin.committed_offsets(["board"])["board"])) == (
        0,
        _positions(before["board"]),
    )
    other = cli("groups", "import", undo_of(result), "--state-location", str(states.location), "-o", "json")
    assert planned(other) == ("stored", 20, 0)


def test_members_do_not_get_the_state_that_a_file_names(cli: CommandLine, states: States, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    assert cli("groups", "export", "board", "--file", str(file)).code == 0
    query = Query(cli)
    query.next_batch()
    result = cli("groups", "import", str(file), "--execute")
    query.participation.close()
    assert (result.code, "Use --state-location" in result.err) == (3, True)


def test_W13_operators_behind_each_other_continue_with_a_file_of_both(cli: CommandLine, states: States) -> None:
    for minutes_ago, first, end in ((3, 0, 10), (1, 15, 20)):
        states.write(minutes_ago, end, first=first, operator="peaks")
    assert planned(reset(cli, states, 25, "-o", "json")) == ("stored", 20, 5)
    assert planned(reset(cli, states, 17, "-o", "json")) == ("stored", 10, 7)
