"""S7: an unclean leader election truncates a log behind a position, and the log grows past it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import DataLoss
from streamgroups.fakes.ledger import FakeLedger
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.gaps import Cause
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from unit_tests.examples import examples
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

SKIP, EARLIEST, FAIL = (LossPolicies(policy) for policy in (OnDataLoss.SKIP, OnDataLoss.EARLIEST, OnDataLoss.FAIL))


@pytest.fixture
def world() -> World:
    return World(1)


def read_twenty(world: World, policies: LossPolicies) -> Run:
    """A query that has read 20 records, and committed them."""
    world.produce(20)
    run = Run(world, "alice", Settings(on_data_loss=policies)).start()
    assert run.batch() == ["flights-0[0,20)"]
    assert run.batch() is None
    return run


def truncate(world: World) -> None:
    """A replica with 10 of 20 records becomes the leader, and producers append 30."""
    world.cluster.elect_leader(tp(0), 10)
    world.produce(30)


def gaps(world: World) -> list[tuple[int | None, int, Cause]]:
    return [(gap.from_offset, gap.to_offset, gap.cause) for it in world.gaps().values() for gap in it.newest]


def leader_epoch(world: World) -> int | None:
    """The leader epoch in the mark of the committed offset."""
    mark = CommitMark.parse(world.cluster.committed("airline", [tp(0)])[tp(0)].metadata)
    assert mark is not None
    return mark.leader_epoch


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "long trigger"])
@pytest.mark.parametrize(
    ("policies", "read"),
    [(FAIL, None), (SKIP, "flights-0[10,40)"), (EARLIEST, "flights-0[0,40)")],
    ids=["fail", "skip", "earliest"],
)
def test_a_longer_log_is_detected(world: World, policies: LossPolicies, read: str | None, *, stopped: bool) -> None:
    run = read_twenty(world, policies)
    if stopped:
        run.source.stop()
    truncate(world)
    run = run.again().start() if stopped else run
    if read is None:
        with pytest.raises(
            DataLoss, match=r"position 20, available offsets \[0, 40\)\): the log was truncated at offset 10"
        ):
            run.batch()
        assert (world.committed(), world.gaps()) == ({0: 20}, {})
        return
    assert run.batch() == [read]
    begin = int(read.split("[")[1].split(",")[0])
    assert gaps(world) == [(20, begin, Cause.TRUNCATED)]
    assert run.batch() is None
    assert (world.committed(), leader_epoch(world)) == ({0: 40}, 1)
    assert len(gaps(world)) == 1, "recorded once"


def test_without_a_checkpoint_the_mark_of_the_commit_decides(world: World) -> None:
    read_twenty(world, FAIL).source.stop()
    assert leader_epoch(world) == 0
    truncate(world)
    with pytest.raises(DataLoss, match="truncated at offset 10"):
        Run(world, "bob").start().batch()


def test_a_shorter_log_is_read_from_the_truncation(world: World) -> None:
    run = read_twenty(world, SKIP)
    world.cluster.elect_leader(tp(0), 10)
    world.produce(5)
    assert run.batch() == ["flights-0[10,15)"]
    assert gaps(world) == [(20, 10, Cause.TRUNCATED)]


def test_the_position_after_a_truncation_has_the_epoch_of_the_new_leader(world: World) -> None:
    """Also if it is truncated again before the next batch is done."""
    run = read_twenty(world, SKIP)
    truncate(world)
    run.world.clock.advance(250)
    assert run.plan() == (OffsetRange(tp(0), 10, 40),)
    assert (world.committed(), leader_epoch(world)) == ({0: 10}, 1)
    world.group.kill("alice")
    world.cluster.elect_leader(tp(0), 5)
    world.produce(30)
    bob = Run(world, "bob", Settings(on_data_loss=SKIP)).start()
    assert bob.batch() == ["flights-0[5,35)"]


def test_S5_a_restart_does_not_undo_the_move_to_the_start_of_the_last_batch(world: World) -> None:
    """The position is not that of a batch whose commit is missing."""
    run = read_twenty(world, SKIP)
    world.cluster.elect_leader(tp(0), 0)
    assert run.batch() is None
    assert (world.committed(), gaps(world)) == ({0: 0}, [(20, 0, Cause.TRUNCATED)])
    run.source.stop()
    world.produce(30)
    assert run.again().start().batch() == ["flights-0[0,30)"]


@pytest.mark.parametrize("end_offset", [None, 20, 25])
def test_an_election_that_loses_no_record_that_was_read_is_no_loss(world: World, end_offset: int | None) -> None:
    run = read_twenty(world, FAIL)
    world.produce(10)
    world.cluster.elect_leader(tp(0), end_offset)
    world.produce(5)
    end = (30 if end_offset is None else end_offset) + 5
    assert run.batch() == [f"flights-0[20,{end})"]
    assert run.batch() is None
    run.source.stop()
    assert leader_epoch(world) == 1
    assert run.again().start().batch() is None


def test_leader_epochs_are_compared_once_for_each_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_twenty(world, FAIL)
    requested: list[Mapping[TopicPartition, int]] = []
    epoch_ends = world.cluster.epoch_ends
    monkeypatch.setattr(
        world.cluster, "epoch_ends", lambda epochs, current: (requested.append(epochs), epoch_ends(epochs, current))[1]
    )
    for _ in range(3):
        world.produce(1)
        assert run.batch()
    assert requested == []
    world.cluster.elect_leader(tp(0))
    assert [run.batch() for _ in range(3)] == [None, None, None], "an idle query"
    assert requested == [{tp(0): 0}]
    world.cluster.elect_leader(tp(0), 10)
    world.produce(30)
    with pytest.raises(DataLoss, match="truncated at offset 10"):
        run.batch()


def test_brokers_without_leader_epochs_are_checked_by_the_end_only(world: World) -> None:
    world.cluster.has_leader_epochs = False
    run = read_twenty(world, FAIL)
    truncate(world)
    assert run.batch() == ["flights-0[20,40)"]
    run.source.stop()
    assert leader_epoch(world) is None
    world.cluster.has_leader_epochs = True
    assert run.again().start().batch() is None


def test_a_reset_of_the_group_is_accepted(world: World) -> None:
    run = read_twenty(world, FAIL)
    run.source.stop()
    truncate(world)
    world.commit(15)
    assert run.again().start().batch() == ["flights-0[15,40)"]


def test_records_that_retention_has_deleted_with_their_epoch_are_expired(world: World) -> None:
    run = read_twenty(world, SKIP)
    run.source.stop()
    world.produce(10)
    world.cluster.elect_leader(tp(0))
    world.produce(10)
    world.cluster.delete_records(tp(0), 35)
    assert run.again().start().batch() == ["flights-0[35,40)"]
    assert gaps(world) == [(20, 35, Cause.EXPIRED)]


def test_a_ledger_continues_with_the_epoch_of_the_same_offset_in_the_group(world: World) -> None:
    ledger: FakeLedger[Any] = FakeLedger("airline")
    world.produce(20)
    start = Run(world, "alice", Settings(on_data_loss=FAIL), ledger=ledger).start()
    assert start.batch() == ["flights-0[0,20)"]
    start.batch()
    start.source.stop()
    with ledger.transaction() as transaction:
        transaction.advance({tp(0): 20}, {})
    truncate(world)
    again = Run(world, "alice", Settings(on_data_loss=FAIL, on_restart=OnRestart.GROUP), Checkpoint(), ledger=ledger)
    with pytest.raises(DataLoss, match="truncated at offset 10"):
        again.start().batch()


STEPS = st.lists(
    st.tuples(st.sampled_from(["produce", "clean", "unclean", "batch", "batch", "restart"]), st.integers(0, 8)),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=examples(40), deadline=None)
def test_in_any_history_the_group_has_read_the_log_or_has_recorded_a_gap(steps: list[tuple[str, int]]) -> None:
    """The oracle numbers the records. With ``skip`` the group has read exactly the records of the current log."""
    world = World(1)
    run = Run(world, "alice", Settings(on_data_loss=SKIP)).start()
    log: list[int] = []
    read: list[int] = []
    produced = truncated = 0

    def batch() -> None:
        for it in run.batch() or ():
            begin, end = map(int, it.split("[")[1][:-1].split(","))
            assert begin <= len(read)
            read[begin:] = log[begin:end]

    for step, number in steps:
        if step == "produce":
            world.produce(number)
            log += range(produced, produced + number)
            produced += number
        elif step == "clean":
            world.cluster.elect_leader(tp(0))
        elif step == "unclean":
            end = max(0, len(log) - number)
            truncated += end < len(read)
            world.cluster.elect_leader(tp(0), end)
            del log[end:]
        elif step == "batch":
            batch()
        else:
            # The next trigger commits the last batch.
            batch()
            batch()
            run.source.stop()
            run = run.again().start()
    batch()
    batch()
    assert read[: len(log)] == log
    assert bool(gaps(world)) <= bool(truncated)
