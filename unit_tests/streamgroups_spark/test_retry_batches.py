"""Attempts of a batch without Spark: which failures have another one, and when a stopped query has none."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

import streamgroups as sg
from streamgroups.errors import FencedBatch, InvalidOption, SinkUnreachable
from streamgroups_spark.ops import supervise

QUERY = "c84bcd0b"


class Batch:
    """A DataFrame of a query."""

    def __init__(self) -> None:
        context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": QUERY}.get)
        self.sparkSession = SimpleNamespace(sparkContext=context)


class Write:
    """A function of ``foreachBatch`` that fails with these errors first."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls: list[tuple[Any, int]] = []

    def __call__(self, batch: Any, batch_id: int) -> None:
        self.calls.append((batch, batch_id))
        if self._errors:
            raise self._errors.pop(0)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits. Time passes only in them."""
    waits: list[float] = []
    monkeypatch.setattr(supervise, "time", SimpleNamespace(sleep=waits.append, monotonic=lambda: sum(waits)))
    return waits


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the query runs, at each check; ``True`` when the list is empty."""
    checks: list[bool] = []

    def is_running(query_id: str) -> bool:
        assert query_id == QUERY
        return checks.pop(0) if checks else True

    monkeypatch.setattr(supervise, "is_running", is_running)
    return checks


def test_a_failed_batch_runs_again_after_growing_waits(slept: list[float], running: list[bool]) -> None:
    write, batch = Write(OSError("down"), SinkUnreachable("Still down.")), Batch()
    sg.supervision.retry_batches(write)(batch, 7)  # type: ignore[arg-type]
    assert write.calls == [(batch, 7)] * 3
    assert sum(slept) == pytest.approx(0.2 + 0.4)


def test_the_last_error_fails_the_query(
    slept: list[float], running: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    write = Write(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="second"):
        sg.supervision.retry_batches(write, max_attempts=2)(Batch(), 7)  # type: ignore[arg-type]
    lines = [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]
    assert lines == [
        "Batch 7 runs again in 0.2 s, because attempt 1 of 2 has failed: OSError: first",
        "Batch 7 fails: 2 of 2 attempts failed. OSError: second",
    ]


def test_a_fenced_batch_has_no_other_attempt(slept: list[float], running: list[bool]) -> None:
    write = Write(FencedBatch("The ledger is ahead."))
    with pytest.raises(FencedBatch):
        sg.supervision.retry_batches(write)(Batch(), 7)  # type: ignore[arg-type]
    assert (len(write.calls), slept) == (1, [])


@pytest.mark.parametrize("checks", [[False], [True, False]], ids=["before the wait", "in the wait"])
def test_a_query_that_is_being_stopped_has_no_other_attempt(
    slept: list[float], running: list[bool], checks: list[bool]
) -> None:
    running += checks
    write = Write(OSError("interrupted"))
    with pytest.raises(OSError, match="interrupted"):
        sg.supervision.retry_batches(write)(Batch(), 7)  # type: ignore[arg-type]
    assert len(write.calls) == 1


def test_zero_attempts_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="max_attempts is 0"):
        sg.supervision.retry_batches(Write(), max_attempts=0)
