"""O2: a change can take effect although its response is lost. Its undo file stays then, and the error names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import resets_group_of
from streamgroups.errors import BrokerUnreachable, GroupRejected, NotAuthorized, StreamGroupsError
from streamgroups.fakes import FakeAdmin, FakeExecutor
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.history import no_history
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.reset_participation import ResetParticipation
from unit_tests.cli_runner import CommandLine

_Result = TypeVar("_Result")

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LOST = BrokerUnreachable("The offsets could not be changed: no broker responded (timeout).", remedy="Try again.")
RESET = ("groups", "reset", "board", "--all-topics", "--to-earliest", "--execute")
DELETE_OFFSETS = ("groups", "delete-offsets", "board", "--topic", "flights", "--execute")


@pytest.fixture
def board(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli.cluster.create_topic("flights", 2)
    for tp in (P0, P1):
        cli.cluster.produce(tp, 10)
    cli.cluster.commit("board", {P0: 4, P1: 6})
    return cli


def committed(cli: CommandLine, group_id: str = "board") -> list[int]:
    return [it.next_offset for _, it in sorted(cli.cluster.all_committed(group_id).items())]


def undo_files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state" / "streamgroups" / "offsets").glob("undo-*"))


class Lost(FakeAdmin):
    """Changes of group ``board`` take effect, and their responses are lost."""

    def __init__(self, cli: CommandLine, error: StreamGroupsError = LOST) -> None:
        super().__init__(cli.cluster)
        self.error = error

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        return self._lost([group_id], super().alter_offsets(group_id, offsets))

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        return self._lost([group_id], super().delete_offsets(group_id, partitions))

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        return self._lost(group_ids, super().delete_groups(group_ids))

    def _lost(self, group_ids: Collection[str], result: _Result) -> _Result:
        if "board" in group_ids:
            raise self.error
        return result


@pytest.mark.parametrize(
    ("command", "left"),
    [(RESET, [0, 0]), (DELETE_OFFSETS, []), (("groups", "delete", "board", "--execute"), [])],
)
def test_O2_the_undo_file_of_a_change_without_a_response_stays(
    board: CommandLine, tmp_path: Path, command: tuple[str, ...], left: list[int]
) -> None:
    board.admin = Lost(board)
    result = board(*command)
    (file,) = undo_files(tmp_path)
    assert (result.code, committed(board)) == (1, left)
    assert f"It is unknown whether the change has taken effect; the previous offsets stay in {file}." in result.err
    assert f"Try again. If it has, undo it with: streamgroups groups import {file} --execute." in result.err
    board.admin = FakeAdmin(board.cluster)
    assert board("groups", "undo", "board", "--execute").code == 0
    assert committed(board) == [4, 6]


def test_O2_so_it_does_after_an_error_code_without_a_meaning(board: CommandLine, tmp_path: Path) -> None:
    board.admin = Lost(board, StreamGroupsError("Kafka returned an error (UNKNOWN)."))
    assert board(*RESET).code == 1
    assert len(undo_files(tmp_path)) == 1


def test_O2_one_rejected_group_does_not_remove_the_file_of_both(board: CommandLine, tmp_path: Path) -> None:
    board.cluster.commit("airport", {P0: 2})
    board.admin = Lost(board)
    board.admin.failures["airport", P0] = NotAuthorized("Not you.")
    result = board("groups", "reset", "airport", "board", "--all-topics", "--to-earliest", "--execute")
    assert (result.code, committed(board), committed(board, "airport")) == (1, [0, 0], [2])
    (file,) = undo_files(tmp_path)
    assert f"the previous offsets stay in {file}" in result.err


def test_O2_the_rest_of_a_partial_change_can_have_taken_effect(board: CommandLine, tmp_path: Path) -> None:
    board.cluster.commit("airport", {P0: 2})
    board.admin = Lost(board)
    result = board("groups", "reset", "airport", "board", "--all-topics", "--to-earliest", "--execute")
    assert (result.code, committed(board), len(undo_files(tmp_path))) == (4, [0, 0], 1)
    assert "(timeout). It is unknown whether a part of these was changed too. Apply the rest with" in result.err


def _deletes_twice(admin: FakeAdmin) -> Callable[[Collection[str]], dict[str, StreamGroupsError]]:
    def delete_groups(group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        FakeAdmin.delete_groups(admin, group_ids)
        return FakeAdmin.delete_groups(admin, group_ids)

    return delete_groups


def test_O2_a_group_that_the_repeated_request_does_not_find_is_deleted(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.cluster.commit(resets_group_of("board"), {P0: 4}, "{}")
    monkeypatch.setattr(board.admin, "delete_groups", _deletes_twice(board.admin))
    result = board("groups", "delete", "board", "--execute")
    assert (result.code, board.cluster.group_ids()) == (0, [])
    assert "1 group and 1 metadata group deleted." in result.err
    assert board("groups", "undo", "board", "--execute").code == 0
    assert committed(board) == [4, 6]


def test_O2_a_group_that_disappears_with_its_last_offset_has_none(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_offsets(
        group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        FakeAdmin.delete_offsets(board.admin, group_id, partitions)
        board.cluster.forget(group_id)
        return FakeAdmin.delete_offsets(board.admin, group_id, partitions)

    monkeypatch.setattr(board.admin, "delete_offsets", delete_offsets)
    result = board(*DELETE_OFFSETS)
    assert (result.code, "2 partitions deleted." in result.err) == (0, True)


@pytest.mark.parametrize("error", [LOST, NotAuthorized("The members are not visible."), GroupRejected("It is old.")])
def test_S6_an_error_after_the_request_is_written_leaves_the_undo_file(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: StreamGroupsError
) -> None:
    member = board.join("board", "flights")
    participation = ResetParticipation(
        AdminMetadataStore(FakeAdmin(board.cluster)),
        board.cluster,
        "board",
        "alice",
        FakeExecutor(),
        no_history,
        board.clock,
        board.clock,
        wait_timeout_ms=0,
    )
    participation.join(member, (P0, P1))
    board.clock.advance(250)
    participation.follow()
    describe = board.admin.describe_groups

    def describe_groups(group_ids: Collection[str]) -> dict[str, GroupDescription]:
        if board.cluster.all_committed(resets_group_of("board")):
            raise error
        return describe(group_ids)

    monkeypatch.setattr(board.admin, "describe_groups", describe_groups)
    result = board(*RESET, "--wait", "1s")
    assert (result.code, len(undo_files(tmp_path))) == (4, 1)
    assert f"The reset request of group 'board' is written, and its members apply it. {error.what}" in result.err
    assert re.search(r"Undo the changes with: streamgroups groups import \S+ --execute", result.err)
    participation.close()
