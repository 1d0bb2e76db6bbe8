"""S10, W5, W17: an operator with state runs without new records when it is due, and at the end of a bounded run. A query
plans an empty range for it.
"""

from __future__ import annotations

import json

import pytest

from streamgroups.groups.membership import InFlight
from streamgroups.query.operator_states import OperatorStates, StateReport
from streamgroups.query.state_search import StateSearch
from streamgroups.query.trigger_limits import Limits
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named
from streamgroups.state.state_time import StateTime
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

RUN = "1f3a9c2b7d10"


class Operator:
    """The tasks of a query: an operator that is due an interval after its start, until it has run without records."""

    def __init__(self, world: World, interval_ms: int = 60_000, *, flushes: bool = False) -> None:
        self.world, self.interval_ms = world, interval_ms
        self.due_ms = world.clock() + interval_ms
        self.run: Run | None = None
        #: Without event time the operator is due by the clock, otherwise by an idle timeout.
        self.time: StateTime | None = None
        self.high_watermarks = world.cluster.end_offsets
        self.states = OperatorStates(
            "/state",
            "airline",
            RUN,
            StateSearch(),
            self._reports,
            world.clock,
            high_watermarks=lambda partitions: self.high_watermarks(partitions),
            flushes=flushes,
        )
        self._files = 0

    def _reports(self, run_id: str, batch: int) -> list[StateReport]:
        assert self.run is not None
        in_flight = self.run.member.membership.in_flight
        assert in_flight is not None
        return [self._report(in_flight, i) for i in range(len(in_flight.ranges))]

    def _report(self, batch: InFlight, i: int) -> StateReport:
        self._files += 1
        r = batch.ranges[i]
        due_ms = self.due_ms if len(r) else None
        file = StateFileName(self.world.clock(), RUN, batch.number, self._files)
        return StateReport(r, file, due_ms, time=self.time)


def start(
    world: World,
    checkpoint: Checkpoint | None = None,
    *,
    until_now: bool = False,
    flushes: bool = False,
    settings: Settings | None = None,
) -> tuple[Run, Operator]:
    operator = Operator(world, flushes=flushes)
    operator.run = Run(world, "alice", settings, checkpoint, states=operator.states)
    return operator.run.start(until_now=until_now), operator


@pytest.fixture
def world() -> World:
    return World(2)


def test_S10_a_batch_without_records_runs_when_its_operator_is_due(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    assert run.batch() == ["flights-0[0,3)"]
    assert run.batch() is None
    world.clock.advance(operator.interval_ms)
    assert run.batch() == ["flights-0[3,3)"]
    assert run.batch() is None, "it is due once"
    assert world.committed() == {0: 3, 1: 0}
    state = run.member.membership.owned[tp(0)].state
    assert isinstance(state, Named)
    assert (state.file.batch, state.next_offset, state.due_ms) == (2, 3, None)


def test_S10_an_empty_range_is_not_in_the_checkpoint(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    run.batch()
    run.batch()
    world.produce(0, 2)
    world.clock.advance(operator.interval_ms)
    assert run.batch() == ["flights-0[3,3)", "flights-1[0,2)"]
    logged = json.loads(run.checkpoint.offsets[-1])
    assert (logged["ranges"], logged["resting"]) == ({"flights": {"1": [0, 2]}}, {"flights": {"0": 3}})


def test_S10_the_operator_gets_the_time_until_which_its_partition_was_idle(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    run.batch()
    world.clock.advance(operator.interval_ms)
    seen_ms = world.clock()
    ranges = run.plan()
    assert ranges is not None
    world.clock.advance(10)
    [plan] = run.source.task_plans([ranges])
    assert plan is not None
    assert (plan.planned_ms, [it.idle_until_ms for it in plan.ranges]) == (seen_ms + 10, [seen_ms])


def test_W5_records_of_an_open_transaction_are_available_records(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    operator.time = StateTime()
    run.batch()
    operator.high_watermarks = lambda partitions: dict.fromkeys(partitions, 4)
    world.clock.advance(operator.interval_ms)
    assert run.batch() is None
    operator.high_watermarks = world.cluster.end_offsets
    assert run.batch() == ["flights-0[3,3)"]


def test_W6_the_clock_does_not_wait_for_an_open_transaction(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    run.batch()
    operator.high_watermarks = lambda partitions: dict.fromkeys(partitions, 4)
    world.clock.advance(operator.interval_ms)
    assert run.batch() == ["flights-0[3,3)"]


def test_S10_a_killed_batch_without_records_is_planned_again_while_it_is_due(world: World) -> None:
    world.produce(3)
    run, operator = start(world)
    run.batch()
    run.batch()
    world.clock.advance(operator.interval_ms)
    run.plan()
    world.group.kill("alice")
    again, _ = start(world, run.checkpoint)
    assert again.running == ()
    again.finish()
    assert again.batch() == ["flights-0[3,3)"]
    assert again.batch() is None


def test_S10_a_position_that_names_no_state_runs_once(world: World) -> None:
    world.produce(3, 3)
    world.commit(3, 0)
    run, _ = start(world)
    assert run.batch() == ["flights-0[3,3)", "flights-1[0,3)"]
    assert run.batch() is None


def test_S10_an_available_now_query_ends_although_its_operator_will_be_due(world: World) -> None:
    world.produce(3)
    run, _ = start(world, until_now=True)
    assert run.batch() == ["flights-0[0,3)"]
    assert run.batch() is None


# ---- the end of a bounded run ----------------------------------------------------------------------------------------


def test_W17_a_bounded_run_ends_with_a_batch_that_flushes_the_partitions_with_a_state(world: World) -> None:
    world.produce(5)
    run, _ = start(world, until_now=True, flushes=True, settings=Settings(limits=Limits(max_offsets=3)))
    assert run.batch() == ["flights-0[0,3)"]
    assert run.batch() == ["flights-0[3,5)"]
    ranges = run.plan()
    assert [str(r) for r in ranges or ()] == ["flights-0[5,5)"], "flights-1 has no state"
    [plan] = run.source.task_plans([ranges or ()])
    assert plan is not None
    assert [(it.flush, it.idle_until_ms) for it in plan.ranges] == [(True, None)]
    run.finish()
    assert run.batch() is None, "once in each run"


def test_W17_records_after_the_start_of_a_bounded_run_are_not_waited_for(world: World) -> None:
    world.produce(3)
    run, _ = start(world, until_now=True, flushes=True)
    run.batch()
    world.produce(2)
    assert run.batch() == ["flights-0[3,3)"]
    assert run.batch() is None


def test_W17_a_partition_without_new_records_is_flushed_too(world: World) -> None:
    world.produce(3, 1)
    run, _ = start(world)
    run.batch()
    assert run.batch() is None
    run.source.stop()
    world.produce(2)
    again, _ = start(world, run.checkpoint, until_now=True, flushes=True)
    assert again.batch() == ["flights-0[3,5)"]
    assert again.batch() == ["flights-0[5,5)", "flights-1[1,1)"]
    assert again.batch() is None


def test_W17_a_partition_that_is_reset_during_its_flush_is_flushed_again(world: World) -> None:
    world.produce(5)
    run, _ = start(world, until_now=True, flushes=True)
    assert run.batch() == ["flights-0[0,5)"]
    assert [str(r) for r in run.plan() or ()] == ["flights-0[5,5)"]
    world.order(2)
    world.clock.advance(5_000)
    run.finish()
    assert run.batch() == ["flights-0[2,5)"]
    assert run.batch() == ["flights-0[5,5)"]
    assert run.batch() is None


def test_W17_a_killed_flush_is_planned_again(world: World) -> None:
    world.produce(3)
    run, _ = start(world, until_now=True, flushes=True)
    run.batch()
    assert [str(r) for r in run.plan() or ()] == ["flights-0[3,3)"]
    world.group.kill("alice")
    again, _ = start(world, run.checkpoint, until_now=True, flushes=True)
    assert again.running == ()
    again.finish()
    assert again.batch() == ["flights-0[3,3)"]
    assert again.batch() is None


def test_W17_a_due_operator_runs_before_the_flush(world: World) -> None:
    world.produce(3)
    run, operator = start(world, until_now=True, flushes=True)
    run.batch()
    world.clock.advance(operator.interval_ms)
    due = run.plan()
    [plan] = run.source.task_plans([due or ()])
    assert plan is not None
    assert [it.flush for it in plan.ranges] == [False]
    run.finish()
    assert run.batch() == ["flights-0[3,3)"]
    assert run.batch() is None


@pytest.mark.parametrize(("until_now", "flushes"), [(True, False), (False, True)])
def test_W17_only_a_bounded_run_of_an_operator_that_flushes_has_a_flush(
    world: World, until_now: bool, flushes: bool
) -> None:
    world.produce(3)
    run, _ = start(world, until_now=until_now, flushes=flushes)
    assert run.batch() == ["flights-0[0,3)"]
    assert run.batch() is None
