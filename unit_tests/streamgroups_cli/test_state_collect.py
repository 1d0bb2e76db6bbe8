"""S10: ``streamgroups state collect`` deletes old state files, and none that a committed offset or a reset needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgroups.errors import NotAuthorized, StateUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.state.state_lookup import Position
from streamgroups_operators.collection import Collectable, Collector
from unit_tests.cli_runner import CommandLine, Result
from unit_tests.cli_states import P1, States


def collect(cli: CommandLine, states: States, *arguments: str) -> Result:
    return cli("state", "collect", str(states.location), "board", *arguments)


@pytest.fixture
def states(cli: CommandLine, tmp_path: Path) -> States:
    return States(cli, tmp_path)


def test_a_plan_deletes_nothing(cli: CommandLine, states: States) -> None:
    old, base, latest = states.write(500, 5), states.write(300, 10), states.write(1, 15)
    states.commit(15, latest)
    size = states.path(old)
    result = collect(cli, states, "-o", "json")
    assert (result.code, result.err) == (0, "Nothing was changed: this is the plan. --execute applies it.\n")
    document = json.loads(result.out)
    [found] = document["states"]
    assert (document["dry_run"], found["files"], found["files_to_delete"]) == (True, 3, 1)
    assert found["bytes_to_delete"] == size.stat().st_size < found["bytes"]
    assert states.left() == {old, base, latest}


def test_old_files_are_deleted(cli: CommandLine, states: States) -> None:
    _old, base, latest = states.write(500, 5), states.write(300, 10), states.write(1, 15)
    states.commit(15, latest)
    result = collect(cli, states, "--execute")
    assert (result.code, result.err, states.left()) == (0, "1 file deleted.\n", {base, latest})
    assert result.out.splitlines()[0] == "GROUP  OPERATOR  FILES  BYTES  FILES-TO-DELETE  BYTES-TO-DELETE"
    assert collect(cli, states, "--execute").err == "There is nothing to do.\n"


def test_O2_files_that_were_deleted_before_an_error_are_reported(
    cli: CommandLine, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = States(cli, states.location, "other")
    for it in (states, other):
        it.write(500, 5)
        it.write(300, 10)
        it.commit(15, it.write(1, 15))
    delete, calls = Collector.delete, list[Collectable]()

    def unreachable_later(collector: Collector, plan: Collectable) -> None:
        calls.append(plan)
        if len(calls) == 2:
            raise StateUnreachable("The storage does not answer.", remedy="Check it.")
        delete(collector, plan)

    monkeypatch.setattr(Collector, "delete", unreachable_later)
    result = collect(cli, states, "other", "--execute")
    assert (result.code, len(states.left()), len(other.left())) == (4, 2, 3)
    assert "of group 'board' were deleted. The storage does not answer. Check it. Then repeat the command" in result.err
    monkeypatch.setattr(Collector, "delete", delete)
    assert collect(cli, states, "other", "--execute").code == 0
    assert len(other.left()) == 2


def test_a_repeated_group_counts_once(cli: CommandLine, states: States) -> None:
    _old, base, latest = states.write(500, 5), states.write(300, 10), states.write(1, 15)
    states.commit(15, latest)
    result = collect(cli, states, "board", "--execute")
    assert (result.code, result.err, states.left()) == (0, "1 file deleted.\n", {base, latest})
    assert len(result.out.splitlines()) == 2


def test_the_retention_of_the_queries(cli: CommandLine, states: States) -> None:
    files = {states.write(ago, 600 - ago) for ago in (500, 300, 200)}
    states.commit(400, states.write(1, 599))
    assert collect(cli, states, "--retention", "4h", "--execute").err == "1 file deleted.\n"
    assert collect(cli, states, "--retention", "10h").err == "There is nothing to do.\n"
    assert len(states.left() & files) == 2
    assert collect(cli, states, "--retention", "soon").code == 2


def test_the_state_of_a_committed_offset_is_kept_however_old(cli: CommandLine, states: States) -> None:
    committed, latest = states.write(500, 5), states.write(300, 10)
    states.commit(5, committed)
    assert collect(cli, states, "--execute", "--retention", "0s").err == "There is nothing to do.\n"
    assert states.left() == {committed, latest}


def test_the_state_to_which_a_tool_has_reset_the_group_is_kept(cli: CommandLine, states: States) -> None:
    _first, before, _between, latest = (states.write(ago, 600 - ago) for ago in (500, 400, 300, 200))
    states.commit(250)
    assert (collect(cli, states, "--execute").code, states.left()) == (0, {before, latest})


def test_the_file_of_a_batch_in_flight_or_of_a_slow_attempt_is_kept(cli: CommandLine, states: States) -> None:
    committed = states.write(500, 5)
    states.commit(5, committed)
    young = {states.write(ago, 600 - ago) for ago in (59, 40, 5)}
    assert (collect(cli, states, "--execute", "--retention", "0s").code, states.left()) == (0, {committed, *young})


def test_an_old_unfinished_file_is_deleted(cli: CommandLine, states: States) -> None:
    committed = states.write(5, 5)
    states.commit(5, committed)
    old, young = (states.path(committed).with_name(f".{states.write(ago, 9)}") for ago in (70, 50))
    for path in (old, young):
        path.with_name(path.name[1:]).rename(path)
    result = collect(cli, states)
    assert (result.code, result.out.splitlines()[1].split()[2:5:2]) == (0, ["2", "1"])
    assert collect(cli, states, "--execute").err == "1 file deleted.\n"
    assert (old.exists(), young.exists(), states.left()) == (False, True, {committed})
    assert sorted(it.name for it in young.parent.iterdir()) == sorted([young.name, str(committed)]), (
        "no other file is left"
    )


def test_a_damaged_file_stops_it(cli: CommandLine, states: States) -> None:
    old, damaged = states.write(500, 5), states.write(300, 10)
    states.commit(10, damaged)
    states.path(damaged).write_bytes(b"damaged")
    result = collect(cli, states, "--execute")
    assert (result.code, states.left()) == (1, {old, damaged})
    assert f"The state file '{damaged}'" in result.err
    assert "No state files are deleted" in result.err


def test_a_group_that_is_unknown_to_the_cluster_keeps_its_files(cli: CommandLine, states: States) -> None:
    files = {states.write(500, 5), states.write(300, 10)}
    result = collect(cli, states, "--execute")
    assert (result.code, states.left()) == (1, files)
    assert "has no committed offsets in this cluster" in result.err


def test_a_group_of_another_cluster_keeps_its_files(cli: CommandLine, states: States) -> None:
    files = {states.write(500, 5, cluster_id="c-other"), states.write(300, 10, cluster_id="c-other")}
    states.commit(3)
    result = collect(cli, states, "--execute")
    assert (result.code, states.left()) == (3, files)
    assert "has states of group 'board' of cluster c-other" in result.err


def test_G17_the_state_of_an_offset_that_the_broker_hides_is_kept(cli: CommandLine, states: States) -> None:
    hidden = TopicPartition("departures", 0)
    cli.cluster.create_topic("departures", 1)
    visible, committed = states.write(1, 15), states.write(500, 100, tp=hidden)
    states.commit(15, visible)
    states.commit(100, committed, hidden)
    not_committed = states.write(300, 200, tp=hidden)
    cli.cluster.rejections["departures"] = NotAuthorized("'departures' is denied.", remedy="Grant Describe.")
    result = collect(cli, states, "--execute")
    assert (result.code, states.left()) == (1, {visible, committed, not_committed})
    assert "'departures' is denied. The location has states of group 'board' of this partition" in result.err
    assert "nothing was changed. Grant Describe." in result.err
    cli.cluster.rejections.clear()
    assert collect(cli, states, "--execute").code == 0
    assert committed in states.left()


def test_the_states_of_a_partition_without_a_committed_offset_are_deleted(cli: CommandLine, states: States) -> None:
    other = TopicPartition("removed", 0)
    _old, base, visible = states.write(500, 5, tp=other), states.write(300, 10, tp=other), states.write(1, 15)
    states.commit(15, visible)
    assert (collect(cli, states, "--execute").code, states.left()) == (0, {base, visible})


def test_S10_an_offset_that_is_committed_while_the_files_are_listed(
    cli: CommandLine, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = states.write(500, 5, tp=P1), states.write(300, 10, tp=P1)
    states.commit(15, states.write(1, 15))
    plan = Collector.plan

    def with_commit(collector: Collector, committed: list[Position]) -> Collectable:
        planned = plan(collector, committed)
        states.commit(5, first, P1)
        return planned

    monkeypatch.setattr(Collector, "plan", with_commit)
    assert collect(cli, states, "--execute").code == 0
    assert {first, second} < states.left()


def test_a_group_is_named(cli: CommandLine, tmp_path: Path) -> None:
    assert cli("state", "collect", str(tmp_path)).code == 2


def test_W13_a_file_is_kept_while_an_operator_behind_it_needs_it(cli: CommandLine, states: States) -> None:
    _old, complete, partial = states.write(500, 5), states.write(400, 10), states.write(300, 10)
    states.write(500, 5, operator="peaks")
    states.write(400, 10, operator="peaks")
    latest = states.write(1, 15)
    states.commit(15, latest)
    result = collect(cli, states, "--execute", "-o", "json")
    assert result.code == 0
    assert states.left() == {complete, partial, latest}
