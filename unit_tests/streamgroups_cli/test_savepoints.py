"""C1, C3: a savepoint copies the positions and states of a group, and a restore continues with them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import BrokerUnreachable, NotAuthorized, StateMissing
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import decode, encode
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Segment
from streamgroups.state.origins import Earlier, Named, New
from streamgroups.state.state_lookup import OnMissingState, Position, Stored
from streamgroups.threads import in_threads
from streamgroups_admin.groups import applying
from streamgroups_operators.group_states import operators_of
from streamgroups_operators.locations import StateDirectory, files_below
from streamgroups_operators.savepoints import copying, creating
from streamgroups_operators.store import Operator, StateStore
from streamgroups_testkit.waits import wait_until
from unit_tests.cli_runner import CommandLine, Result
from unit_tests.cli_states import NOW_MS, P0, P1, SCHEMA, States
from unit_tests.streamgroups_cli.test_changing_groups import Query


class World:
    """A group with states of partition 0 at the offsets 10 and 20, and an empty state of partition 1."""

    def __init__(self, cli: CommandLine, tmp_path: Path) -> None:
        self.cli, self.to = cli, tmp_path / "savepoints"
        self.states = States(cli, tmp_path / "files")
        for tp in (P0, P1):
            cli.cluster.produce(tp, 30, timestamp_ms=NOW_MS)
        self.first = self.states.write(3, 10, first=0)
        self.second = self.states.write(1, 20, first=10, before=(Segment(self.first, 0, 1, 8),))
        self.states.commit(20, self.second)
        cli.cluster.commit("board", {P1: 0}, CommitMark(False, state=New(), form="windows:windows").encode())

    def create(self, *arguments: str) -> str:
        location = ["--state-location", str(self.states.location)]
        result = self.cli("savepoint", "create", "board", "--to", str(self.to), *location, "-o", "json", *arguments)
        assert result.code == 0, result.err
        return str(json.loads(result.out)["savepoint"]["id"])

    def restore(self, id_: str, *arguments: str) -> Result:
        location = ["--state-location", str(self.states.location)]
        return self.cli("savepoint", "restore", str(self.to), id_, *location, *arguments)

    def committed(self, group_id: str = "board") -> dict[TopicPartition, tuple[int, Any]]:
        found = self.cli.admin.committed_offsets([group_id])[group_id]
        marks = {tp: CommitMark.parse(it.metadata) or ToolMark.parse(it.metadata) for tp, it in found.items()}
        return {tp: (it.next_offset, getattr(marks[tp], "state", None)) for tp, it in found.items()}

    def rows(
        self, group_id: str, origin: Named | Earlier, operator: str = "windows", next_offset: int | None = None
    ) -> list[int]:
        """The rows with which a query of a group continues."""
        files = files_below(str(self.states.location), group_id, operator)
        store = StateStore(Operator(group_id, operator, "", SCHEMA), files, OnMissingState.FAIL)
        choice = store.find(Position(P0, origin.next_offset if next_offset is None else next_offset, origin))
        assert isinstance(choice, Stored)
        return [
            n for part in choice.state.parts.values() for n in pa.concat_tables(store.each(P0, part))["n"].to_pylist()
        ]


@pytest.fixture
def world(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(cli, tmp_path)


def delete_states(world: World) -> None:
    for file in world.states.left():
        world.states.path(file).unlink()


def test_C1_the_commit_record_names_the_group_and_each_operator(world: World) -> None:
    id_ = world.create()
    shown = json.loads(world.cli("savepoint", "show", str(world.to), id_, "-o", "json").out)
    assert (shown["savepoint"]["group"], shown["savepoint"]["partitions"]) == ("board", 2)
    (operator,) = shown["operators"]
    assert (operator["operator"], operator["states"], operator["rows"], operator["files"]) == ("windows", 1, 2, 2)
    assert [(it["partition"], it["offset"], it["state"]) for it in shown["positions"]] == [
        (0, 20, str(world.second)),
        (1, 0, "empty"),
    ]
    listed = json.loads(world.cli("savepoint", "list", str(world.to), "-o", "json").out)["savepoints"]
    assert [(it["id"], it["status"]) for it in listed] == [(id_, "complete")]
    assert world.cli("savepoint", "verify", str(world.to), id_).code == 0


def test_G17_a_topic_of_a_state_whose_offsets_the_broker_hides_is_rejected(world: World) -> None:
    hidden = TopicPartition("departures", 0)
    world.cli.cluster.create_topic("departures", 1)
    world.states.commit(100, world.states.write(500, 100, tp=hidden), hidden)
    world.cli.cluster.rejections["departures"] = NotAuthorized("'departures' is denied.", remedy="Grant Describe.")
    location = ["--state-location", str(world.states.location)]
    result = world.cli("savepoint", "create", "board", "--to", str(world.to), *location)
    assert (result.code, world.to.exists()) == (1, False)
    assert "'departures' is denied. Group 'board' has members or states of this topic" in result.err
    assert "no savepoint was created. Grant Describe." in result.err
    world.cli.cluster.rejections.clear()
    world.create()


def test_G17_a_topic_of_a_member_whose_offsets_the_broker_hides_is_rejected(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.cluster.create_topic("flights", 1)
    cli.cluster.create_topic("departures", 1)
    for tp in (P0, TopicPartition("departures", 0)):
        cli.cluster.commit("board", {tp: 0})
    member = GroupMember("board-1", "/127.0.0.1", subscription=frozenset({"flights", "departures"}))
    group = GroupDescription("board", "Stable", "consumer", "consumer", "range", 1, (member,))
    monkeypatch.setattr(cli.admin, "describe_groups", lambda group_ids: dict.fromkeys(group_ids, group))
    cli.cluster.rejections["departures"] = NotAuthorized("'departures' is denied.", remedy="Grant Describe.")
    result = cli("savepoint", "create", "board", "--to", str(tmp_path / "savepoints"))
    assert (result.code, "no savepoint was created. Grant Describe." in result.err) == (1, True)


def test_C3_a_damaged_file_that_a_savepoint_does_not_need_is_ignored(world: World) -> None:
    world.states.path(world.states.write(500, 5)).write_bytes(b"damaged")
    world.create()


def test_C3_the_same_group_continues_with_the_state_that_retention_has_deleted(world: World) -> None:
    id_ = world.create()
    delete_states(world)
    later = world.states.write(0, 25, first=20)
    world.states.commit(25, later)
    plan = world.restore(id_)
    assert (plan.code, "The output of 5 offsets after the savepoint stays" in plan.err) == (0, True)
    assert world.committed()[P0][0] == 25
    rejected = world.restore(id_, "--execute")
    assert (rejected.code, "--accept-repeated-output" in rejected.err, world.states.left()) == (3, True, {later})
    done = world.restore(id_, "--execute", "--accept-repeated-output")
    assert done.code == 0, done.err
    named = Named(world.second, 20)
    assert world.committed() == {P0: (20, named), P1: (0, New())}
    assert world.rows("board", named) == [1, 1]
    mark = ToolMark.parse(world.cli.admin.committed_offsets(["board"])["board"][P1].metadata)
    assert mark is not None
    assert mark.form == "windows:windows"
    assert mark.reset.id
    assert mark.is_restored


def test_C3_a_fork_continues_with_its_own_copy(world: World) -> None:
    id_ = world.create()
    before = world.committed()
    done = world.restore(id_, "--group", "next", "--execute")
    assert (done.code, "is a fork" in done.err) == (0, True), done.err
    delete_states(world)
    named = Named(world.second, 20)
    assert world.committed("next") == {P0: (20, named), P1: (0, New())}
    assert world.rows("next", named) == [1, 1]
    assert world.committed() == before
    again = world.restore(id_, "--group", "next", "--execute")
    assert (again.code, "a fork needs a new group" in again.err) == (3, True)


def test_C3_a_changed_program_renames_and_removes_operators(world: World) -> None:
    id_ = world.create()
    unknown = world.restore(id_, "--group", "next", "--rename", "minutes=hours")
    assert (unknown.code, "Its operators: windows." in unknown.err) == (2, True)
    done = world.restore(id_, "--group", "next", "--rename", "windows=minutes", "--execute")
    assert done.code == 0, done.err
    assert world.rows("next", Named(world.second, 20), "minutes") == [1, 1]
    without = world.restore(id_, "--group", "other", "--without", "windows", "--execute")
    assert (without.code, (world.states.location / "other").exists()) == (0, False), without.err


def test_C3_a_restore_under_another_name_writes_no_file_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed offsets can name the files since the first one."""
    id_ = world.create()
    arguments = (id_, "--rename", "windows=minutes", "--execute")
    assert world.restore(*arguments).code == 0
    files = files_below(str(world.states.location), "board", "minutes")
    before = {file: bytes(files.read(file)) for file in files.list()}
    damaged = world.states.location / "board" / "minutes" / str(world.first)
    damaged.write_bytes(b"damaged")
    write, written = StateDirectory.write_parts, []

    def counted(files: StateDirectory, file: StateFileName, parts: Iterable[bytes]) -> None:
        written.append(file)
        write(files, file, parts)

    monkeypatch.setattr(StateDirectory, "write_parts", counted)
    assert world.restore(*arguments).code == 0
    assert written == [world.first]
    assert {file: bytes(files.read(file)) for file in files.list()} == before


def test_C3_the_same_command_finishes_a_restore_of_a_changed_program_and_one_undo_reverts_it(world: World) -> None:
    """An import of the rest would keep the old program for it."""
    id_ = world.create()
    world.states.commit(25, world.second)
    world.cli.cluster.commit("board", {P1: 3}, CommitMark(False, state=New(), form="windows:windows").encode())
    before = world.committed()
    arguments = (id_, "--rename", "windows=minutes", "--accept-repeated-output", "--execute")
    world.cli.admin.failures["board", P1] = BrokerUnreachable("No leader.")
    result = world.restore(*arguments)
    assert result.code == 4
    assert "Repeat the command to apply the rest. Undo the changes with: streamgroups groups import /" in result.err
    world.cli.admin.failures.clear()
    assert world.restore(*arguments).code == 0
    found = world.cli.admin.committed_offsets(["board"])["board"]
    marks = [ToolMark.parse(found[tp].metadata) for tp in (P0, P1)]
    assert [None if mark is None else mark.form for mark in marks] == ["", ""]
    undone = world.cli("groups", "undo", "board", "--ignore-state", "--execute")
    assert undone.code == 0, undone.err
    assert {tp: offset for tp, (offset, _) in world.committed().items()} == {tp: it[0] for tp, it in before.items()}


def test_C3_the_same_command_finishes_a_fork_that_was_interrupted_between_two_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = world.create()
    arguments = (id_, "--group", "next", "--execute")
    alter = type(world.cli.admin).alter_offsets
    monkeypatch.setattr(applying, "PARTITIONS_PER_COMMIT", 1)

    def interrupted(admin: Any, group_id: str, offsets: Any) -> Any:
        if P0 in offsets:
            return alter(admin, group_id, offsets)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(world.cli.admin), "alter_offsets", interrupted)
        assert world.restore(*arguments).code == 130
    assert world.committed("next").keys() == {P0}
    done = world.restore(*arguments)
    assert done.code == 0, done.err
    assert world.committed("next") == {P0: (20, Named(world.second, 20)), P1: (0, New())}
    again = world.restore(*arguments)
    assert (again.code, "a fork needs a new group" in again.err) == (3, True)


@pytest.mark.parametrize("origin", [None, Named(StateFileName(NOW_MS, "1f3a9c2b7d10", 1, 1), 20)])
def test_C3_a_fork_into_a_group_with_other_offsets_is_rejected(world: World, origin: Named | None) -> None:
    id_ = world.create()
    mark = "" if origin is None else ToolMark(NO_RESET, state=origin).encode()
    world.cli.cluster.commit("next", {P0: 20}, mark)
    result = world.restore(id_, "--group", "next", "--execute")
    assert (result.code, "a fork needs a new group" in result.err) == (3, True)


def test_C3_a_state_alone_replaces_that_of_the_committed_offsets(world: World) -> None:
    id_ = world.create()
    world.states.commit(25, world.states.write(0, 25, first=20))
    plan = world.restore(id_, "--state-only")
    assert "reads 5 offsets again before its positions, without output" in plan.err
    assert world.restore(id_, "--state-only", "--execute").code == 0
    assert world.committed()[P0] == (25, Earlier(world.second, 20))
    assert world.rows("board", Earlier(world.second, 20), next_offset=25) == [1, 1]
    # The mark contains the last reset of the offset, also after a second restore, or after one of the other program.
    world.states.commit(25, world.second)
    for kept, like in (
        (NO_RESET, None),
        (NO_RESET, None),
        (AppliedReset(7, "5f2c"), CommitMark(False, reset=AppliedReset(7, "5f2c"))),
        (AppliedReset(9, "a1"), ToolMark(AppliedReset(9, "a1"), is_restored=True)),
    ):
        if like is not None:
            world.cli.cluster.commit("board", {P0: 25}, like.encode())
        assert world.restore(id_, "--state-only", "--execute").code == 0
        mark = ToolMark.parse(world.cli.admin.committed_offsets(["board"])["board"][P0].metadata)
        assert mark is not None
        assert (mark.kept_reset, mark.reset.number > kept.number) == (kept, True)
        assert mark.is_restored == isinstance(like, ToolMark), "the offset is that of an earlier restore"
    world.states.commit(15, world.first)
    early = world.restore(id_, "--state-only", "--execute")
    assert (early.code, "is before the savepoint" in early.err, world.committed()[P0][0]) == (3, True, 15)


def test_C3_an_offset_of_a_tool_is_saved_with_the_state_that_a_query_finds(world: World) -> None:
    world.cli.cluster.commit("board", {P0: 15}, "")
    id_ = world.create()
    shown = json.loads(world.cli("savepoint", "show", str(world.to), id_, "-o", "json").out)
    assert [(it["offset"], it["state"]) for it in shown["positions"]] == [(15, str(world.first)), (0, "empty")]
    assert world.restore(id_, "--group", "next", "--execute").code == 0
    assert world.committed("next")[P0] == (15, Earlier(world.first, 10))


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_second_cut_reuses_the_files_of_the_first_and_deletes_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, is_needed: bool
) -> None:
    """Retention deletes the second file of the first cut while the first one is copied."""
    third = world.states.write(0, 25, first=20, before=(Segment(world.first, 0, 1, 8),) if is_needed else ())
    write, written = StateDirectory.write_parts, []

    def write_and_delete(files: StateDirectory, file: StateFileName, parts: Iterable[bytes]) -> None:
        write(files, file, parts)
        written.append(file)
        if file == world.first:
            world.states.commit(25, third)
            world.states.path(world.second).unlink()

    monkeypatch.setattr(StateDirectory, "write_parts", write_and_delete)
    # One file after the other.
    monkeypatch.setattr(copying, "in_threads", partial(in_threads, n_threads=1))
    id_ = world.create()
    assert written == [world.first, third]
    (operator,) = decode((world.to / id_ / "savepoint.json").read_text(), "").operators
    names = [world.first, third] if is_needed else [third]
    assert [it.name for it in operator.files] == names
    assert sorted(it.name for it in (world.to / id_ / "states" / "windows").iterdir()) == list(map(str, names))


def test_an_interrupted_savepoint_copies_no_further_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, interrupted, signals = [], threading.Event(), iter([signal.SIGINT])

    def copy(_: StateDirectory, file: StateFileName, _target: StateDirectory) -> None:
        copied.append(file)
        # A signal just before the main thread waits does not end its wait.
        while not interrupted.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)

    def interrupt(*_: object) -> None:
        if next(signals, None) is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_copy", copy)
    monkeypatch.setattr(copying, "in_threads", partial(in_threads, n_threads=1))
    target = files_below(str(world.to), "board")
    # Processes of parallel tests ignore this signal.
    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            copying._copy_all("windows", target, [world.first, world.second], target, {})
    finally:
        interrupted.set()
        wait_until(
            lambda: not [it for it in threading.enumerate() if it.name == "streamgroups-requests"], "it has ended", 30
        )
        signal.signal(signal.SIGINT, previous)
    assert copied == [world.first]


def test_C3_an_offset_before_its_first_state_is_rejected(world: World) -> None:
    world.cli.cluster.commit("board", {P0: 5}, "")
    result = world.cli(
        "savepoint", "create", "board", "--to", str(world.to), "--state-location", str(world.states.location)
    )
    assert (result.code, "after the queries have committed a batch" in result.err) == (3, True)


def test_without_a_location_a_group_with_states_is_rejected(world: World) -> None:
    result = world.cli("savepoint", "create", "board", "--to", str(world.to))
    assert (result.code, "Use --state-location" in result.err, world.to.exists()) == (3, True, False)
    id_ = world.create()
    restored = world.cli("savepoint", "restore", str(world.to), id_, "--group", "next")
    assert (restored.code, "Use --state-location" in restored.err) == (2, True)


def test_a_group_without_states_needs_no_location(world: World) -> None:
    world.cli.cluster.commit("plain", {P0: 7}, "")
    created = world.cli("savepoint", "create", "plain", "--to", str(world.to), "-o", "json")
    id_ = json.loads(created.out)["savepoint"]["id"]
    done = world.cli("savepoint", "restore", str(world.to), id_, "--group", "copy", "--execute")
    assert (done.code, world.committed("copy")[P0][0]) == (0, 7), done.err


def test_a_missing_and_a_changed_file_change_no_offset(world: World) -> None:
    id_ = world.create()
    before = world.committed()
    file = world.to / id_ / "states" / "windows" / str(world.second)
    content = file.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-1], None):
        if damaged is None:
            file.unlink()
        else:
            file.write_bytes(damaged)
        assert world.cli("savepoint", "verify", str(world.to), id_).code == 1
        result = world.restore(id_, "--group", "next", "--execute")
        assert (result.code, str(world.second) in result.err, world.committed("next")) == (1, True, {})
    assert world.committed() == before


def test_a_changed_file_is_not_copied_back_to_its_group(world: World) -> None:
    id_ = world.create()
    delete_states(world)
    file = world.to / id_ / "states" / "windows" / str(world.second)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    result = world.restore(id_, "--execute")
    assert (result.code, "its size or its checksum is wrong" in result.err) == (1, True)
    assert world.second not in world.states.left()


def test_an_incomplete_savepoint_is_not_restored(world: World) -> None:
    id_ = world.create()
    record = world.to / id_ / "savepoint.json"
    text = record.read_text()
    record.unlink()
    result = world.restore(id_, "--group", "next", "--execute")
    assert (result.code, "was not completed" in result.err) == (1, True)
    listed = json.loads(world.cli("savepoint", "list", str(world.to), "-o", "json").out)["savepoints"]
    assert [it["status"] for it in listed] == ["incomplete"]
    for other in (
        text.replace('"next_offset": 20', '"next_offset": 21'),
        text[: len(text) // 2],
        "[]",
        '{"kind": 7}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        record.write_text(other)
        damaged = world.restore(id_, "--group", "next", "--execute")
        assert (damaged.code, "is damaged" in damaged.err) == (1, True)


def test_a_savepoint_is_deleted_with_execute_only(world: World) -> None:
    id_ = world.create()
    assert world.cli("savepoint", "delete", str(world.to), id_).code == 0
    assert (world.to / id_ / "savepoint.json").exists()
    assert world.cli("savepoint", "delete", str(world.to), id_, "--execute").code == 0
    assert not (world.to / id_).exists()
    gone = world.cli("savepoint", "delete", str(world.to), id_, "--execute")
    assert (gone.code, "does not exist" in gone.err) == (1, True)
    assert world.cli("savepoint", "show", str(world.to), "../board").code == 2


def test_records_after_the_savepoint_that_are_deleted_are_named(world: World) -> None:
    id_ = world.create()
    world.cli.cluster.delete_records(P0, 22)
    result = world.restore(id_, "--group", "next", "--execute")
    assert (result.code, "flights-0 (offset 20, earliest offset 22)" in result.err) == (3, True)


def test_a_group_with_members_is_rejected_if_it_must_be_stopped(world: World) -> None:
    world.cli.join("board", "flights")
    location = ["--state-location", str(world.states.location)]
    result = world.cli("savepoint", "create", "board", "--to", str(world.to), *location, "--require-stopped")
    assert (result.code, world.to.exists()) == (3, False)


def test_C3_members_continue_with_the_states_of_the_savepoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = world.create()
    world.states.commit(25, world.states.write(0, 25, first=20))
    query = Query(world.cli)
    query.next_batch()
    describe = world.cli.admin.describe_groups

    def describe_later(group_ids: Collection[str]) -> dict[str, GroupDescription]:
        query.next_batch()
        return describe(group_ids)

    monkeypatch.setattr(world.cli.admin, "describe_groups", describe_later)
    result = world.restore(id_, "--execute", "--accept-repeated-output")
    query.participation.close()
    assert result.code == 0, result.err
    assert world.committed() == {P0: (20, Named(world.second, 20)), P1: (0, New())}


def test_members_of_another_program_are_rejected(world: World) -> None:
    id_ = world.create()
    world.cli.cluster.commit("board", {P1: 3}, CommitMark(False, form="none").encode())
    query = Query(world.cli)
    query.next_batch()
    result = world.restore(id_, "--execute", "--accept-repeated-output")
    query.participation.close()
    assert (result.code, "run the program 'none'" in result.err, world.committed()[P1][0]) == (3, True, 3)


def test_a_recreated_topic_is_accepted_only_with_the_same_log(world: World) -> None:
    id_ = world.create()
    record = world.to / id_ / "savepoint.json"
    saved = decode(record.read_text(), "")
    other = replace(saved, identities={"flights": TopicIdentity("other", "topic")})
    record.write_text(encode(other))
    same = world.restore(id_, "--group", "same", "--execute")
    assert same.code == 0, same.err
    positions = {tp: replace(it, before_ms=7) for tp, it in saved.positions.items()}
    record.write_text(encode(replace(other, positions=positions)))
    result = world.restore(id_, "--group", "next", "--execute")
    assert (result.code, "the log of flights-0 is not that of the savepoint" in result.err) == (3, True)


def test_C3_a_copy_of_a_group_with_its_state_is_a_fork(world: World) -> None:
    location = ["--state-location", str(world.states.location)]
    plan = world.cli("groups", "copy", "board", "next", "--with-state", *location)
    assert (plan.code, "is a fork" in plan.err, world.committed("next")) == (0, True, {}), plan.err
    assert not (world.states.location / "next").exists()
    done = world.cli("groups", "copy", "board", "next", "--with-state", *location, "--execute")
    assert done.code == 0, done.err
    assert world.committed("next") == {P0: (20, Named(world.second, 20)), P1: (0, New())}
    assert world.rows("next", Named(world.second, 20)) == [1, 1]
    for arguments in ([], [*location, "--overwrite"], [*location, "--topic", "flights"]):
        assert world.cli("groups", "copy", "board", "other", "--with-state", *arguments).code == 2


def test_a_savepoint_that_is_ahead_of_the_group_skips_offsets(world: World) -> None:
    id_ = world.create()
    world.states.commit(10, world.first)
    plan = world.restore(id_)
    assert "skips 10 offsets: the savepoint is ahead of it" in plan.err


def chain(world: World) -> None:
    """Adds an operator behind the windows, whose batches write files of the same names."""
    world.states.write(3, 10, first=0, operator="peaks")
    world.states.write(1, 20, first=10, operator="peaks")


def added(world: World) -> StateFileName:
    """Adds an operator behind the windows. Only partition 1 has a batch since then. Returns its file."""
    for operator in ("windows", "peaks"):
        file = world.states.write(0, 5, tp=P1, first=0, operator=operator)
    world.states.commit(5, file, tp=P1)
    return file


@pytest.mark.parametrize("arguments", [("savepoint", "create"), ("groups", "copy")])
def test_C3_an_added_operator_has_no_state_of_an_idle_partition(world: World, arguments: tuple[str, ...]) -> None:
    file = added(world)
    if arguments[0] == "savepoint":
        assert world.restore(world.create(), "--group", "next", "--execute").code == 0
    else:
        location = ["--state-location", str(world.states.location)]
        done = world.cli(*arguments, "board", "next", "--with-state", *location, "--execute")
        assert done.code == 0, done.err
    assert world.committed("next") == {P0: (20, Named(world.second, 20)), P1: (5, Named(file, 5))}
    assert set(files_below(str(world.states.location), "next", "peaks").list()) == {file}
    assert world.rows("next", Named(world.second, 20)) == [1, 1]
    with pytest.raises(StateMissing, match="of operator 'peaks' does not exist"):
        world.rows("next", Named(world.second, 20), "peaks")


def test_C3_a_lost_file_of_one_operator_is_an_error(world: World) -> None:
    chain(world)
    files_below(str(world.states.location), "board", "peaks").delete([world.second])
    for operator in ("windows", "peaks"):
        world.states.commit(5, world.states.write(0, 5, tp=P1, first=0, operator=operator), tp=P1)
    arguments = ["--to", str(world.to), "--state-location", str(world.states.location)]
    result = world.cli("savepoint", "create", "board", *arguments)
    assert (result.code, f"The file '{world.second}' of group 'board' was deleted" in result.err) == (1, True)


def test_C3_a_file_that_retention_deletes_from_one_operator_first_is_not_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group commits between the offsets and the list of files, and a collection is in progress."""
    chain(world)
    peaks = files_below(str(world.states.location), "board", "peaks")

    def commit_and_delete(*arguments: Any) -> dict[str, StateDirectory]:
        found = operators_of(*arguments)
        if world.second in peaks.list():
            for operator in ("windows", "peaks"):
                file = world.states.write(0, 25, first=20, operator=operator)
            world.states.commit(25, file)
            peaks.delete([world.first, world.second])
        return found

    monkeypatch.setattr(creating, "operators_of", commit_and_delete)
    record = decode((world.to / world.create() / "savepoint.json").read_text(), "")
    assert record.next_offsets[P0] == 25
    assert [it.states for it in record.operators] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "operators"),
    [
        (("--rename", "windows=minutes"), ["minutes", "peaks"]),
        (("--without", "peaks"), ["windows"]),
        (("--without", "windows", "--rename", "peaks=hours"), ["hours"]),
    ],
)
def test_C3_the_next_savepoint_of_a_changed_program_has_its_operators_only(
    world: World, changes: tuple[str, ...], operators: list[str]
) -> None:
    """The operators before the change have files of the same names still."""
    chain(world)
    done = world.restore(world.create(), *changes, "--execute", "--accept-repeated-output")
    assert done.code == 0, done.err
    for name in operators:
        file = world.states.write(0, 25, first=20, operator=name)
    world.states.commit(25, file)
    id_ = world.create()
    shown = json.loads(world.cli("savepoint", "show", str(world.to), id_, "-o", "json").out)
    assert sorted(it["operator"] for it in shown["operators"]) == operators
    located = ("--state-location", str(world.states.location), "-o", "json")
    described = json.loads(world.cli("groups", "describe", "board", "--state", *located).out)
    assert [it["state"]["offset"] for it in described["groups"][0]["partitions"] if it["partition"] == 0] == [25]
