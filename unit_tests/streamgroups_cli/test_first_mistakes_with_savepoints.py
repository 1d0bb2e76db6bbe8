"""C3: first mistakes with savepoints are rejected. The error names the remedy, and nothing is changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.partitions import TopicPartition
from unit_tests.cli_states import P0, P1
from unit_tests.streamgroups_cli.test_changing_groups import Query
from unit_tests.streamgroups_cli.test_savepoints import World, world

__all__ = ["world"]


def files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("arguments", [(), ("--state-only",), ("--group", "next")])
def test_C3_members_of_other_clients_are_named_and_nothing_is_changed(world: World, arguments: tuple[str, ...]) -> None:
    id_ = world.create()
    group = arguments[-1] if "--group" in arguments else "board"
    world.cli.join(group, "flights", name="console-consumer")
    if group != "board":
        world.cli.cluster.forget_partitions(group, [P0, P1])
    before, stored = world.committed(group), files(world.states.location)
    result = world.restore(id_, *arguments, "--execute", "--accept-repeated-output")
    assert (result.code, "console-consumer" in result.err) == (3, True), result.err
    assert (world.committed(group), files(world.states.location)) == (before, stored)


@pytest.mark.parametrize("changes", [("--state-only",), ("--rename", "windows=minutes"), ("--without", "windows")])
def test_C3_a_changed_program_needs_stopped_members(world: World, changes: tuple[str, ...]) -> None:
    id_ = world.create()
    query = Query(world.cli)
    query.next_batch()
    before, stored = world.committed(), files(world.states.location)
    result = world.restore(id_, *changes, "--execute", "--accept-repeated-output")
    query.participation.close()
    assert (result.code, "Stop its queries" in result.err) == (3, True), result.err
    assert (world.committed(), files(world.states.location)) == (before, stored)


def test_C3_an_exclusive_query_must_be_stopped(world: World) -> None:
    """Its checkpoint, and Spark's state in it, stay where they are."""
    mark = CommitMark(True, form="windows:windows").encode()
    world.cli.cluster.commit("board", {P1: 0}, mark)
    id_ = world.create()
    query = Query(world.cli)
    query.next_batch()
    world.cli.cluster.commit("board", {P1: 5}, mark)
    before = world.committed()
    result = world.restore(id_, "--execute", "--accept-repeated-output")
    query.participation.close()
    assert (result.code, "has an exclusive query" in result.err) == (3, True), result.err
    assert world.committed() == before


def test_C3_a_fork_is_another_group(world: World) -> None:
    located = ("--state-location", str(world.states.location))
    same = world.cli("groups", "copy", "board", "board", "--with-state", *located, "--execute")
    assert (same.code, "Name two groups" in same.err) == (2, True)
    world.cli.cluster.commit("next", {P1: 3}, CommitMark(False, form="none").encode())
    id_ = world.create()
    for fork in (
        world.cli("groups", "copy", "board", "next", "--with-state", *located, "--execute"),
        world.restore(id_, "--group", "next", "--execute"),
    ):
        assert (fork.code, "Use another name." in fork.err) == (3, True), fork.err
    overwritten = world.restore(id_, "--group", "next", "--overwrite", "--execute")
    assert (overwritten.code, "No such option" in overwritten.err) == (2, True)
    assert (world.committed("next")[P1][0], (world.states.location / "next").exists()) == (3, False)


def test_C3_deleted_records_are_named_and_another_offset_is_not_offered(world: World) -> None:
    id_ = world.create()
    world.cli.cluster.delete_records(P1, 7)
    result = world.restore(id_, "--group", "next", "--execute")
    assert (result.code, "flights-1 (offset 0, earliest offset 7)" in result.err) == (3, True), result.err
    assert "--nearest" not in result.err
    assert world.restore(id_, "--nearest").code == 2


@pytest.mark.parametrize("number", range(1, 5))
def test_C3_a_full_disk_leaves_no_savepoint_and_no_offset(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at each write of a file, or of the commit record."""
    real, calls = os.fsync, iter(range(1, 1_000))

    def full(descriptor: int) -> None:
        # Directories are synced too.
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    id_, before = world.create(), world.committed()
    complete = {it.parent.name for it in world.to.glob("*/savepoint.json")}
    location = ("--state-location", str(world.states.location))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        created = world.cli("savepoint", "create", "board", "--to", str(world.to), *location)
    assert (created.code, "No space left on device" in created.err) == (1, True), created.err
    assert {it.parent.name for it in world.to.glob("*/savepoint.json")} == complete
    calls = iter(range(1, 1_000))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        restored = world.restore(id_, "--group", "next", "--execute")
    if restored.code == 0:
        # The copies were complete before.
        assert number == 4
        return
    assert "No space left on device" in restored.err
    assert "no offset was changed" in restored.err
    assert (world.committed(), world.committed("next")) == (before, {})
    done = world.restore(id_, "--group", "next", "--execute")
    assert done.code == 0, done.err


def test_C2_C3_partitions_that_were_added_and_read_since_are_named(world: World) -> None:
    id_ = world.create()
    world.cli.cluster.add_partitions("flights", 3)
    world.cli.cluster.create_topic("airports", 1)
    added = {TopicPartition("flights", 2): 7, TopicPartition("airports", 0): 4}
    world.cli.cluster.commit("board", added, CommitMark(False, form="windows:windows").encode())
    before = world.committed()
    plan = world.restore(id_)
    assert (plan.code, "keeps its offsets and states of airports-0, flights-2" in plan.err) == (0, True), plan.err
    result = world.restore(id_, "--execute")
    assert (result.code, "has read airports-0, flights-2" in result.err) == (3, True), result.err
    assert "groups reset board --topic airports:0 --to-earliest" in result.err
    assert world.committed() == before
    # A fork has not read them.
    assert world.restore(id_, "--group", "next", "--execute").code == 0
    accepted = world.restore(id_, "--execute", "--accept-other-partitions")
    assert accepted.code == 0, accepted.err
    assert {tp: n for tp, (n, _) in world.committed().items() if tp in added} == added
