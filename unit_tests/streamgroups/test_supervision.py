"""The rule of restarts: never sooner than the back-off, never without a restart while there is progress, always ended in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import (
    BrokerUnreachable,
    FencedMember,
    InvalidOption,
    NotAuthorized,
    StreamGroupsError,
)
from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import (
    NEVER_PASS,
    NEVER_PASS_AT_FIRST,
    Done,
    Ended,
    EngineGone,
    Failed,
    GiveUp,
    Restart,
    RestartPolicy,
    StopRequested,
    Supervision,
    decide,
)

POLICY = RestartPolicy()
BUG = Failure("ZeroDivisionError: division by zero")
DOWN = Failure("BrokerUnreachable: no broker answered", BrokerUnreachable)

ERRORS = st.sampled_from([None, *StreamGroupsError.__subclasses__()])
MAY_PASS = [e for e in StreamGroupsError.__subclasses__() if e not in NEVER_PASS | NEVER_PASS_AT_FIRST]
JITTER = st.floats(0, 1)
POLICIES = st.builds(
    lambda first, more, **rest: RestartPolicy(first_wait_ms=first, max_backoff_ms=first + more, **rest),
    st.integers(1, 5_000),
    st.integers(0, 100_000),
    reset_after_ms=st.integers(1, 100_000),
    max_failures=st.integers(1, 30),
    give_up_after_ms=st.integers(1, 10_000_000),
)


def failures(errors: st.SearchStrategy[type[StreamGroupsError] | None]) -> st.SearchStrategy[Failed]:
    """Any failure of these."""
    return st.builds(
        Failed,
        errors.map(lambda error: Failure("down", error)),
        st.integers(0, 200_000),
        st.booleans(),
        st.booleans(),
    )


@given(POLICIES, st.lists(st.tuples(failures(ERRORS), JITTER), max_size=40))
def test_a_restart_never_comes_sooner_than_the_back_off(
    policy: RestartPolicy, runs: list[tuple[Failed, float]]
) -> None:
    """Nor more than a quarter later. Twice as long each time, until a steady run."""
    state, now_ms, base_ms = Supervision(), 0, policy.first_wait_ms
    for event, jitter in runs:
        is_steady = event.ran_ms >= policy.reset_after_ms and (event.finished_batches or event.was_idle)
        base_ms = policy.first_wait_ms if is_steady else base_ms
        now_ms += event.ran_ms
        state, decision = decide(state, event, now_ms, policy, jitter)
        if isinstance(decision, GiveUp):
            return
        assert isinstance(decision, Restart)
        assert base_ms <= decision.after_ms <= base_ms * 1.25 + 1
        now_ms += decision.after_ms
        base_ms = min(policy.max_backoff_ms, 2 * base_ms)


@given(
    POLICIES,
    st.lists(st.tuples(failures(st.sampled_from([None, *MAY_PASS])), JITTER), max_size=40),
)
def test_it_is_always_restarted_after_a_run_with_progress(
    policy: RestartPolicy, runs: list[tuple[Failed, float]]
) -> None:
    state, now_ms = Supervision(), 0
    for event, jitter in runs:
        now_ms += event.ran_ms
        state, decision = decide(state, event, now_ms, policy, jitter)
        if event.finished_batches:
            assert isinstance(decision, Restart)


@given(POLICIES, st.lists(st.tuples(failures(ERRORS), JITTER), max_size=10), ERRORS)
def test_restarts_end_if_nothing_works(
    policy: RestartPolicy, before: list[tuple[Failed, float]], error: type[StreamGroupsError] | None
) -> None:
    """Independent of the past: after this number of failures, and for retriable errors after this time; not sooner."""
    state, now_ms = Supervision(has_worked=True), 0
    for event, jitter in before:
        state, _ = decide(state, event, now_ms, policy, jitter)
    state, _ = decide(state, Failed(BUG, 0, finished_batches=True), now_ms, policy, 0)
    began_ms, n_failures = now_ms, 0
    while True:
        state, decision = decide(state, Failed(Failure("down", error), 10), now_ms, policy, 0)
        n_failures += 1
        if isinstance(decision, GiveUp):
            break
        assert isinstance(decision, Restart)
        now_ms += decision.after_ms + 10 + policy.give_up_after_ms // 100
        assert n_failures <= policy.max_failures + 101
    if error not in NEVER_PASS:
        assert n_failures >= policy.max_failures
    if error is not None and error.retriable:
        assert now_ms - began_ms >= policy.give_up_after_ms
    elif error not in NEVER_PASS:
        assert n_failures == policy.max_failures


@given(st.builds(Supervision, st.booleans(), st.integers(0, 99), st.none() | st.integers(0, 99), st.integers(0, 99)))
def test_it_is_done_when_it_ends_or_a_stop_is_requested(state: Supervision) -> None:
    for event in (Ended(), StopRequested()):
        assert decide(state, event, 1_000, POLICY, 0.5) == (state, Done())
    assert isinstance(decide(state, EngineGone(), 1_000, POLICY, 0.5)[1], GiveUp)


def test_what_comes_again_for_certain_ends_the_restarts_at_once() -> None:
    worked = Supervision(has_worked=True)
    for error in StreamGroupsError.__subclasses__():
        failed = Failed(Failure("x", error), 10)
        assert isinstance(decide(worked, failed, 0, POLICY, 0)[1], GiveUp) == (error in NEVER_PASS)
        hopeless = error in NEVER_PASS | NEVER_PASS_AT_FIRST
        assert isinstance(decide(Supervision(), failed, 0, POLICY, 0)[1], GiveUp) == hopeless
    assert all(not error.retriable for error in NEVER_PASS | NEVER_PASS_AT_FIRST)
    assert FencedMember not in NEVER_PASS


def test_a_permission_taken_away_later_may_come_back() -> None:
    state, _ = decide(Supervision(), Failed(BUG, 10, finished_batches=True), 0, POLICY, 0)
    assert decide(state, Failed(Failure("refused", NotAuthorized), 10), 0, POLICY, 0)[1] == Restart(400)


def test_waits_double_up_to_the_longest_and_begin_again_after_a_steady_run() -> None:
    waits, state = [], Supervision()
    for _ in range(12):
        # It finishes a batch each time, and fails soon after.
        state, decision = decide(state, Failed(BUG, 10, finished_batches=True), 0, POLICY, 0)
        assert isinstance(decision, Restart)
        waits.append(decision.after_ms)
    assert waits == [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000, 60_000]
    assert decide(state, Failed(BUG, 60_000, finished_batches=True), 0, POLICY, 0)[1] == Restart(200)


def test_a_query_that_waits_for_records_is_well() -> None:
    """But one that dies of its first records is idle just before, too."""
    nearly = Supervision(failures=9, failing_since_ms=0, has_worked=True, waits=9)
    assert isinstance(decide(nearly, Failed(BUG, 1_000, was_idle=True), 0, POLICY, 0)[1], GiveUp)
    assert decide(nearly, Failed(BUG, 60_000, was_idle=True), 0, POLICY, 0)[1] == Restart(200)


def test_the_reason_of_the_end_is_reported() -> None:
    state = Supervision(failures=9, failing_since_ms=0)
    decision = decide(state, Failed(BUG, 10), 102_000, POLICY, 0)[1]
    assert decision == GiveUp("10 consecutive runs failed before they finished a batch, over 102 s")
    assert decide(state, Failed(DOWN, 10), 102_000, POLICY, 0)[1] == Restart(200)
    assert isinstance(decide(state, Failed(DOWN, 10), 900_000, POLICY, 0)[1], GiveUp)


@pytest.mark.parametrize(
    "wrong", [{"max_failures": 0}, {"first_wait_ms": 0}, {"reset_after_ms": -1}, {"first_wait_ms": 61_000}]
)
def test_invalid_limits_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        RestartPolicy(**wrong)
