"""The start of each batch in Spark before 4.2: what Spark has not finished is never the start of the next batch (S1-S3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.query.implied_start import ImpliedStart

INITIAL: dict[str, Any] = {"n": 0}


@dataclass
class Log:
    """Spark's memory and commit log."""

    finished: list[Mapping[str, Any]] = field(default_factory=list)

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        return offset in self.finished


@dataclass
class Planner:
    """Plans the batch after an offset, and remembers the offsets."""

    has_records: bool = True
    starts: list[int] = field(default_factory=list)

    def __call__(self, start: dict[str, Any]) -> dict[str, Any]:
        self.starts.append(start["n"])
        return {"n": start["n"] + 1} if self.has_records else start


def implied(log: Log | None = None) -> ImpliedStart:
    return ImpliedStart(lambda: dict(INITIAL), log or Log(), "board")


def test_a_new_query() -> None:
    start, plan = implied(), Planner()
    for number in range(3):
        assert start.next(plan) == {"n": number + 1}
        start.requested({"n": number}, {"n": number + 1})
    assert plan.starts == [0, 1, 2]


def test_an_idle_query_plans_again_from_the_same_start() -> None:
    start, plan = implied(), Planner(has_records=False)
    assert start.next(plan) == INITIAL
    # Spark runs a first batch without records.
    start.requested(INITIAL, INITIAL)
    assert start.next(plan) == INITIAL
    plan.has_records = True
    assert start.next(plan) == {"n": 1}
    assert plan.starts == [0, 0, 0]


def test_a_restart_after_a_finished_batch() -> None:
    start, plan = implied(), Planner()
    start.requested({"n": 7}, {"n": 7})
    assert start.next(plan) == {"n": 8}
    assert plan.starts == [7]


def test_a_restart_runs_an_unfinished_batch_again_before_the_next_one() -> None:
    start, plan = implied(), Planner()
    start.requested({"n": 7}, {"n": 7})
    start.requested({"n": 6}, {"n": 7})
    assert start.next(plan) == {"n": 8}
    assert plan.starts == [7]


def test_a_planned_batch_is_no_start_until_spark_has_run_it() -> None:
    log, plan = Log(), Planner()
    start = implied(log)
    assert [start.next(plan) for _ in range(3)] == [{"n": 1}] * 3
    assert plan.starts == [0]
    # Spark has removed the source from the plan of this batch, and has finished it.
    log.finished.append({"n": 1})
    assert start.next(plan) == {"n": 2}
    assert plan.starts == [0, 1]


def test_partitions_can_be_requested_again() -> None:
    start, plan = implied(), Planner()
    start.next(plan)
    start.requested(INITIAL, {"n": 1})
    start.requested(INITIAL, {"n": 1})
    assert start.next(plan) == {"n": 2}
    start.requested(INITIAL, {"n": 1})
    assert start.next(plan) == {"n": 2}, "the planned batch has not begun"


@pytest.mark.parametrize("has_records", [True, False])
def test_a_checkpoint_that_is_read_after_the_first_plan_is_rejected(has_records: bool) -> None:
    start = implied()
    start.next(Planner(has_records))
    with pytest.raises(InvalidOption, match=r"group 'board'.*availableNow.*PySpark 4\.2"):
        start.requested({"n": 7}, {"n": 7})


@given(st.lists(st.sampled_from(["latest", "run", "finish"]), max_size=40))
def test_S2_no_start_is_unfinished(calls: list[str]) -> None:
    """As Spark calls it: a batch that it has accepted runs, and ends, before the next one is planned."""
    log, plan = Log(), Planner()
    start, done, accepted, running = implied(log), 0, 0, False
    for call in calls:
        if call == "latest" and not running:
            accepted = start.next(plan)["n"]
            assert plan.starts[-1] <= done
        elif call == "run" and accepted > done:
            start.requested({"n": done}, {"n": accepted})
            running = True
        elif call == "finish" and running:
            log.finished.append({"n": accepted})
            done, running = accepted, False
    assert start is not None
