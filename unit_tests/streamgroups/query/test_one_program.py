"""S14, S15: a group belongs to one program, and a checkpoint to its group. Each row of the table in ``docs/source.rst`` is a case."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroups.coordination.tool_commits import with_tool_marks
from streamgroups.errors import CheckpointMismatch, DataLoss, OffsetFormat, ProgramMismatch, StreamGroupsError
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, mark_of
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.program import NO_FORM, OnOtherProgram, forms_in
from streamgroups.groups.subscription import Partitions
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

WINDOWS = "windows:minutes -> kafka:clicks"
CONTINUE = Settings(on_other_program=OnOtherProgram.CONTINUE)
P0, P1 = tp(0), tp(1)


@pytest.fixture
def world() -> World:
    world = World()
    world.produce(5, 5)
    return world


def start(
    world: World, name: str, form: str, settings: Settings | None = None, checkpoint: Checkpoint | None = None
) -> Run:
    return Run(world, name, settings, checkpoint, form=form).start()


def stopped(world: World, form: str, settings: Settings | None = None) -> Run:
    """A program that has read five records of each partition."""
    run = start(world, "alice", form, settings)
    assert run.batch() == ["flights-0[0,5)", "flights-1[0,5)"]
    run.batch()
    run.source.stop()
    world.produce(1, 1)
    return run


def forms(world: World) -> set[str]:
    return set(forms_by_partition(world).values())


def forms_by_partition(world: World) -> dict[TopicPartition, str]:
    return forms_in({p: it.metadata for p, it in world.cluster.committed("airline", [P0, P1]).items()})


NEXT = ["flights-0[5,6)", "flights-1[5,6)"]


class TestGroup:
    @pytest.mark.parametrize(("first", "second"), [(WINDOWS, NO_FORM), (NO_FORM, WINDOWS), (WINDOWS, "cursors")])
    def test_S14_another_program_is_rejected_before_it_reads(self, world: World, first: str, second: str) -> None:
        stopped(world, first)
        assert forms(world) == {first}
        other = Run(world, "bob", form=second)
        with pytest.raises(ProgramMismatch) as rejected:
            other.start()
        text = str(rejected.value)
        assert all(
            part in text for part in ("'airline'", f"'{first}'", f"'{second}'", "another group.id", "no live member")
        )
        assert not other.has_joined
        assert world.committed() == {0: 5, 1: 5}

    def test_S14_the_error_names_the_live_members(self, world: World) -> None:
        run = start(world, "alice", WINDOWS)
        run.batch()
        with pytest.raises(ProgramMismatch, match="live members are alice"):
            start(world, "bob", NO_FORM)
        run.batch()
        assert run.member.membership.owned.keys() == {P0, P1}, "the first program keeps its partitions"

    def test_S14_equal_programs_share_a_group(self, world: World) -> None:
        alice = start(world, "alice", WINDOWS)
        alice.batch()
        bob = start(world, "bob", WINDOWS)
        for _ in range(3):
            bob.batch()
            alice.batch()
        assert alice.member.membership.owned.keys() | bob.member.membership.owned.keys() == {P0, P1}

    def test_S14_a_position_of_another_program_fails_an_assigned_member(self, world: World) -> None:
        alice = start(world, "alice", WINDOWS)
        alice.batch()
        bob = start(world, "bob", WINDOWS)
        bob.batch()
        alice.batch()
        # The other program has passed the check while the group had no offsets, as after a deletion of its offsets.
        foreign = CommitMark(False, form=NO_FORM).encode()
        world.cluster.commit("airline", {P0: 5, P1: 5}, foreign)
        bob.source.stop()
        with pytest.raises(ProgramMismatch, match="'none'"):
            alice.batch()

    def test_S14_a_changed_program_takes_the_group_on_request(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        old = stopped(world, WINDOWS)
        new = start(world, "bob", NO_FORM, CONTINUE)
        assert forms(world) == {NO_FORM}, "before it reads"
        assert "takes it over" in caplog.text
        assert new.batch() == NEXT
        new.batch()
        new.source.stop()
        with pytest.raises(ProgramMismatch, match=f"'{NO_FORM}'"):
            old.again().start().batch()

    def test_S14_a_live_program_is_not_replaced(self, world: World) -> None:
        start(world, "alice", WINDOWS).batch()
        with pytest.raises(ProgramMismatch, match="stop its members"):
            start(world, "bob", NO_FORM, CONTINUE)

    def test_S14_two_programs_that_start_at_the_same_moment(self, world: World) -> None:
        alice, bob = (Run(world, name, form=form) for name, form in (("alice", WINDOWS), ("bob", NO_FORM)))
        # Both have found a group without offsets when the first one joins.
        bob.source._joining.check(bob.source._batch)
        alice.start()
        with pytest.raises(ProgramMismatch):
            bob.start()
        for _ in range(3):
            alice.batch()
        assert alice.member.membership.owned.keys() == {P0, P1}, "the first one continues"
        assert forms(world) == {WINDOWS}

    def test_S14_the_second_program_clears_its_form(self, world: World) -> None:
        bob = Run(world, "bob", form=NO_FORM)
        bob.source._joining.check(bob.source._batch)
        member = bob.source._joining.make_member()
        member.join(0)
        assert forms(world) == {NO_FORM}
        world.cluster.commit("airline", {P0: 0}, CommitMark(False, form=WINDOWS).encode())
        with pytest.raises(ProgramMismatch):
            bob.source._joining.confirm_start(member)
        member.close()
        assert forms(world) == {""}, "the other program can own the partitions"

    @pytest.mark.parametrize("metadata", ["", "by hand", CommitMark(False).encode(), CommitMark(True).encode()])
    def test_S14_an_unknown_form_is_compatible(self, world: World, metadata: str) -> None:
        world.cluster.commit("airline", {P0: 5, P1: 5}, metadata)
        world.produce(1, 1)
        run = start(world, "bob", WINDOWS)
        assert run.batch() == NEXT
        run.batch()
        assert forms(world) == {WINDOWS}

    def test_S14_a_query_of_unknown_form_is_compatible(self, world: World) -> None:
        stopped(world, WINDOWS)
        assert start(world, "bob", "").batch() == NEXT

    def test_S14_with_assign(self, world: World) -> None:
        stopped(world, WINDOWS)
        with pytest.raises(ProgramMismatch):
            start(world, "bob", NO_FORM, Settings(subscription=Partitions((P0,))))

    def test_S14_a_reset_by_a_tool_keeps_the_program(self, world: World) -> None:
        run = stopped(world, WINDOWS)
        before = world.cluster.committed("airline", [P0, P1])
        for p, it in with_tool_marks({P0: Committed(0), P1: Committed(0)}, before, "a1", 5).items():
            world.cluster.commit("airline", {p: it.next_offset}, it.metadata)
        with pytest.raises(ProgramMismatch):
            start(world, "bob", NO_FORM)
        assert run.again().start().batch() == ["flights-0[0,6)", "flights-1[0,6)"]

    def test_S14_an_import_into_a_new_group_has_no_program(self) -> None:
        filed = {P0: Committed(4, CommitMark(False, form=WINDOWS).encode())}
        assert mark_of(with_tool_marks(filed, {}, "a1", 5)[P0].metadata) == ToolMark(AppliedReset(5, "a1"))


# ---- the table of docs/source.rst ------------------------------------------------------------------------------------------------


def changed(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes all offsets of a checkpoint."""
    offsets = [json.loads(it) for it in run.checkpoint.offsets]
    for offset in offsets:
        change(offset)
    run.checkpoint.offsets[:] = map(json.dumps, offsets)


def without(*names: str) -> Callable[[dict[str, Any]], object]:
    return lambda offset: [offset.pop(name, None) for name in names]


Prepare = Callable[[World, Run], Run]


def same(world: World, run: Run) -> Run:
    return run.again()


def new_checkpoint(world: World, run: Run) -> Run:
    return Run(world, "bob", run.settings, form=run.form)


def of_sparks_source(world: World, run: Run) -> Run:
    run.checkpoint.offsets[:] = ['{"flights": {"0": 5, "1": 5}}'] * len(run.checkpoint.offsets)
    return run.again()


def of_an_older_version(world: World, run: Run) -> Run:
    changed(run, lambda offset: offset.update(version=1))
    return run.again()


def other_group(world: World, run: Run) -> Run:
    return Run(world, "alice", replace(run.settings, group_id="rg2"), run.checkpoint, form=run.form)


def group_without_offsets(world: World, run: Run) -> Run:
    world.cluster.forget("airline")
    return run.again()


def checkpoint_without(*names: str) -> Prepare:
    def prepare(world: World, run: Run) -> Run:
        changed(run, without(*names))
        for p, it in world.cluster.committed("airline", [P0, P1]).items():
            mark = CommitMark.parse(it.metadata)
            assert mark is not None
            kept = replace(mark, form="") if "form" in names else mark
            world.cluster.commit("airline", {p: it.next_offset}, kept.encode())
        return run.again()

    return prepare


def other_cluster(world: World, run: Run) -> Run:
    world.cluster.cluster_id = "another-cluster"
    return run.again()


def cluster_without_id(world: World, run: Run) -> Run:
    world.cluster.cluster_id = None
    return run.again()


def recreated_topics(world: World, run: Run) -> Run:
    world.cluster.create_topic("flights", 2)
    world.produce(6, 6)
    return run.again()


def topics_without_ids(world: World, run: Run) -> Run:
    world.cluster.has_topic_ids = False
    return run.again()


def other_program(world: World, run: Run) -> Run:
    return Run(world, "alice", run.settings, run.checkpoint, form=NO_FORM)


def other_program_without_offsets(world: World, run: Run) -> Run:
    world.cluster.forget("airline")
    return other_program(world, run)


def unknown_program(world: World, run: Run) -> Run:
    return Run(world, "alice", run.settings, run.checkpoint)


#: What is compared, and how it relates to the query: how to prepare it, and the error or the next batch.
TABLE: dict[tuple[str, str], tuple[Prepare, type[StreamGroupsError] | list[str]]] = {
    ("checkpoint", "same"): (same, NEXT),
    ("checkpoint", "other"): (of_sparks_source, OffsetFormat),
    ("checkpoint", "none"): (new_checkpoint, NEXT),
    ("checkpoint", "older"): (of_an_older_version, OffsetFormat),
    ("group", "same"): (same, NEXT),
    ("group", "other"): (other_group, CheckpointMismatch),
    ("group", "none"): (group_without_offsets, NEXT),
    ("group", "older"): (checkpoint_without("group"), NEXT),
    ("cluster", "same"): (same, NEXT),
    ("cluster", "other"): (other_cluster, DataLoss),
    ("cluster", "none"): (cluster_without_id, NEXT),
    ("cluster", "older"): (checkpoint_without("cluster"), NEXT),
    ("topics", "same"): (same, NEXT),
    ("topics", "other"): (recreated_topics, DataLoss),
    ("topics", "none"): (topics_without_ids, NEXT),
    ("topics", "older"): (checkpoint_without("topics"), NEXT),
    ("form", "same"): (same, NEXT),
    ("form", "other"): (other_program, ProgramMismatch),
    ("form", "none"): (unknown_program, NEXT),
    ("form", "older"): (checkpoint_without("form"), NEXT),
}


@pytest.mark.parametrize(("what", "relation"), TABLE)
def test_S15_a_checkpoint_is_compared_with_its_query(world: World, what: str, relation: str) -> None:
    prepare, expected = TABLE[what, relation]
    run = prepare(world, stopped(world, WINDOWS))
    before = world.committed()
    if isinstance(expected, list):
        assert run.start().batch() == expected
        return
    with pytest.raises(expected) as rejected:
        run.start().batch()
    assert rejected.value.remedy
    assert world.committed() == before, "a rejected query changes nothing"


def test_S15_the_table_is_complete() -> None:
    columns = {relation for _, relation in TABLE}
    assert {(row, column) for row, _ in TABLE for column in columns} == TABLE.keys()


@pytest.mark.parametrize("is_unfinished", [False, True])
def test_S15_the_error_names_both_groups_and_the_ways(world: World, is_unfinished: bool) -> None:
    run = stopped(world, NO_FORM)
    if is_unfinished:
        run.checkpoint.commits -= 1
    with pytest.raises(CheckpointMismatch) as rejected:
        other_group(world, run).start().batch()
    text = str(rejected.value)
    assert all(
        part in text for part in ("'airline'", "group.id=rg2", "new checkpointLocation", "groups copy airline rg2")
    )


def test_S15_a_checkpoint_of_another_program_whose_group_has_no_offsets(world: World) -> None:
    run = stopped(world, WINDOWS)
    with pytest.raises(ProgramMismatch, match="checkpoint"):
        other_program_without_offsets(world, run).start().batch()
    taken = Run(world, "alice", CONTINUE, run.checkpoint, form=NO_FORM).start()
    assert taken.batch() == NEXT


def test_S14_an_exclusive_query(world: World) -> None:
    exclusive = Settings(mode=MembershipMode.EXCLUSIVE)
    run = stopped(world, "spark:Aggregate", exclusive)
    with pytest.raises(ProgramMismatch):
        start(world, "bob", NO_FORM, exclusive)
    assert run.again().start().batch() == NEXT
