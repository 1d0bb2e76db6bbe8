"""Supervision without Spark: stops between runs, and the rule in the documents."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, escape_new_line

from streamgroups.errors import InvalidOption, QueryGivenUp, StreamGroupsError
from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import NEVER_PASS, NEVER_PASS_AT_FIRST, RestartPolicy
from streamgroups_spark.ops.supervise import SupervisedRun, supervise

LONG_MS = 600_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_the_next_run(number: signal.Signals) -> None:
    """And what it did before is what it does again, at once."""
    runs = []

    def before(_number: int, _frame: object) -> None:
        runs.append("before")

    def start() -> Any:
        runs.append("run")
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        raise OSError("no such disk")

    previous = signal.signal(number, before)
    try:
        outcome = supervise(start, policy=RestartPolicy(first_wait_ms=LONG_MS, max_backoff_ms=LONG_MS))
        assert outcome == SupervisedRun(stopped_by_signal=True, restarts=0)
        assert runs == ["run", "before"]
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, previous)


@pytest.mark.parametrize("interrupts", [True, False], ids=["interrupts", "arrives just before"])
def test_a_signal_while_waiting_ends_the_wait(interrupts: bool) -> None:
    """A signal that another thread receives interrupts no wait of this one, like one that arrives just before it."""
    started = threading.Event()

    def start() -> Any:
        started.set()
        raise OSError("no such disk")

    def kill() -> None:
        started.wait(30)
        if interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    began_s = time.monotonic()
    outcome = supervise(start, policy=RestartPolicy(first_wait_ms=LONG_MS, max_backoff_ms=LONG_MS))
    killer.join()
    assert outcome.stopped_by_signal
    assert time.monotonic() - began_s < LONG_MS / 1_000


def test_a_signal_stops_a_query_whose_start_creates_the_spark_session() -> None:
    """Spark's context replaces the handler of SIGINT with one that raises KeyboardInterrupt."""

    class Running(Waiting):
        stopped = False

        def awaitTermination(self, timeout_s: float) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            return False

        def stop(self) -> None:
            self.stopped = True

    def handler_of_spark(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    query = Running("Waiting for data to arrive")

    def start() -> Any:
        signal.signal(signal.SIGINT, handler_of_spark)
        return query

    previous = signal.getsignal(signal.SIGINT)
    try:
        assert supervise(start) == SupervisedRun(stopped_by_signal=True, restarts=0)
        assert query.stopped
        assert signal.getsignal(signal.SIGINT) is handler_of_spark
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_signal_ends_the_wait_if_a_start_has_created_the_spark_session_and_failed() -> None:
    def start() -> Any:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise OSError("no broker")

    def interrupt(_: Failure) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.getsignal(signal.SIGINT)
    try:
        policy = RestartPolicy(first_wait_ms=LONG_MS, max_backoff_ms=LONG_MS)
        assert supervise(start, policy=policy, on_failure=interrupt) == SupervisedRun(
            stopped_by_signal=True, restarts=0
        )
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_event_ends_the_wait_for_the_next_run_in_any_thread() -> None:
    stop, outcomes = threading.Event(), []

    def start() -> Any:
        stop.set()
        raise OSError("no such disk")

    policy = RestartPolicy(first_wait_ms=LONG_MS, max_backoff_ms=LONG_MS)
    thread = threading.Thread(target=lambda: outcomes.append(supervise(start, policy=policy, stop=stop)))
    thread.start()
    thread.join(60)
    assert outcomes == [SupervisedRun(stopped_by_signal=True, restarts=0)]


def test_a_signal_does_not_wait_for_a_lock_that_the_wait_holds() -> None:
    """``Event.wait`` holds it for moments, and the handler of a signal in one of them would wait for good."""

    class Unwaited(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("The wait takes the lock of the event.")

    def start() -> Any:
        timer.start()
        raise OSError("no such disk")

    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    policy = RestartPolicy(first_wait_ms=LONG_MS, max_backoff_ms=LONG_MS)
    assert supervise(start, policy=policy, stop=Unwaited()).stopped_by_signal
    timer.join()


def test_other_threads_leave_signals_alone() -> None:
    handlers = []
    given_up = []

    def start() -> Any:
        handlers.append(signal.getsignal(signal.SIGTERM))
        raise InvalidOption("No.")

    def run() -> None:
        try:
            supervise(start)
        except QueryGivenUp as e:
            given_up.append(e)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]
    assert isinstance(given_up[0].__cause__, InvalidOption)
    assert "InvalidOption: No." in str(given_up[0])


class Waiting:
    """A query that finds no records, and fails after a while."""

    id, name = "q", "idle"
    recentProgress = ()  # noqa: N815 - as in PySpark

    def __init__(self, message: str, *, is_data_available: bool = False) -> None:
        self.status = {"message": message, "isDataAvailable": is_data_available, "isTriggerActive": False}
        self._polls = 2

    def awaitTermination(self, timeout_s: float) -> bool:
        threading.Event().wait(timeout_s / 100)
        self._polls -= 1
        if not self._polls:
            raise OSError("the network is down")
        return False


@pytest.mark.parametrize("message", ["Waiting for data to arrive", "Waiting for next trigger"])
def test_a_run_that_waits_for_records_resets_the_counter(message: str) -> None:
    """With an interval of triggers, Spark shows the first message for 10 ms of each."""
    runs = []

    def start() -> Any:
        runs.append("run")
        if len(runs) > 5:
            raise InvalidOption("This ends the test.")
        return Waiting(message)

    with pytest.raises(QueryGivenUp, match="This ends the test"):
        supervise(start, policy=RestartPolicy(first_wait_ms=1, max_failures=2, reset_after_ms=1))


def test_a_run_that_has_records_and_finishes_no_batch_does_not_reset_the_counter() -> None:
    policy = RestartPolicy(first_wait_ms=1, max_failures=2, reset_after_ms=1)
    with pytest.raises(QueryGivenUp, match="2 consecutive runs failed"):
        supervise(lambda: Waiting("Waiting for next trigger", is_data_available=True), policy=policy)  # type: ignore[arg-type,return-value]


class Forgotten(Waiting):
    """A query whose progress Spark does not keep.

    Its committed offset is unknown until its first poll, and it finishes some batches before it fails.
    """

    def __init__(self, committed: list[int], batches: int, retention: str = "1") -> None:
        super().__init__("Waiting for next trigger", is_data_available=True)
        self._committed, self._batches = committed, batches
        conf = SimpleNamespace(get={"spark.sql.streaming.numRecentProgressUpdates": retention}.__getitem__)
        self._jsq = SimpleNamespace(
            sparkSession=lambda: SimpleNamespace(conf=lambda: conf), streamingQuery=lambda: self
        )

    def awaitTermination(self, timeout_s: float) -> bool:
        if self._polls == 1:
            self._committed[0] += self._batches
        return super().awaitTermination(timeout_s)

    def sources(self) -> Any:
        return Iterated("source")

    def committedOffsets(self) -> Any:
        offset = SimpleNamespace(json=lambda: str(self._committed[0]))
        return SimpleNamespace(get=lambda _: SimpleNamespace(isDefined=lambda: self._polls <= 1, get=lambda: offset))


class Iterated:
    """A sequence of Scala with one element."""

    def __init__(self, it: str) -> None:
        self._left = [it]

    def iterator(self) -> Any:
        return SimpleNamespace(hasNext=lambda: bool(self._left), next=self._left.pop)


@pytest.mark.parametrize("retention", ["1", "2"])
def test_a_run_that_has_finished_a_batch_resets_the_counter_without_kept_progress(retention: str) -> None:
    runs, committed = [], [0]

    def start() -> Any:
        runs.append("run")
        if len(runs) > 5:
            raise InvalidOption("This ends the test.")
        return Forgotten(committed, batches=1, retention=retention)

    with pytest.raises(QueryGivenUp, match="This ends the test"):
        supervise(start, policy=RestartPolicy(first_wait_ms=1, max_failures=2))


def test_a_run_that_continues_from_a_checkpoint_and_finishes_no_batch_does_not_reset_the_counter() -> None:
    policy = RestartPolicy(first_wait_ms=1, max_failures=2)
    with pytest.raises(QueryGivenUp, match="2 consecutive runs failed"):
        supervise(lambda: Forgotten([5], batches=0), policy=policy)  # type: ignore[arg-type,return-value]


def test_an_error_of_on_failure_does_not_prevent_the_restart(caplog: pytest.LogCaptureFixture) -> None:
    def start() -> Any:
        raise OSError("the sink is down")

    def alert(_: Failure) -> None:
        raise ConnectionError("so is the pager")

    with pytest.raises(QueryGivenUp, match="2 consecutive runs failed"):
        supervise(start, policy=RestartPolicy(first_wait_ms=1, max_failures=2), on_failure=alert)
    assert "so is the pager" in caplog.text


def java_error(trace: str) -> Py4JJavaError:
    """An exception of Java as Py4J raises it. It requests its text from the JVM."""
    jvm = SimpleNamespace(send_command=lambda _command: "ys" + escape_new_line(trace))
    return Py4JJavaError(
        "An error occurred while calling o374.start.\n", SimpleNamespace(_target_id="o9", _gateway_client=jvm)
    )


def test_the_cause_in_java_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    error = java_error(
        "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed: kite, password=hunter2 SQLSTATE: 42K02\n"
        "\tat org.apache.spark.sql.classic.DataStreamWriter.start(DataStreamWriter.scala:145)\n"
        "Caused by: java.lang.ClassNotFoundException: kite.DefaultSource\n"
    )

    def start() -> Any:
        raise error

    failures: list[Failure] = []
    with pytest.raises(QueryGivenUp) as given_up:
        supervise(start, policy=RestartPolicy(first_wait_ms=1, max_failures=2), on_failure=failures.append)
    cause = "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed: kite, password=***"
    restarted, ended = [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]
    assert restarted.endswith(f"(failure 1 of 2 without a finished batch): {cause}")
    assert ended.endswith(cause)
    assert cause in str(given_up.value)
    assert [it.what for it in failures] == [cause]


def test_the_documents_name_every_error_that_the_rule_distinguishes() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "supervision.rst").read_text().split())
    at_once, _, later = text.partition("- After 10 consecutive runs")
    for_certain, _, at_first = at_once.partition("- At once, if no run has succeeded yet")

    def named(part: str) -> set[type[StreamGroupsError]]:
        return {error for error in StreamGroupsError.__subclasses__() if f"``{error.code}``" in part}

    assert named(for_certain) == NEVER_PASS
    assert named(at_first) == NEVER_PASS_AT_FIRST
    assert named(later) == {error for error in StreamGroupsError.__subclasses__() if error.retriable}
