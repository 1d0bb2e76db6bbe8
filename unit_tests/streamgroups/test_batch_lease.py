"""S8: when a batch is a warning, when it makes the member leave its group, and when it does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.groups.batch_lease import (
    BatchLease,
    Finished,
    JoinAgain,
    LeaseEffect,
    LeaseEvent,
    LeaseLimits,
    LeaseWord,
    Leave,
    Left,
    LookedUp,
    LookUp,
    NoBatch,
    Planned,
    Running,
    Tick,
    Warn,
    lease_limits,
    step,
)

MINUTE_MS = 60_000
LIMITS = LeaseLimits(5 * MINUTE_MS, lease_timeout_ms=30 * MINUTE_MS)


@dataclass
class World:
    """A member's batches, driven by events; reads the facts as its thread does."""

    limits: LeaseLimits = LIMITS
    has_others: bool = True
    is_done: bool = False
    now_ms: int = 0
    state: BatchLease = field(default_factory=NoBatch)
    effects: list[tuple[int, LeaseEffect]] = field(default_factory=list)

    def happens(self, event: LeaseEvent) -> None:
        before = self.state
        self.state, effects = step(before, event, self.now_ms, self.limits)
        self.effects += [(self.now_ms, effect) for effect in effects]
        for effect in effects:
            if isinstance(effect, LookUp):
                self.happens(LookedUp(effect.number, self.is_done, self.has_others))

    def passes(self, ms: int, every_ms: int = 1_000) -> None:
        for _ in range(ms // every_ms):
            self.now_ms += every_ms
            self.happens(Tick())

    def of(self, kind: type[LeaseEffect]) -> list[tuple[int, LeaseEffect]]:
        return [(at, effect) for at, effect in self.effects if isinstance(effect, kind)]


def test_S8_a_batch_in_flight_for_longer_than_its_lease_makes_the_member_leave_until_it_ends() -> None:
    world = World()
    world.happens(Planned(7))
    world.passes(30 * MINUTE_MS)
    assert world.of(Leave) == []
    world.passes(MINUTE_MS)
    assert world.of(Leave) == [(30 * MINUTE_MS + 1_000, Leave(7, 30 * MINUTE_MS + 1_000))]
    world.passes(600 * MINUTE_MS, MINUTE_MS)
    assert (len(world.of(Leave)), world.of(JoinAgain)) == (1, [])
    world.happens(Finished(7))
    assert world.of(JoinAgain) == [(world.now_ms, JoinAgain(7))]
    assert world.state == NoBatch()


def test_S8_the_last_member_stays_until_another_one_comes() -> None:
    world = World(has_others=False)
    world.happens(Planned(7))
    world.passes(300 * MINUTE_MS, MINUTE_MS)
    assert world.of(Leave) == []
    world.has_others = True
    world.passes(MINUTE_MS)
    assert len(world.of(Leave)) == 1


def test_S8_an_exclusive_query_is_always_alone_and_leaves() -> None:
    world = World(LeaseLimits(5 * MINUTE_MS, 30 * MINUTE_MS, is_exclusive=True), has_others=False)
    world.happens(Planned(7))
    world.passes(31 * MINUTE_MS)
    assert len(world.of(Leave)) == 1


def test_S8_a_batch_that_is_done_and_waits_for_its_trigger_keeps_its_partitions() -> None:
    world = World(is_done=True)
    world.happens(Planned(7))
    world.passes(300 * MINUTE_MS, MINUTE_MS)
    assert world.of(Leave) == []


def test_S8_while_a_lease_is_over_the_facts_are_not_looked_up_with_each_turn() -> None:
    world = World(has_others=False)
    world.happens(Planned(7))
    world.passes(31 * MINUTE_MS, 50)
    assert len(world.of(LookUp)) == 2, "every 30 s: a sixtieth of the lease"


def test_half_the_time_that_a_rebalance_allows_is_a_warning_once_per_batch() -> None:
    world = World(LeaseLimits(5 * MINUTE_MS))
    for number in (7, 8):
        world.happens(Planned(number))
        world.passes(3 * MINUTE_MS)
        world.happens(Finished(number))
    assert world.of(Warn) == [(2 * MINUTE_MS, Warn(7, 2 * MINUTE_MS)), (5 * MINUTE_MS, Warn(8, 2 * MINUTE_MS))]


def test_facts_that_come_too_late_are_about_another_batch() -> None:
    state: BatchLease = Running(8, 0, 0)
    late_ms = 40 * MINUTE_MS
    assert step(state, LookedUp(7, is_done=False, has_others=True), late_ms, LIMITS) == (state, ())
    # Planned while the facts of the batch before it were looked up.
    state = Running(7, 39 * MINUTE_MS, 0)
    assert step(state, LookedUp(7, is_done=False, has_others=True), late_ms, LIMITS) == (state, ())


@pytest.mark.parametrize("number", [6, 7, 8])
def test_the_end_of_an_earlier_batch_ends_nothing(number: int) -> None:
    for state in (Running(7, 0, 0), Left(7, 0)):
        after, effects = step(state, Finished(number), 1, LIMITS)
        assert (after == NoBatch()) == (number >= 7)
        assert (effects == (JoinAgain(7),)) == (number >= 7 and isinstance(state, Left))


@pytest.mark.parametrize(
    ("choice", "is_exclusive", "sees_done", "lease_ms"),
    [
        (LeaseWord.DEFAULT, False, True, 3_600_000),
        (LeaseWord.DEFAULT, False, False, None),
        (LeaseWord.DEFAULT, True, True, None),
        (LeaseWord.OFF, False, True, None),
        (5_000, False, False, 5_000),
        (5_000, True, False, 5_000),
    ],
)
def test_the_default_harms_no_query_that_is_well(
    choice: int | LeaseWord, is_exclusive: bool, sees_done: bool, lease_ms: int | None
) -> None:
    limits = lease_limits(choice, 300_000, is_exclusive=is_exclusive, sees_done=sees_done)
    assert limits == LeaseLimits(300_000, lease_ms, is_exclusive)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[int, str, bool, bool]]:
    """Whatever may come: how long nothing happens, then what, and the facts at that time."""
    one = st.tuples(
        st.integers(0, 40 * MINUTE_MS), st.sampled_from(["plan", "finish", "pass"]), st.booleans(), st.booleans()
    )
    return draw(st.lists(one, max_size=30))


#: The rows of the module's picture: planned, over, left, finished; and planned, over, done.
LEAVES = [(0, "plan", False, True), (31 * MINUTE_MS, "pass", False, True), (1, "finish", False, True)]
STAYS = [(0, "plan", False, True), (31 * MINUTE_MS, "pass", True, True), (1, "finish", False, True)]


@example(happened=LEAVES, lease_ms=30 * MINUTE_MS, is_exclusive=False)
@example(happened=STAYS, lease_ms=30 * MINUTE_MS, is_exclusive=False)
@example(happened=LEAVES, lease_ms=None, is_exclusive=True)
@given(
    happened=happenings(),
    lease_ms=st.one_of(st.none(), st.integers(1_000, 60 * MINUTE_MS)),
    is_exclusive=st.booleans(),
)
def test_S8_a_member_leaves_only_for_a_batch_that_is_over_and_joins_again_once(
    happened: list[tuple[int, str, bool, bool]], lease_ms: int | None, is_exclusive: bool
) -> None:
    world = World(LeaseLimits(5 * MINUTE_MS, lease_ms, is_exclusive))
    number, began_ms = 0, 0
    for ms, what, world.is_done, world.has_others in happened:
        world.now_ms += ms
        before = len(world.effects)
        was_away = isinstance(world.state, Left)
        if what == "plan":
            number, began_ms = number + 1, world.now_ms
            world.happens(Planned(number))
        elif what == "finish":
            world.happens(Finished(number))
        else:
            world.happens(Tick())
        new = [effect for _, effect in world.effects[before:]]
        left = [effect for effect in new if isinstance(effect, Leave)]
        if left:
            assert left == [Leave(number, world.now_ms - began_ms)]
            assert lease_ms is not None
            assert world.now_ms - began_ms > lease_ms
            assert not world.is_done
            assert world.has_others or is_exclusive
        joined = any(isinstance(effect, JoinAgain) for effect in new)
        assert joined == (was_away and not isinstance(world.state, Left)), "once for each time it left"
        assert isinstance(world.state, Left) == bool(left or (was_away and not joined))
    warned = [effect.number for _, effect in world.effects if isinstance(effect, Warn)]
    assert len(warned) == len(set(warned)), "once per batch"
