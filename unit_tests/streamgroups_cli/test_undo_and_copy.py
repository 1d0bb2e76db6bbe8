"""O1, O2: ``groups undo`` finds and checks the last change of a group; ``groups copy`` copies offsets only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named
from streamgroups_admin.groups.applying import PARTITIONS_PER_COMMIT
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
BEFORE = {P0: Committed(4, "streamgroups:shared"), P1: Committed(6)}
#: The mark of a tool for a topic that is not known, and for a state that has no name.
UNIDENTIFIED = "streamgroups:tool;cluster=;topic=;reset=RESET;end;"
RESTORED = {tp: Committed(it.next_offset, UNIDENTIFIED) for tp, it in BEFORE.items()}
TO_END = ["groups", "reset", "board", "--all-topics", "--to-latest", "--execute"]


@pytest.fixture
def board(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli.cluster.create_topic("flights", 2)
    for tp in (P0, P1):
        cli.cluster.produce(tp, 10)
    cli.admin.alter_offsets("board", BEFORE)
    return cli


def positions(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, Committed]:
    return dict(cli.admin.committed_offsets([group_id])[group_id])


def as_set_by_a_tool(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, Committed]:
    """The committed offsets without the ids of their resets: each has the mark of one command (SEMANTICS F2)."""
    found = positions(cli, group_id)
    marks = {tp: ToolMark.parse(it.metadata) for tp, it in found.items()}
    resets = {tp: mark.reset for tp, mark in marks.items() if mark is not None}
    assert resets.keys() == found.keys(), "each has a mark"
    assert len({reset.id for reset in resets.values()}) <= 1, "the id of the command"
    assert NO_RESET not in resets.values()
    return {
        tp: Committed(it.next_offset, it.metadata.replace(resets[tp].encode(), "RESET")) for tp, it in found.items()
    }


def offsets(cli: CommandLine, group_id: str = "board") -> list[int]:
    return [it.next_offset for _, it in sorted(positions(cli, group_id).items())]


def test_O2_undo_is_a_plan_first_and_restores_offsets_and_metadata(board: CommandLine) -> None:
    assert board(*TO_END).code == 0
    planned = board("groups", "undo", "board")
    assert (planned.code, offsets(board)) == (0, [10, 10])
    assert "This reverts " in planned.err
    assert [line.split()[3:5] for line in planned.out.splitlines()[1:]] == [["10", "4"], ["10", "6"]]
    assert board("groups", "undo", "board", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED


def test_S10_S11_undo_restores_topics_and_states(board: CommandLine) -> None:
    state = Named(StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1), 4)
    mark = CommitMark(exclusive=False, identity=TopicIdentity("fake-cluster", "id-of-flights"), state=state, epoch=7)
    board.cluster.commit("board", {P0: 4}, mark.encode())
    assert board("groups", "delete", "board", "--execute").code == 0
    assert board("groups", "undo", "board", "--execute").code == 0
    restored = ToolMark.parse(positions(board)[P0].metadata)
    assert restored is not None
    assert (restored.identity, restored.state) == (mark.identity, mark.state)


def test_F2_each_change_of_a_tool_is_a_later_reset(board: CommandLine) -> None:
    """Also if the clock of the tool is behind: a ledger orders the changes by their numbers."""
    numbers = []
    for clock_ms in (5_000_000, 4_000_000, 6_000_000):
        board.clock.now_ms = clock_ms
        assert board(*TO_END).code == 0
        mark = ToolMark.parse(positions(board)[P0].metadata)
        assert mark is not None
        numbers.append(mark.reset.number)
        board.cluster.commit("board", {P1: 3}, positions(board)[P1].metadata)
        assert board("groups", "reset", "board", "--topic", "flights:0", "--to-offset", "2", "--execute").code == 0
    assert numbers == [5_000_000, 5_000_002, 6_000_000]


def test_F2_a_reset_in_several_commits_is_one_change(cli: CommandLine) -> None:
    """A member that reads all partitions finds one id, and each partition is ordered by the same time."""
    count = PARTITIONS_PER_COMMIT + 1
    cli.cluster.create_topic("flights", count)
    cli.admin.alter_offsets("board", {TopicPartition("flights", p): Committed(1) for p in range(count)})
    cli.admin.before_change = lambda: cli.clock.advance(1_000)
    before_ms = cli.clock.now_ms
    assert cli("groups", "reset", "board", "--all-topics", "--to-offset", "0", "--execute").code == 0
    assert cli.clock.now_ms == before_ms + 2_000, "two commits"
    assert len({ToolMark.parse(it.metadata) for it in positions(cli).values()}) == 1


def test_O2_the_undo_of_an_undo_repeats_the_change(board: CommandLine) -> None:
    board(*TO_END)
    for expected in ([4, 6], [10, 10], [4, 6]):
        board.clock.advance(1_000)
        assert board("groups", "undo", "board", "--execute").code == 0
        assert offsets(board) == expected


def test_O2_undo_takes_the_newest_change_of_its_group(board: CommandLine) -> None:
    board.cluster.commit("other", {P0: 1})
    board(*TO_END)
    board.clock.advance(1_000)
    board("groups", "reset", "board", "other", "--topic", "flights:0", "--to-offset", "2", "--execute")
    board.clock.advance(1_000)
    board("groups", "reset", "other", "--topic", "flights:0", "--to-offset", "3", "--execute")
    assert board("groups", "undo", "board", "--execute").code == 0
    assert (offsets(board), offsets(board, "other")) == ([10, 10], [3])


def test_O2_undo_reverts_the_last_change_after_the_clock_was_ahead(board: CommandLine) -> None:
    board.clock.advance(10_800_000)
    board("groups", "reset", "board", "--topic", "flights:0", "--to-latest", "--execute")
    board.clock.advance(-10_800_000)
    board("groups", "reset", "board", "--topic", "flights:1", "--to-earliest", "--execute")
    for expected in ([10, 6], [10, 0]):
        assert board("groups", "undo", "board", "--execute").code == 0
        assert offsets(board) == expected


def test_O2_a_deleted_group_comes_back(board: CommandLine) -> None:
    assert board("groups", "delete", "board", "--execute").code == 0
    assert board("groups", "undo", "board", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED


@pytest.fixture
def partly_moved(board: CommandLine, tmp_path: Path) -> Path:
    """A reset that has moved the first of two partitions. Returns the file with the rest."""
    board.admin.failures["board", P1] = BrokerUnreachable("No leader.")
    assert board(*TO_END).code == 4
    board.admin.failures.clear()
    assert offsets(board) == [10, 6]
    (rest,) = tmp_path.rglob("rest-board-*.json")
    return rest


def test_O2_undo_after_an_import_of_the_rest_reverts_the_whole_change(board: CommandLine, partly_moved: Path) -> None:
    result = board("groups", "import", str(partly_moved), "--execute")
    assert (result.code, offsets(board)) == (0, [10, 10])
    assert "Undo it with: streamgroups groups undo board --execute" in result.err
    assert board("groups", "undo", "board", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED
    assert board("groups", "undo", "board", "--execute").code == 0
    assert offsets(board) == [10, 10]


def test_O2_undo_after_a_partial_change_was_repeated_reverts_the_whole_change(
    board: CommandLine, partly_moved: Path
) -> None:
    assert board(*TO_END).code == 0
    assert board("groups", "undo", "board", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED


def test_O2_a_rest_whose_undo_file_is_missing_warns(board: CommandLine, partly_moved: Path) -> None:
    for file in partly_moved.parent.glob("undo-*"):
        file.unlink()
    result = board("groups", "import", str(partly_moved), "--execute")
    assert (result.code, offsets(board)) == (0, [10, 10])
    assert "Warning: An undo of this change reverts only the rest. " in result.err
    assert board("groups", "undo", "board", "--execute").code == 0
    assert offsets(board) == [10, 6]


def test_O2_the_rest_of_an_undo_completes_it(board: CommandLine) -> None:
    assert board(*TO_END).code == 0
    board.admin.failures["board", P1] = BrokerUnreachable("No leader.")
    result = board("groups", "undo", "board", "--execute")
    assert (result.code, offsets(board)) == (4, [4, 10])
    board.admin.failures.clear()
    (rest,) = re.findall(r"Apply the rest with: streamgroups (groups import \S+ --execute)\.", result.err)
    assert board(*rest.split()).code == 0
    assert offsets(board) == [4, 6]
    for expected in ([10, 10], [4, 6]):
        assert board("groups", "undo", "board", "--execute").code == 0
        assert offsets(board) == expected


def test_O2_a_later_reset_of_other_partitions_is_undone_alone(board: CommandLine, partly_moved: Path) -> None:
    assert board("groups", "reset", "board", "--topic", "flights:1", "--to-offset", "3", "--execute").code == 0
    assert board("groups", "undo", "board", "--execute").code == 0
    assert offsets(board) == [10, 6]


@pytest.fixture
def old_topic(board: CommandLine) -> TopicPartition:
    """A topic whose offset the group loses in a deletion, and which is deleted then."""
    old = TopicPartition("old", 0)
    board.cluster.create_topic("old", 1)
    board.admin.alter_offsets("board", {old: Committed(0)})
    assert board("groups", "delete", "board", "--execute").code == 0
    return old


LEAVE_OUT = "To leave it out, name the others with --topic."


def test_O2_undo_and_import_leave_out_a_deleted_topic(
    board: CommandLine, old_topic: TopicPartition, tmp_path: Path
) -> None:
    board.cluster.delete_topic("old")
    (file,) = tmp_path.rglob("undo-board-*.json")
    for command in (("undo", "board"), ("import", str(file))):
        rejected = board("groups", *command, "--execute")
        assert (rejected.code, positions(board)) == (1, {})
        assert (
            f"Partition old-0 does not exist; nothing was changed. List the topics with: kafka-topics.sh --list. {LEAVE_OUT}"
            in rejected.err
        )
        assert board("groups", *command, "--topic", "flights", "--execute").code == 0
        assert offsets(board) == [4, 6]
        board.cluster.forget("board")


def test_O2_undo_leaves_out_a_partition_without_a_leader(board: CommandLine) -> None:
    assert board(*TO_END).code == 0
    board.cluster.rejections[P0] = BrokerUnreachable("It has no leader.")
    rejected = board("groups", "undo", "board", "--execute")
    assert (
        rejected.code,
        f"flights-0 has no leader; nothing was changed. Start its brokers. {LEAVE_OUT}" in rejected.err,
    ) == (1, True)
    assert board("groups", "undo", "board", "--topic", "flights:1", "--execute").code == 0
    assert offsets(board) == [10, 6]


@pytest.mark.parametrize(("topic", "missing"), [("other", "other"), ("flights:1,7", "flights-7")])
def test_O2_a_scope_that_a_file_does_not_contain_is_rejected(
    board: CommandLine, tmp_path: Path, topic: str, missing: str
) -> None:
    assert board(*TO_END).code == 0
    (file,) = tmp_path.rglob("undo-board-*.json")
    for command in (("undo", "board"), ("import", str(file))):
        result = board("groups", *command, "--topic", topic, "--execute")
        assert (result.code, offsets(board)) == (2, [10, 10])
        assert f"{file} contains no offsets of {missing}; nothing was changed." in result.err


def test_O2_undo_removes_offsets_that_the_change_has_made(board: CommandLine) -> None:
    board("groups", "reset", "new", "--topic", "flights", "--to-earliest", "--execute")
    assert offsets(board, "new") == [0, 0]
    assert board("groups", "undo", "new", "--execute").code == 0
    assert positions(board, "new") == {}


def test_O2_undo_rejects_partitions_that_have_moved_since(board: CommandLine) -> None:
    board("groups", "reset", "board", "--all-topics", "--to-earliest", "--execute")
    board.cluster.commit("board", {P0: 3})
    result = board("groups", "undo", "board", "--execute")
    assert (result.code, offsets(board)) == (3, [3, 0])
    assert "has committed other offsets since the change: flights-0 (changed to 0, now 3);" in result.err
    assert board("groups", "undo", "board", "--allow-progress", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED


def test_O2_undo_ignores_changes_in_another_cluster(board: CommandLine) -> None:
    board(*TO_END)
    board.cluster.cluster_id = "other-cluster"
    result = board("groups", "undo", "board", "--execute")
    assert (result.code, offsets(board)) == (1, [10, 10])
    assert "No undo file of group 'board' in this cluster is in " in result.err


def test_O2_an_undo_file_contains_the_offsets_after_the_change(board: CommandLine, tmp_path: Path) -> None:
    board(*TO_END, "--undo-file", str(tmp_path / "undo.json"))
    (group,) = json.loads((tmp_path / "undo.json").read_text())["groups"]
    assert [(p["offset"], p["changed_to"]) for p in group["partitions"]] == [(4, 10), (6, 10)]
    # The command does not search other directories.
    assert board("groups", "undo", "board").code == 1


def test_O2_a_group_without_offsets_leaves_no_undo_file(board: CommandLine, tmp_path: Path) -> None:
    board.join("idle", "flights").close()
    board.cluster.forget_partitions("idle", {P0, P1})
    result = board(
        "groups", "delete", "idle", "--allow-no-offsets", "--execute", "--undo-file", str(tmp_path / "own.json")
    )
    assert (result.code, board.cluster.group_ids()) == (0, ["board"])
    assert "There are no offsets to store" in result.err
    board.join("idle", "flights").close()
    board.cluster.forget_partitions("idle", {P0, P1})
    result = board("groups", "delete", "idle", "board", "--allow-no-offsets", "--execute")
    assert "2 groups deleted." in result.err
    (file,) = tmp_path.rglob("*.json")
    assert [it["group"] for it in json.loads(file.read_text())["groups"]] == ["board"]
    assert board("groups", "undo", "board", "--execute").code == 0
    assert as_set_by_a_tool(board) == RESTORED


@pytest.mark.parametrize("content", ["", '{"kind": "streamgroups-off', "[]", "\xff", '{"kind": "other"}'])
def test_O2_a_file_that_cannot_be_read_is_skipped(board: CommandLine, tmp_path: Path, content: str) -> None:
    board(*TO_END)
    (file,) = tmp_path.rglob("undo-board-*.json")
    damaged = file.with_name("undo-other-20991231T000000000Z.json")
    damaged.write_bytes(content.encode("latin-1"))
    result = board("groups", "undo", "board", "--execute")
    assert (result.code, as_set_by_a_tool(board)) == (0, RESTORED)
    assert f"Warning: An undo file is skipped: {damaged}" in result.err
    file.unlink()
    for it in tmp_path.rglob("undo-board-*.json"):
        it.unlink()
    result = board("groups", "undo", "board")
    assert (result.code, f"skipped: {damaged}" in result.err) == (1, True)
    assert "No undo file of group 'board' in this cluster is in" in result.err


@pytest.mark.parametrize("name", ["board", "2-groups"])
def test_O2_a_damaged_file_of_the_group_is_not_skipped(board: CommandLine, tmp_path: Path, name: str) -> None:
    """The undo of an older change would be another one."""
    board("groups", "reset", "board", "--all-topics", "--to-earliest", "--execute")
    (file,) = tmp_path.rglob("undo-board-*.json")
    damaged = file.with_name(f"undo-{name}-20991231T000000000Z.json")
    damaged.write_text("{")
    result = board("groups", "undo", "board", "--execute", "--allow-progress")
    assert (result.code, str(damaged) in result.err) == (2, True)
    assert as_set_by_a_tool(board) != RESTORED


def test_O2_undo_without_a_change(board: CommandLine) -> None:
    assert board("groups", "undo", "board").code == 1


def test_O1_copy_is_a_plan_first_and_copies_offsets_without_metadata(board: CommandLine) -> None:
    planned = board("groups", "copy", "board", "new")
    assert (planned.code, positions(board, "new")) == (0, {})
    assert [line.split()[:5] for line in planned.out.splitlines()[1:]] == [
        ["new", "flights", "0", "-", "4"],
        ["new", "flights", "1", "-", "6"],
    ]
    assert board("groups", "copy", "board", "new", "--execute").code == 0
    assert as_set_by_a_tool(board, "new") == RESTORED
    assert positions(board) == BEFORE


def test_O1_copy_of_one_partition(board: CommandLine) -> None:
    assert board("groups", "copy", "board", "new", "--topic", "flights:1", "--execute").code == 0
    assert as_set_by_a_tool(board, "new") == {P1: RESTORED[P1]}


def test_O1_copy_rejects_a_target_with_offsets(board: CommandLine) -> None:
    board.cluster.commit("other", {P0: 1})
    result = board("groups", "copy", "board", "other", "--execute")
    assert (result.code, offsets(board, "other")) == (3, [1])
    assert "Group 'other' has committed offsets for 1 partitions" in result.err
    assert board("groups", "copy", "board", "other", "--overwrite", "--execute").code == 0
    assert offsets(board, "other") == [4, 6]
    assert board("groups", "undo", "other", "--execute").code == 0
    assert as_set_by_a_tool(board, "other") == {P0: Committed(1, UNIDENTIFIED)}


def test_O1_copy_rejects_a_target_with_members_of_another_library(board: CommandLine) -> None:
    board.join("other", "flights")
    result = board("groups", "copy", "board", "other", "--execute", "--overwrite")
    assert result.code == 3
    assert "Group 'other' is Stable with 1 member" in result.err


def test_S10_states_are_not_copied(board: CommandLine) -> None:
    mark = CommitMark(exclusive=False, state=Named(StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1), 4))
    board.cluster.commit("board", {P0: 4}, mark.encode())
    result = board("groups", "copy", "board", "new", "--execute")
    assert (result.code, as_set_by_a_tool(board, "new")[P0]) == (0, Committed(4, UNIDENTIFIED))
    assert (
        "Warning: Only the offsets are copied. Group 'board' has stored states for 1 of them, which are not copied."
        in result.err
    )


def test_S11_copy_rejects_offsets_of_a_topic_that_was_recreated(board: CommandLine) -> None:
    mark = CommitMark(exclusive=False, identity=TopicIdentity("fake-cluster", "an-earlier-id"))
    board.cluster.commit("board", {P0: 4}, mark.encode())
    result = board("groups", "copy", "board", "new", "--execute")
    assert (result.code, positions(board, "new")) == (2, {})
    assert "'flights' (topic id an-earlier-id, cluster id fake-cluster; now topic id id-of-flights" in result.err
    assert board("groups", "copy", "board", "new", "--allow-other-ids", "--execute").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["board", "board"], 2, "is both FROM and TO"),
        (["nowhere", "new"], 1, "Group 'nowhere' has no committed offsets"),
        (["board", "new", "--topic", "other"], 1, "no committed offsets of 'other'"),
        (["board", "new.streamgroups"], 2, "'new.streamgroups' is a metadata group"),
        (["board"], 2, "Missing argument 'TO'"),
    ],
)
def test_O2_wrong_input_copies_nothing(board: CommandLine, arguments: list[str], code: int, message: str) -> None:
    result = board("groups", "copy", *arguments, "--execute")
    assert (result.code, message in result.err, result.out) == (code, True, "")
    assert positions(board, "new") == {}
