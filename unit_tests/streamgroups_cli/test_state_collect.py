"""S10: ``streamgroups state collect`` deletes old state files, and none that a committed offset or a reset needs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.manifest import PartitionState
from streamgroups.state.names import StateFileName
from streamgroups.state.origins import Named
from streamgroups_state.locations import operator_files
from streamgroups_state.store import NewState, Operator, StateStore
from unit_tests.cli_runner import CommandLine, Result

P0 = TopicPartition("flights", 0)
SCHEMA = pa.schema([("n", pa.int64())])
MINUTE_MS = 60_000
NOW_MS = 1_732_334_000_000


class States:
    """The state files of one group, whose clock is that of the cluster."""

    def __init__(self, cli: CommandLine, location: Path) -> None:
        self._cli, self.location = cli, location
        cli.clock.now_ms = NOW_MS
        cli.cluster.create_topic("flights", 2)
        self.files = operator_files(str(location), "board", "windows")

    def write(self, minutes_ago: int, end: int, cluster_id: str | None = None) -> StateFileName:
        file = StateFileName(NOW_MS - minutes_ago * MINUTE_MS, "1f3a9c2b7d10", 1, minutes_ago)
        identity = self._cli.cluster.identities(["flights"])["flights"]
        if cluster_id is not None:
            identity = TopicIdentity(cluster_id, identity.topic_id)
        state = NewState(PartitionState(OffsetRange(P0, end - 1, end), 0, identity), {"0": [pa.table({"n": [1]})]})
        StateStore(Operator("board", "windows", "", SCHEMA), self.files).write(file, [state])
        return file

    def commit(self, next_offset: int, file: StateFileName | None = None) -> None:
        mark = CommitMark(False, state=Named(file, next_offset)).encode() if file is not None else ""
        self._cli.cluster.commit("board", {P0: next_offset}, mark)

    def left(self) -> set[StateFileName]:
        return set(self.files.list())

    def collect(self, *arguments: str) -> Result:
        return self._cli("state", "collect", str(self.location), "board", *arguments)


@pytest.fixture
def states(cli: CommandLine, tmp_path: Path) -> States:
    return States(cli, tmp_path)


def test_a_plan_deletes_nothing(states: States) -> None:
    old, base, latest = states.write(500, 5), states.write(300, 10), states.write(1, 15)
    states.commit(15, latest)
    size = states.location / "board" / "windows" / str(old)
    result = states.collect("-o", "json")
    assert (result.code, result.err) == (0, "Nothing was changed: this is the plan. --execute applies it.\n")
    document = json.loads(result.out)
    [found] = document["states"]
    assert (document["dry_run"], found["files"], found["files_to_delete"]) == (True, 3, 1)
    assert found["bytes_to_delete"] == size.stat().st_size < found["bytes"]
    assert states.left() == {old, base, latest}


def test_old_files_are_deleted(states: States) -> None:
    _old, base, latest = states.write(500, 5), states.write(300, 10), states.write(1, 15)
    states.commit(15, latest)
    result = states.collect("--execute")
    assert (result.code, result.err, states.left()) == (0, "1 file deleted.\n", {base, latest})
    assert result.out.splitlines()[0] == "GROUP  OPERATOR  FILES  BYTES  FILES-TO-DELETE  BYTES-TO-DELETE"
    assert states.collect("--execute").err == "There is nothing to do.\n"


def test_the_retention_of_the_queries(states: States) -> None:
    files = {states.write(ago, 600 - ago) for ago in (500, 300, 200)}
    states.commit(400, states.write(1, 599))
    assert states.collect("--retention", "4h", "--execute").err == "1 file deleted.\n"
    assert states.collect("--retention", "10h").err == "There is nothing to do.\n"
    assert len(states.left() & files) == 2
    assert states.collect("--retention", "soon").code == 2


def test_the_state_of_a_committed_offset_is_kept_however_old(states: States) -> None:
    committed, latest = states.write(500, 5), states.write(300, 10)
    states.commit(5, committed)
    assert states.collect("--execute", "--retention", "0s").err == "There is nothing to do.\n"
    assert states.left() == {committed, latest}


def test_the_state_to_which_a_tool_has_reset_the_group_is_kept(states: States) -> None:
    _first, before, _between, latest = (states.write(ago, 600 - ago) for ago in (500, 400, 300, 200))
    states.commit(250)
    assert (states.collect("--execute").code, states.left()) == (0, {before, latest})


def test_the_file_of_a_batch_in_flight_or_of_a_slow_attempt_is_kept(states: States) -> None:
    committed = states.write(500, 5)
    states.commit(5, committed)
    young = {states.write(ago, 600 - ago) for ago in (59, 40, 5)}
    assert (states.collect("--execute", "--retention", "0s").code, states.left()) == (0, {committed, *young})


def test_a_damaged_file_stops_it(states: States) -> None:
    old, damaged = states.write(500, 5), states.write(300, 10)
    states.commit(10, damaged)
    path = states.location / "board" / "windows" / str(damaged)
    path.write_bytes(b"damaged")
    result = states.collect("--execute")
    assert (result.code, states.left()) == (1, {old, damaged})
    assert f"The state file '{damaged}'" in result.err
    assert "No state files are deleted" in result.err


def test_a_group_that_is_unknown_to_the_cluster_keeps_its_files(states: States) -> None:
    files = {states.write(500, 5), states.write(300, 10)}
    result = states.collect("--execute")
    assert (result.code, states.left()) == (1, files)
    assert "has no committed offsets in this cluster" in result.err


def test_a_group_of_another_cluster_keeps_its_files(states: States) -> None:
    files = {states.write(500, 5, "c-other"), states.write(300, 10, "c-other")}
    states.commit(3)
    result = states.collect("--execute")
    assert (result.code, states.left()) == (3, files)
    assert "has states of group 'board' of cluster c-other" in result.err


def test_a_group_is_named(cli: CommandLine, tmp_path: Path) -> None:
    assert cli("state", "collect", str(tmp_path)).code == 2
