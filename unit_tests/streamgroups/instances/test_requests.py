"""P2: what requests find: processors that run, have ended by themselves, or have stopped."""

from __future__ import annotations

import pytest

from streamgroups.instances.entries import Definition, Desired, Observation, Observed, Placement, Replica, Worker
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.requests import dropped, failures, has_completed, has_started, is_stopped, started

WORKER = Worker("w1", 4, 0, 1, 0, 6_000)


def _state(*observed: Observed, request: int = 2, is_placed: bool = False) -> InstanceState:
    """A started processor with the states of its replicas, whose request is 2."""
    placements = [Placement(Replica("late", i), "w1", i + 1, request) for i in range(len(observed))]
    return apply(
        InstanceState(),
        WORKER,
        Definition("late", "{}", len(observed)),
        Desired("late", True, 2),
        *(Observation(it, state, 0, error="gone") for it, state in zip(placements, observed, strict=True)),
        *(placements if is_placed else ()),
    )


@pytest.mark.parametrize(
    ("observed", "started", "completed", "stopped"),
    [
        ([Observed.RUNNING, Observed.RUNNING], True, False, False),
        ([Observed.RUNNING, Observed.COMPLETED], True, False, False),
        ([Observed.COMPLETED, Observed.COMPLETED], True, True, True),
        ([Observed.COMPLETED, Observed.FAILED], False, False, True),
        ([Observed.COMPLETED, Observed.STARTING], False, False, False),
        ([Observed.FAILED, Observed.RUNNING], False, False, False),
    ],
)
@pytest.mark.parametrize("is_placed", [False, True])
def test_P2_a_processor_that_has_ended_by_itself(
    observed: list[Observed], started: bool, completed: bool, stopped: bool, is_placed: bool
) -> None:
    state = _state(*observed, is_placed=is_placed)
    assert (has_started(state, "late"), has_completed(state, "late")) == (started, completed)
    assert is_stopped(state, "late") == stopped
    assert bool(failures(state, "late")) == (Observed.FAILED in observed)


def test_P2_a_new_request_starts_a_completed_processor_again() -> None:
    state = _state(Observed.COMPLETED, request=1)
    assert not has_completed(state, "late")
    assert not is_stopped(state, "late")


def test_P2_a_processor_that_is_defined_again_has_a_new_request() -> None:
    """Without a manager the placement remains. Its worker never starts it again."""
    state = _state(Observed.FAILED, request=7, is_placed=True)
    state = apply(state, Desired("late", False, 7))
    state = apply(state, *dropped(state, "late"), Definition("late", "{}", 1))
    request = started(state, "late")
    assert request.request == 8
    state = apply(state, request)
    assert not state.is_valid(state.placements[Replica("late", 0)])
