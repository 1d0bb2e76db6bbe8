"""P2: a worker runs the placements that name it, and stops the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.instances.entries import Definition, Desired, Observation, Observed, Placement, Replica, Worker
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.leases import Lease, LeaseWatch, expired, observe
from streamgroups.instances.worker import Run, decide

LATE = Replica("late", 0)
PLACED = Placement(LATE, "w1", 7, 2)


def state_of(*entries: object) -> InstanceState:
    state = InstanceState()
    for entry in (Definition("late", "{}"), Desired("late", True, 2), PLACED, *entries):
        state = apply(state, entry)  # type: ignore[arg-type]
    return state


def test_a_placement_starts_once() -> None:
    assert decide(state_of(), "w1", 4, {}, ended=set(), must_stop=None).start == (PLACED,)
    assert decide(state_of(), "w1", 4, {LATE: Run(PLACED)}, ended=set(), must_stop=None) == decide(
        InstanceState(), "w1", 4, {}, ended=set(), must_stop=None
    )
    assert not decide(state_of(), "w2", 4, {}, ended=set(), must_stop=None).start
    assert not decide(state_of(), "w1", 4, {}, ended={7}, must_stop=None).start


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (replace(PLACED, worker="w2", number=8), "its placement 7 is outdated"),
        (replace(PLACED, number=8), "its placement 7 is outdated"),
        (Desired("late", False, 2), "its processor was stopped"),
        (Desired("late", True, 3), "its processor was started again"),
    ],
)
def test_a_run_ends_with_its_placement(entry: object, reason: str) -> None:
    plan = decide(state_of(entry), "w1", 4, {LATE: Run(PLACED)}, ended=set(), must_stop=None)
    assert plan.stop == {LATE: reason}
    assert not plan.start
    stopping = {LATE: Run(PLACED, is_stopping=True)}
    assert not decide(state_of(entry), "w1", 4, stopping, ended=set(), must_stop=None).stop


def test_without_a_lease_everything_stops_and_nothing_starts() -> None:
    plan = decide(state_of(), "w1", 4, {LATE: Run(PLACED)}, ended=set(), must_stop="its lease has expired")
    assert plan.stop == {LATE: "its lease has expired"}
    assert not decide(state_of(), "w1", 4, {}, ended=set(), must_stop="its lease has expired").start


def test_a_query_that_is_being_stopped_occupies_its_slot() -> None:
    other = Placement(Replica("other", 0), "w1", 5, 1)
    stopping = {other.replica: Run(other, is_stopping=True)}
    assert not decide(state_of(), "w1", 1, stopping, ended=set(), must_stop=None).start
    assert decide(state_of(), "w1", 2, stopping, ended=set(), must_stop=None).start == (PLACED,)


@pytest.mark.parametrize("state", [Observed.FAILED, Observed.COMPLETED])
def test_a_replica_that_has_ended_waits_for_the_next_request(state: Observed) -> None:
    ended = state_of(Observation(PLACED, state, 0))
    assert not ended.is_required(LATE)
    assert not decide(ended, "w1", 4, {}, ended=set(), must_stop=None).start
    assert apply(ended, Desired("late", True, 3)).is_required(LATE)


def test_a_worker_ends_its_lease_before_the_manager_does() -> None:
    worker = Worker("w1", 4, 0, heartbeat=3, at_ms=0, lease_ms=6_000)
    # The heartbeat was sent at 0 and read at 10: nothing is faster than zero.
    lease, watch = Lease(6_000, renewed_ms=0), observe(LeaseWatch(), {"w1": worker}, 10, 100)
    for now_ms in range(10, 10_000, 50):
        watch = observe(watch, {"w1": worker}, now_ms, 100)
        assert not lease.is_valid(now_ms) or not expired(watch, {"w1": worker}, now_ms, 60_000)
    assert expired(watch, {"w1": worker}, 10_000, 60_000) == {"w1"}


def test_an_overloaded_manager_detects_the_end_of_a_lease() -> None:
    """It reads only every 5 s, and 2 s of each gap count."""
    worker = {"w1": Worker("w1", 4, 0, heartbeat=3, at_ms=0, lease_ms=6_000)}
    watch, now_ms = observe(LeaseWatch(), worker, 0, 2_000), 0
    while not expired(watch, worker, now_ms, 60_000):
        now_ms += 5_000
        watch = observe(watch, worker, now_ms, 2_000)
    assert now_ms == 20_000


def test_a_heartbeat_renews_a_lease_and_a_new_worker_has_its_own_timeout() -> None:
    worker = Worker("w1", 4, 0, heartbeat=0, at_ms=0, lease_ms=6_000)
    watch = observe(LeaseWatch(), {"w1": worker}, 0, 10**9)
    assert not expired(watch, {"w1": worker}, 59_999, 60_000)
    assert expired(watch, {"w1": worker}, 60_000, 60_000) == {"w1"}
    renewed = replace(worker, heartbeat=1)
    watch = observe(watch, {"w1": renewed}, 59_000, 10**9)
    assert not expired(watch, {"w1": renewed}, 66_000, 60_000)
    assert not observe(watch, {}, 60_000, 10**9).seen
