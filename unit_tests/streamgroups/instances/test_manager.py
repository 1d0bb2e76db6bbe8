"""P2: the manager of an instance, with workers that are killed, frozen and released."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.instances.entries import (
    Desired,
    Manager,
    Observation,
    Observed,
    Placement,
    Release,
    Removed,
    Replica,
    Worker,
)
from streamgroups.instances.manager import ManagerSettings
from unit_tests.examples import sequences
from unit_tests.streamgroups.instances.model import Instance, counts, names


def running(*numbers: int) -> Instance:
    instance = Instance()
    instance.start(*names(*numbers))
    instance.settle()
    return instance


def test_P2_the_example_with_a_manager() -> None:
    instance = running(*range(1, 9))
    first, second = instance.where("proc01", "proc05")
    assert first != second
    assert instance.where(*names(1, 2, 3, 4)) == [first] * 4
    assert instance.where(*names(5, 6, 7, 8)) == [second] * 4
    instance.start("proc09")
    instance.settle()
    (third,) = instance.where("proc09")
    assert third not in (first, second, None)
    instance.stop("proc03")
    instance.settle()
    instance.stop("proc09")
    instance.settle()
    instance.start("proc09")
    instance.settle()
    assert instance.where("proc09") == [first]
    assert third in instance.state.workers
    instance.settle(1_000, 61)
    assert set(instance.state.workers) == {first, second}
    assert not instance.state.releases


def test_P2_proc10_takes_the_slot_of_proc03() -> None:
    instance = running(*range(1, 10))
    instance.stop("proc03")
    instance.start("proc10")
    instance.settle()
    assert instance.where("proc10") == instance.where("proc01")


def test_a_worker_that_is_killed_loses_its_processors_and_no_others() -> None:
    instance = running(*range(1, 9))
    first, second = instance.where("proc01", "proc05")
    assert first is not None
    before = {it: instance.state.placements[Replica(it, 0)] for it in names(5, 6, 7, 8)}
    instance.kill(first)
    instance.settle(1_000, 12)
    assert first not in instance.state.workers
    assert None not in instance.where(*names(1, 2, 3, 4))
    assert {first, second}.isdisjoint(instance.where(*names(1, 2, 3, 4)))
    assert {it: instance.state.placements[Replica(it, 0)] for it in names(5, 6, 7, 8)} == before


def test_a_process_whose_parent_has_seen_its_end_is_replaced_at_once() -> None:
    instance = running(1)
    (worker,) = instance.where("proc01")
    assert worker is not None
    instance.kill(worker)
    instance.exited[worker] = "exit code -9"
    plan = instance.tick()
    assert plan.dead == {worker: "exit code -9"}
    assert instance.where("proc01") != [worker]


def test_a_manager_that_was_frozen_declares_no_worker_dead() -> None:
    instance = running(1)
    (worker,) = instance.where("proc01")
    # The heartbeats of this time are in the topic, but the manager reads only the last one, after its clock.
    instance.frozen.add(worker or "")
    instance.tick(3_600_000)
    instance.frozen.clear()
    instance.settle()
    assert instance.where("proc01") == [worker]


def test_a_worker_that_never_starts_is_replaced() -> None:
    instance = Instance(ManagerSettings(start_timeout_ms=5_000), starts_workers=False)
    instance.start("proc01")
    instance.tick()
    (first,) = instance.where("proc01")
    instance.settle(1_000, 8)
    assert instance.where("proc01") not in ([first], [None])
    assert first not in instance.state.workers


def test_workers_that_end_at_once_start_with_growing_waits() -> None:
    instance = Instance(starts_workers=False)
    instance.start("proc01")
    started = []
    for _ in range(200):
        started += [instance.now_ms + 1_000 for _ in instance.tick().start]
        instance.exited |= dict.fromkeys(instance.state.workers, "exit code 2")
    waits = [after - before for before, after in pairwise(started)]
    assert waits[:3] == sorted(waits[:3])
    assert 5 <= len(started) <= 12


def test_a_failed_processor_frees_its_slot_and_starts_with_the_next_request() -> None:
    instance = running(1, 2, 3, 4)
    (worker,) = instance.where("proc02")
    instance.fail(Replica("proc02", 0))
    instance.settle()
    assert instance.where("proc02") == [None]
    instance.start("proc05")
    instance.settle()
    assert instance.where("proc05") == [worker]
    instance.start("proc02")
    instance.settle()
    assert instance.where("proc02") not in ([None], [worker])


def test_a_failed_processor_that_is_defined_again_without_a_manager_starts() -> None:
    """Its old placement is in the topic, and its worker does not run it again."""
    instance = running(1)
    instance.fail(Replica("proc01", 0))
    instance.drop("proc01")
    instance.start("proc01")
    instance.settle()
    (worker,) = instance.where("proc01")
    assert worker is not None
    assert Replica("proc01", 0) in instance.runs[worker]


def test_a_request_restarts_a_running_processor() -> None:
    instance = running(1)
    before = instance.state.placements[Replica("proc01", 0)]
    instance.start("proc01")
    instance.settle()
    after = instance.state.placements[Replica("proc01", 0)]
    assert (after.worker, after.request) == (before.worker, before.request + 1)
    assert after.number > before.number
    assert instance.runs[after.worker][Replica("proc01", 0)].placement == after


def test_without_workers_of_its_own_a_manager_waits_for_others() -> None:
    instance = Instance(ManagerSettings(max_workers=0))
    instance.start(*names(1, 2))
    assert instance.tick().waiting == (Replica("proc01", 0), Replica("proc02", 0))
    instance.join(Worker("elsewhere", 1, 0, 0, 0, 6_000))
    plan = instance.tick()
    assert instance.where(*names(1, 2)) == ["elsewhere", None]
    assert plan.waiting == (Replica("proc02", 0),)
    instance.stop("proc01")
    instance.settle(1_000, 100)
    assert instance.where("proc02") == ["elsewhere"]
    instance.stop("proc02")
    instance.settle(1_000, 100)
    assert "elsewhere" in instance.state.workers


def test_fewer_replicas_release_their_slots_and_states() -> None:
    instance = Instance()
    instance.define("late", 3)
    instance.start("late")
    instance.settle()
    assert len(instance.state.placements) == 3
    assert len(set(instance.state.workers)) == 3
    instance.define("late", 1)
    instance.settle()
    assert list(instance.state.placements) == [Replica("late", 0)]
    assert list(instance.state.observed) == [Replica("late", 0)]


def test_a_dropped_processor_leaves_nothing() -> None:
    instance = running(1)
    instance.drop("proc01")
    instance.settle(1_000, 70)
    state = instance.state
    kept = (state.definitions, state.desired, state.placements, state.observed, state.workers, state.releases)
    assert not any(kept)


def test_numbers_never_decrease_over_managers_and_compaction() -> None:
    instance = running(1)
    number = instance.state.next_number
    instance.drop("proc01")
    instance.settle(1_000, 70)
    (heartbeat,) = [it for it in instance.written if isinstance(it, Manager)][-1:]
    assert heartbeat.next_number == instance.state.next_number >= number
    # The next manager reads only what compaction has left.
    later = Instance(now_ms=10_000_000)
    later.write(heartbeat)
    later.start("proc02")
    later.settle()
    assert later.state.placements[Replica("proc02", 0)].number >= number


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"slots": 65}, {"max_workers": -1}, {"idle_ms": 0}, {"lease_ms": 10**9}]
)
def test_settings_have_bounds(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match="Use a"):
        ManagerSettings(**wrong)


_ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["start", "stop", "fail", "drop", "replace"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["kill", "freeze", "thaw", "exit"]), st.integers(0, 5)),
    st.tuples(st.just("define"), st.integers(0, 23)),
    st.tuples(st.just("tick"), st.sampled_from([100, 1_000, 3_000, 10_000])),
)


@settings(max_examples=sequences(150))
@given(st.lists(_ACTIONS, max_size=40), st.integers(1, 4), st.integers(1, 8))
def test_P2_any_sequence_of_events(actions: list[tuple[str, int]], slots: int, max_workers: int) -> None:
    instance = Instance(ManagerSettings(slots=slots, max_workers=max_workers, idle_ms=5_000))
    for action, n in actions:
        _act(instance, action, n)
        before = dict(instance.state.placements)
        valid = {r: p for r, p in before.items() if instance.state.is_valid(p)}
        plan = instance.manage()
        _check(instance, valid, set(plan.dead) | set(instance.state.releases), slots)
    instance.frozen.clear()
    for _ in range(25):
        instance.tick(1_000)
    _check_result(instance, slots, max_workers)


def _act(instance: Instance, action: str, n: int) -> None:
    name = f"proc{n:02}"
    workers = sorted(instance.runs)
    if action == "tick":
        instance.tick(n)
    elif action == "define":
        instance.define(f"proc{n % 8:02}", n // 8 + 1)
    elif action == "start":
        instance.start(name)
    elif action == "stop" and name in instance.state.desired:
        instance.stop(name)
    elif action == "drop" and name in instance.state.definitions:
        instance.drop(name)
    elif action == "fail":
        _fail(instance, Replica(name, 0))
    elif action == "replace":
        # Without a manager in between.
        _fail(instance, Replica(name, 0))
        instance.drop(name)
        instance.start(name)
    elif n < len(workers):
        if action in ("kill", "exit"):
            instance.kill(workers[n])
            if action == "exit":
                instance.exited[workers[n]] = "exit code 1"
        elif action == "freeze":
            instance.frozen.add(workers[n])
        elif action == "thaw":
            instance.frozen.discard(workers[n])


def _fail(instance: Instance, replica: Replica) -> None:
    placement = instance.state.placements.get(replica)
    if placement is not None and replica in instance.runs.get(placement.worker, {}):
        instance.fail(replica)


def _check(instance: Instance, valid: dict[Replica, Placement], unusable: set[str], slots: int) -> None:
    state = instance.state
    # Never over the slots of a worker.
    assert all(count <= slots for count in counts(it.worker for it in state.placements.values()).values())
    # A placement changes only if its worker cannot run it, or its request has changed.
    for replica, placement in valid.items():
        assert (
            state.placements.get(replica) == placement
            or placement.worker in unusable
            or placement.worker not in state.workers
        )
    # Each placement belongs to an existing worker, and its number is unique.
    numbers = [it.number for it in state.placements.values()]
    assert len(set(numbers)) == len(numbers)
    assert all(it.worker in state.workers and it.number < state.next_number for it in state.placements.values())
    # The plan is complete: without a new event, the next one only sends heartbeats and removes what has ended.
    memory, entries = instance.memory, instance.state
    again = instance.manage()
    changes = [it for it in again.entries if not isinstance(it, Manager)]
    assert all(isinstance(it, Removed) and it.kind in ("observed", "release") for it in changes), changes
    instance.memory, instance.state = memory, entries


def _check_result(instance: Instance, slots: int, max_workers: int) -> None:
    """After a while without events each processor that should run does, up to the number of slots."""
    state = instance.state
    required = {it for name in state.desired for it in state.replicas(name) if state.is_required(it)}
    runs = [(worker, replica) for worker, its in instance.runs.items() for replica in its]
    assert len({replica for _, replica in runs}) == len(runs), "a replica runs twice"
    assert {replica for _, replica in runs} <= required
    assert len(runs) == min(len(required), slots * max_workers)
    assert len(state.workers) <= max_workers
    assert all(state.placements[replica].worker == worker for worker, replica in runs)


def test_a_worker_that_ends_gets_no_processor() -> None:
    """It is busy with the end of its queries, and does not respond yet."""
    instance = running(1)
    (worker,) = instance.where("proc01")
    assert worker is not None
    instance.frozen.add(worker)
    instance.write(Release(worker, "it has had no processor for 60 s"))
    instance.start("proc02")
    instance.tick(100)
    assert worker in instance.state.workers
    assert worker not in instance.where("proc01", "proc02")


def test_an_idle_worker_of_another_system_is_not_released() -> None:
    instance = Instance(ManagerSettings(idle_ms=5_000))
    instance.join(Worker("own", 4, 0, 0, 0, 6_000))
    instance.settle(1_000, 20)
    assert "own" in instance.state.workers
    assert not instance.state.releases


def test_an_entry_of_another_writer_does_not_decrease_the_next_number() -> None:
    instance = running(1)
    number = instance.state.next_number
    instance.write(Placement(Replica("proc01", 0), "nowhere", 1, 1))
    assert instance.state.next_number == number


@pytest.mark.parametrize("last", [Observed.FAILED, Observed.COMPLETED, Observed.STOPPED])
def test_the_last_state_of_a_frozen_worker_does_not_end_the_query_that_runs_elsewhere(last: Observed) -> None:
    instance = running(1)
    replica = Replica("proc01", 0)
    old = instance.state.placements[replica]
    instance.frozen.add(old.worker)
    instance.settle(3_000, 6)
    new = instance.state.placements[replica]
    assert new.worker != old.worker
    # Such as a query that was fenced when the process continued.
    instance.write(Observation(old, last, instance.now_ms, error_code="group_rejected", error="It runs elsewhere."))
    instance.settle()
    assert instance.state.placements[replica] == new
    assert replica in instance.runs[new.worker]


def test_entries_of_others_do_not_end_a_manager() -> None:
    # Each principal with Write can write them.
    instance = running(1)
    instance.write(
        Desired("unknown", True, 7),
        Placement(Replica("unknown", 3), "nowhere", 9_000, 7),
        Release("nowhere", "because"),
        Observation(Placement(Replica("unknown", 3), "nowhere", 9_000, 7), Observed.RUNNING, 0),
        Worker("w9001", 4, 0, 0, 0, 1),
        Removed("manager", ""),
    )
    instance.start("proc02")
    instance.settle(1_000, 10)
    assert instance.where("proc02") != [None]
    assert instance.state.next_number > 9_000
    assert "unknown" not in instance.state.desired
    assert not instance.state.releases
    assert Replica("unknown", 3) not in instance.state.placements
