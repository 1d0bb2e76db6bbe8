"""W18, S10: a query with a join plans both partitions of a pair in one batch and task, or neither of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.fakes import FakeMember
from streamgroups.groups.membership import Membership
from streamgroups.groups.subscription import Topics
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.joined_states import JoinedStates
from streamgroups.query.operator_states import StateReport
from streamgroups.query.packing import Packing
from streamgroups.query.state_search import StateSearch
from streamgroups.query.trigger_limits import Limits
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_lookup import Choices
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups.state.origins import Named
from streamgroups.state.state_lookup import Position
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World

RUN = "1f3a9c2b7d10"
TOPICS = JoinedTopics("flights", "gates")
L0, L1, R0, R1 = (TopicPartition(topic, p) for topic in ("flights", "gates") for p in (0, 1))
SETTINGS = Settings(subscription=Topics(("flights", "gates")))


class Search(StateSearch):
    """Finds no state."""

    def __init__(self) -> None:
        self.searched: list[tuple[Position, Position]] = []

    def find_both(self, left: Position, right: Position) -> Choices:
        self.searched.append((left, right))
        return super().find_both(left, right)


class States(JoinedStates):
    """The states of a join whose tasks always end."""

    def __init__(self, world: World) -> None:
        self.search = Search()
        super().__init__(TOPICS, "/state", "airline", RUN, self.search, self._reports, world.clock)
        self.world, self.run = world, None
        self.planned: Callable[[], None] = lambda: None

    def _reports(self, run_id: str, batch: int) -> list[StateReport]:
        assert isinstance(self.run, Run)
        in_flight = self.run.member.membership.in_flight
        assert in_flight is not None
        file = StateFileName(self.world.clock(), RUN, batch, 1)
        return [StateReport(r, file) for r in in_flight.ranges]

    def complete(
        self, ranges: Collection[OffsetRange], next_offsets: Mapping[TopicPartition, int]
    ) -> Collection[OffsetRange]:
        found = super().complete(ranges, next_offsets)
        if next_offsets:
            self.planned()
        return found


def start(world: World, checkpoint: Checkpoint | None = None, settings: Settings = SETTINGS) -> tuple[Run, States]:
    states = States(world)
    run = Run(world, "alice", settings, checkpoint=checkpoint, states=states)
    states.run = run
    return run.start(), states


@pytest.fixture
def world() -> World:
    world = World(2)
    world.cluster.create_topic("gates", 2)
    return world


def produce(world: World, counts: Mapping[TopicPartition, int]) -> None:
    for tp, count in counts.items():
        world.cluster.produce(tp, count)


def test_W18_the_partner_without_records_is_in_the_same_batch(world: World) -> None:
    produce(world, {L0: 3, R1: 2})
    run, _ = start(world)
    assert run.batch() == ["flights-0[0,3)", "flights-1[0,0)", "gates-0[0,0)", "gates-1[0,2)"]
    produce(world, {R0: 4})
    assert run.batch() == ["flights-0[3,3)", "gates-0[0,4)"]
    assert run.batch() is None, "a position that names a state, or none, is never due"
    assert json.loads(run.checkpoint.offsets[-1])["ranges"] == {"gates": {"0": [0, 4]}}
    states = {tp: it.state for tp, it in run.member.membership.owned.items()}
    assert all(isinstance(it, Named) for it in states.values())
    assert states[L0].file == states[R0].file  # type: ignore[union-attr]


def test_W18_both_partitions_are_committed_together(world: World) -> None:
    produce(world, {L0: 3})
    run, _ = start(world)
    run.batch()
    run.batch()
    committed = world.cluster.committed("airline", [L0, R0])
    assert {tp: it.next_offset for tp, it in committed.items()} == {L0: 3, R0: 0}


def test_W18_a_batch_of_a_killed_query_gets_the_partners_again(world: World) -> None:
    produce(world, {L0: 3})
    run, _ = start(world)
    run.plan()
    world.group.kill("alice")
    again, _ = start(world, run.checkpoint)
    assert [str(r) for r in again.running or ()] == ["flights-0[0,3)", "gates-0[0,0)"]
    again.finish()
    assert again.batch() is None
    assert set(world.cluster.committed("airline", [L0, R0])) == {L0, R0}


@pytest.mark.parametrize("arrives", [True, False])
def test_W18_availableNow_waits_for_the_partner_of_a_partition_with_records(
    world: World, arrives: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a rebalance the member owns only one of both."""
    produce(world, {L0: 3})
    states = States(world)
    run = states.run = Run(world, "alice", SETTINGS, states=states)
    run.start(until_now=True)
    of_member = FakeMember.__dict__["membership"].fget
    polls = 0

    def planned() -> None:
        nonlocal polls
        polls += 1
        if arrives and polls == 1:
            monkeypatch.setattr(FakeMember, "membership", property(of_member))

    def without_partner(member: FakeMember) -> Membership:
        found: Membership = of_member(member)
        return replace(found, owned={tp: it for tp, it in found.owned.items() if tp != R0})

    states.planned = planned
    monkeypatch.setattr(FakeMember, "membership", property(without_partner))
    monkeypatch.setattr(run.source._now, "_timeout_ms", 0)
    if arrives:
        assert run.batch() == ["flights-0[0,3)", "gates-0[0,0)"]
    else:
        assert run.batch() is None
    assert ("ends before it has read all records" in caplog.text) is not arrives


@pytest.mark.parametrize("own", [(L0, R1), (R0,), (L0, L1, R0)])
def test_W18_a_partition_waits_for_its_partner(
    world: World, own: tuple[TopicPartition, ...], caplog: pytest.LogCaptureFixture
) -> None:
    states = States(world)
    ranges = [OffsetRange(tp, 0, 5) for tp in own]
    whole = [r for r in ranges if TOPICS.partner(r.topic_partition) in own]
    next_offsets = dict.fromkeys(own, 0)
    with caplog.at_level(logging.WARNING):
        assert list(states.complete(ranges, next_offsets)) == whole
        world.clock.advance(59_000)
        states.complete(ranges, next_offsets)
        assert caplog.messages == []
        world.clock.advance(1_000)
        states.complete(ranges, next_offsets)
        states.complete(ranges, next_offsets)
    waiting = [r.topic_partition for r in ranges if r not in whole]
    assert len(caplog.messages) == len(waiting), "once"
    for tp, message in zip(waiting, caplog.messages, strict=True):
        assert (
            f"the records of {tp} have waited for 60 s, because this query cannot read {TOPICS.partner(tp)}" in message
        )


def test_W18_a_partner_that_is_revoked_while_the_batch_is_planned_takes_the_other_with_it(world: World) -> None:
    produce(world, {L0: 3, L1: 3, R0: 3, R1: 3})
    run, states = start(world)

    bob = Run(world, "bob", SETTINGS, states=States(world))

    def rebalance() -> None:
        states.planned = lambda: None
        assert bob.start().plan() is None, "bob has the partitions of one topic"

    states.planned = rebalance
    assert run.batch() is None
    assert set(world.group.owners().values()) == {"alice", "bob"}
    in_flight = run.member.membership.in_flight
    assert in_flight is not None
    assert in_flight.ranges == ()
    world.group.kill("bob")
    world.group.settle()
    assert run.batch() == ["flights-0[0,3)", "flights-1[0,3)", "gates-0[0,3)", "gates-1[0,3)"]


def test_W18_positions_that_a_tool_has_set_are_searched_together(world: World) -> None:
    produce(world, {L0: 3, R0: 3})
    world.cluster.commit("airline", {L0: 2, L1: 0, R0: 1, R1: 0})
    run, states = start(world)
    ranges = run.plan()
    assert ranges is not None
    [plan] = run.source.task_plans([ranges])
    assert plan is not None
    assert [str(it.to_read) for it in plan.ranges] == ["flights-0[2,3)", "gates-0[1,3)"]
    assert [(left.topic_partition, right.topic_partition) for left, right in states.search.searched] == [(L0, R0)]


def test_W18_a_pair_is_one_unit_of_tasks(world: World) -> None:
    states = States(world)
    ranges = [OffsetRange(tp, 0, 20_000) for tp in (L0, L1, R0)]
    empty = [OffsetRange(R1, 7, 7)]
    tasks = states.pack(ranges, empty, Packing(cores=8), {})
    assert [[str(r) for r in task] for task in tasks] == [
        ["flights-0[0,20000)", "gates-0[0,20000)"],
        ["flights-1[0,20000)", "gates-1[7,7)"],
    ]


def test_W18_limits_apply(world: World) -> None:
    produce(world, {L0: 100, R0: 1})
    settings = Settings(subscription=SETTINGS.subscription, limits=Limits(max_offsets=11))
    run, _ = start(world, settings=settings)
    assert run.batch() == ["flights-0[0,10)", "gates-0[0,1)"]
    assert run.batch() == ["flights-0[10,21)", "gates-0[1,1)"]


def test_W18_topics_with_other_partitions_are_rejected_before_the_group_is_joined(world: World) -> None:
    world.cluster.add_partitions("flights", 3)
    with pytest.raises(InvalidOption, match=r"'flights' with 3 partitions and 'gates' with 2 .*sg.repartition"):
        start(world)
    only = Settings(subscription=Topics(("flights",)))
    with pytest.raises(InvalidOption, match="does not read 'gates'"):
        start(world, settings=only)
    world.cluster.create_topic("delays", 2)
    more = Settings(subscription=Topics(("flights", "gates", "delays")))
    with pytest.raises(InvalidOption, match="also reads 'delays'"):
        start(world, settings=more)
    assert world.group.owners() == {}
