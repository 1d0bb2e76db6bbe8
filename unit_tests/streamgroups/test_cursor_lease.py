"""G6: how long an instance may be silent."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from streamgroups.cursors.lease import Lease

TIMES = st.integers(0, 2**40)


@given(TIMES, st.integers(1_000, 300_000), st.integers(0, 10**6))
def test_G6_a_silent_instance_is_out_after_more_than_its_timeout(renewed_ms: int, timeout_ms: int, ms: int) -> None:
    assert Lease(timeout_ms, renewed_ms).is_over(renewed_ms + ms) == (ms > timeout_ms)


@given(TIMES, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1))
def test_G6_only_requests_extend_a_lease_from_when_they_are_answered(
    now_ms: int, requests: list[tuple[int, int]]
) -> None:
    lease = Lease(30_000, now_ms)
    for waited_ms, answered_ms in requests:
        now_ms += waited_ms
        lease = lease.begin(now_ms)
        now_ms += answered_ms
        assert not lease.is_over(now_ms)
        lease = lease.end(now_ms)
    assert lease == Lease(30_000, now_ms)


def test_G6_a_lease_is_not_over_while_any_request_is_being_answered() -> None:
    two = Lease(30_000, 0).begin(0).begin(0)
    assert not two.end(10).is_over(10**6)
    assert two.end(10).end(20).is_over(30_021)


def test_G6_a_clock_that_goes_back_takes_nothing_away() -> None:
    assert Lease(30_000, 100).begin(50).end(60).until_ms == 30_100
