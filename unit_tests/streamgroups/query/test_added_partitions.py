"""C4: partitions that are added under keyed state are rejected, so the results of a key are never split without notice."""

from __future__ import annotations

import pytest

from streamgroups.errors import PartitionsAdded
from streamgroups.query.query_ports import BatchStates
from streamgroups.state.origins import UNNAMED
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp


class Keyed(BatchStates):
    """An operator with state by key."""

    rejects_added = True


class Continued(BatchStates):
    """An operator with state, and ``onAddedPartitions=continue``."""


@pytest.fixture
def world() -> World:
    world = World(2)
    world.produce(5, 5)
    return world


def grow(world: World) -> None:
    world.cluster.add_partitions("flights", 3)
    world.produce(0, 0, 4)
    world.group.settle()


def test_C4_a_running_query_fails_before_it_reads_an_added_partition(world: World) -> None:
    run = Run(world, "alice", Settings(), states=Keyed()).start()
    assert run.batch() == ["flights-0[0,5)", "flights-1[0,5)"]
    grow(world)
    required = r"flights-2 has no committed offset.*added to the topic.*sg\.repartition.*onAddedPartitions=continue"
    with pytest.raises(PartitionsAdded, match=required):
        run.batch()
    assert world.committed() == {0: 0, 1: 0}


def test_C4_a_query_that_starts_later_fails_too(world: World) -> None:
    world.commit(5, 5)
    world.cluster.add_partitions("flights", 3)
    with pytest.raises(PartitionsAdded):
        Run(world, "alice", Settings(), states=Keyed()).start().batch()


@pytest.mark.parametrize("states", [Continued(), BatchStates()])
def test_C4_it_is_read_if_the_user_accepts_it_or_no_operator_has_state(world: World, states: BatchStates) -> None:
    run = Run(world, "alice", Settings(), states=states).start()
    run.batch()
    grow(world)
    assert run.batch() == ["flights-2[0,4)"]


def test_C4_all_partitions_of_a_new_group_are_accepted(world: World) -> None:
    assert Run(world, "alice", Settings(), states=Keyed()).start().batch() == ["flights-0[0,5)", "flights-1[0,5)"]


def test_C4_a_partition_whose_offset_was_deleted_was_not_added(world: World) -> None:
    world.commit(5, 5)
    world.cluster.forget_partitions("airline", [tp(0)])
    assert Run(world, "alice", Settings(), states=Keyed()).start().batch() == ["flights-0[0,5)"]


def test_C4_a_partition_of_the_checkpoint_was_not_added(world: World, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(world, "alice", Settings(), states=Keyed()).start()
    run.batch()
    run.batch()
    run.source.stop()
    world.group.settle()
    world.cluster.forget_partitions("airline", [tp(1)])
    world.produce(0, 3)
    again = Run(world, "alice", Settings(), run.checkpoint, states=Keyed()).start()
    assert again.batch() == ["flights-1[5,8)"]
    assert again.member.membership.owned[tp(1)].state == UNNAMED
    assert "The query continues at flights-1: 5" in caplog.text


def test_C4_a_partition_of_the_checkpoint_that_is_assigned_later_can_have_been_added(world: World) -> None:
    """Only the first assignment continues at the checkpoint. A later one would begin with an empty state."""
    run = Run(world, "alice", Settings(), states=Keyed()).start()
    run.batch()
    run.source.stop()
    world.group.settle()
    again = Run(world, "alice", Settings(), run.checkpoint, states=Keyed()).start()
    again.batch()
    world.cluster.forget_partitions("airline", [tp(1)])
    with pytest.raises(PartitionsAdded):
        again.source._joining._first_positions([tp(1)])


def test_C4_the_error_names_a_deleted_offset_as_a_cause(world: World) -> None:
    world.commit(5, 5)
    world.cluster.forget_partitions("airline", [tp(1)])
    required = r"added to the topic, or .* (expired|deleted).*streamgroups groups reset airline"
    with pytest.raises(PartitionsAdded, match=required):
        Run(world, "bob", Settings(), states=Keyed()).start().batch()
