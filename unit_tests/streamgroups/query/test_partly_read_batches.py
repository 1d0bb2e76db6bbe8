"""S5, S10: a batch that Spark counts as finished, and that its sink has not read whole, is read again by the next run.

The table of all cases: what the sink has read, which batch, how the run ended, which checkpoint the next run has, and both
options that decide after a restart. The model of Spark runs on the fakes; ``integration_tests`` has the main cases.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from itertools import product

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import BrokerUnreachable, StateMissing
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Owned, States
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.query_ports import BatchStates
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Named
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp


class Read(Enum):
    """The rows of a batch that the sink has read."""

    WHOLE = "whole"
    #: Such as ``show(1)``, ``first`` and ``limit``: the tasks of some ranges have ended.
    PARTLY = "partly"
    #: All tasks have written their states, and one of them was ended before Spark had taken its rows.
    CUT_OFF = "cut off"
    #: Such as a filter to nothing, or a function that ignores the batch.
    NOT = "not"


class Ended(Enum):
    """How the run has ended after the batch."""

    ERROR = "by the error"
    STOP = "by stop"
    KILL = "by a kill"


#: A batch that is read whole is no error. After a kill, states that are all written count as read.
IMPOSSIBLE = {(Read.WHOLE, Ended.ERROR), (Read.CUT_OFF, Ended.KILL)}


class Tasks(BatchStates):
    """The states of an operator, of all runs: those that tasks have written. A range that is read has a state."""

    def __init__(self) -> None:
        self.read, self.written = Read.WHOLE, dict[OffsetRange, StateFileName]()
        self.reported: set[OffsetRange] = set()
        self.delivered: list[OffsetRange] = []

    def finished(self, batch: InFlight | None) -> States:
        """See :meth:`BatchStates.finished`."""
        if batch is None:
            return {}
        if not self.reported >= set(batch.ranges):
            raise StateMissing("no task has written the states", remedy="Restart the query.")
        return {r.topic_partition: Named(self.written[r], r.end_offset) for r in batch.ranges}

    def is_written(self, r: OffsetRange, owned: Owned) -> bool:
        """See :meth:`BatchStates.is_written`."""
        return r in self.written

    def run(self, ranges: tuple[OffsetRange, ...]) -> None:
        """Runs the tasks of a batch, as far as the sink reads their rows."""
        ended = {Read.WHOLE: ranges, Read.PARTLY: ranges[:1], Read.CUT_OFF: ranges[:1], Read.NOT: ()}[self.read]
        written = ranges if self.read is Read.CUT_OFF else ended
        self.written |= {r: StateFileName(1, "1f3a9c2b7d10", len(self.written), 0) for r in written}
        self.reported |= set(ended)
        if self.read is Read.WHOLE:
            self.delivered += ranges


def run_batch(run: Run, tasks: Tasks) -> list[str]:
    run.world.clock.advance(250)
    ranges = run.plan()
    assert ranges is not None
    tasks.run(ranges)
    run.finish()
    return [str(r) for r in ranges]


def ended(world: World, run: Run, how: Ended) -> None:
    if how is Ended.ERROR:
        with pytest.raises(StateMissing):
            run.batch()
    if how is Ended.KILL:
        world.group.kill("alice")
    else:
        run.source.stop()
    world.group.settle()


@pytest.mark.parametrize("mode", [MembershipMode.SHARED, MembershipMode.EXCLUSIVE])
@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize("is_same", [True, False], ids=["same checkpoint", "new checkpoint"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first batch", "later batch"])
@pytest.mark.parametrize(("read", "how"), [it for it in product(Read, Ended) if it not in IMPOSSIBLE])
def test_S10_a_batch_that_was_not_read_whole_is_read_again(
    read: Read, how: Ended, is_first: bool, is_same: bool, policy: OnRestart, mode: MembershipMode
) -> None:
    world, tasks, checkpoint = World(2), Tasks(), Checkpoint()
    settings = Settings(mode=mode, on_restart=policy)
    world.produce(3, 2)
    run = Run(world, "alice", settings, checkpoint, reads_checkpoint=True, states=tasks).start()
    if not is_first:
        run_batch(run, tasks)
        world.produce(4, 4)
    before = list(tasks.delivered)
    tasks.read = read
    ranges = run_batch(run, tasks)
    ended(world, run, how)

    world.produce(1, 1)
    tasks.read = Read.WHOLE
    again = Run(
        world, "alice", settings, checkpoint if is_same else None, "2", reads_checkpoint=True, states=tasks
    ).start()
    run_batch(again, tasks)
    assert again.batch() is None
    ends = {0: 4 if is_first else 8, 1: 3 if is_first else 7}
    assert world.committed() == ends
    after = {r.topic_partition: r for r in tasks.delivered[-2:]}
    begin = {r.topic_partition: r.end_offset for r in before} or {tp(0): 0, tp(1): 0}
    # A commit is missing after a kill. A new checkpoint cannot contain it: at least once.
    is_read_again = read is not Read.WHOLE or (how is Ended.KILL and not is_same)
    start = begin if is_read_again else {tp(0): ends[0] - 1, tp(1): ends[1] - 1}
    assert after == {it: OffsetRange(it, start[it], ends[it.partition]) for it in start}, ranges


@pytest.mark.parametrize("policy", OnRestart)
def test_S10_a_batch_without_a_stored_entry_is_read_again_if_a_state_is_missing(
    policy: OnRestart, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, tasks = World(2), Tasks()
    world.produce(3, 2)
    run = Run(world, "alice", Settings(on_restart=policy), reads_checkpoint=True, states=tasks).start()
    tasks.read = Read.PARTLY
    run_batch(run, tasks)

    def fail(group_id: str, entries: Mapping[TopicPartition, object]) -> None:
        raise BrokerUnreachable("No broker responds.", remedy="Start one.")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(world.metadata_store, "write", fail)
        with pytest.raises(StateMissing):
            run.batch()
    assert "has not read batch 1 (No broker responds." in caplog.text
    run.source.stop()
    world.group.settle()
    tasks.read = Read.WHOLE
    again = Run(world, "alice", run.settings, run.checkpoint, "2", reads_checkpoint=True, states=tasks).start()
    with caplog.at_level(logging.WARNING):
        assert run_batch(again, tasks) == ["flights-0[0,3)", "flights-1[0,2)"]
    assert "batch 1 has not read flights-0[0,3)" in caplog.text


def test_S10_another_member_that_has_read_it_meanwhile_keeps_its_position() -> None:
    """Under each policy: the checkpoint has no position for a batch that was not read."""
    for policy in OnRestart:
        world, tasks = World(1), Tasks()
        world.produce(3)
        settings = Settings(on_restart=policy)
        alice = Run(world, "alice", settings, reads_checkpoint=True, states=tasks).start()
        tasks.read = Read.NOT
        run_batch(alice, tasks)
        ended(world, alice, Ended.ERROR)
        tasks.read = Read.WHOLE
        world.produce(2)
        bob = Run(world, "bob", settings, reads_checkpoint=True, states=tasks).start()
        assert run_batch(bob, tasks) == ["flights-0[0,5)"]
        assert bob.batch() is None
        bob.source.stop()
        world.group.settle()
        world.produce(1)
        again = Run(world, "alice", settings, alice.checkpoint, "2", reads_checkpoint=True, states=tasks).start()
        assert run_batch(again, tasks) == ["flights-0[5,6)"]


def test_S10_a_position_of_a_tool_is_not_that_of_a_batch() -> None:
    world, tasks = World(1), Tasks()
    world.produce(3)
    alice = Run(world, "alice", Settings(), reads_checkpoint=True, states=tasks).start()
    run_batch(alice, tasks)
    ended(world, alice, Ended.STOP)
    world.commit(0)
    tasks.written.clear()
    again = Run(
        world,
        "alice",
        Settings(on_restart=OnRestart.CHECKPOINT),
        alice.checkpoint,
        "2",
        reads_checkpoint=True,
        states=tasks,
    ).start()
    assert again.batch() is None
    assert world.committed() == {0: 3}
    assert again.member.membership.owned[tp(0)].state == UNNAMED
