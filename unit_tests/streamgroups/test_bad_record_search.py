"""P4: the records of a batch that a function cannot process are found, and all others are processed."""

from __future__ import annotations

from math import ceil, log2

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.dlq.bad_record_search import Failed, Processed, isolate


@given(st.integers(0, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(n - 1, 0))))))
def test_each_record_is_in_one_outcome_and_the_failed_ones_are_isolated(batch: tuple[int, set[int]]) -> None:
    count, poison = batch
    poison = poison if count else set()
    calls: list[range] = []

    def process(first: int, end: int) -> list[int]:
        calls.append(range(first, end))
        for it in range(first, end):
            if it in poison:
                raise ValueError(f"record {it}")
        return list(range(first, end))

    outcomes = list(isolate(count, process))
    failed = {it.at: str(it.error) for it in outcomes if isinstance(it, Failed)}
    assert failed == {it: f"record {it}" for it in poison}
    ranges = [(it.at, it.at + 1) if isinstance(it, Failed) else (it.first, it.end) for it in outcomes]
    assert [n for first, end in ranges for n in range(first, end)] == list(range(count))
    assert all(it.result == list(range(it.first, it.end)) for it in outcomes if isinstance(it, Processed))
    assert len(calls) <= (1 + 2 * len(poison) * ceil(log2(count)) if count else 0)
    assert all(calls)


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt, SystemExit])
def test_an_error_that_is_not_about_a_record_ends_the_batch(error: type[BaseException]) -> None:
    calls = []

    def process(first: int, end: int) -> None:
        calls.append((first, end))
        raise error

    with pytest.raises(error):
        list(isolate(8, process, (OSError,)))
    assert calls == [(0, 8)]


def test_an_error_of_the_whole_batch_that_no_half_raises_rejects_no_record() -> None:
    def process(first: int, end: int) -> int:
        if end - first > 4:
            raise ValueError("too many records")
        return end - first

    assert list(isolate(8, process)) == [Processed(0, 4, 4), Processed(4, 8, 4)]
