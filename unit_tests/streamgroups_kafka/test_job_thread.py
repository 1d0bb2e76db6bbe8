"""The thread of an instance: its jobs, its end, and callers that interrupt it."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from streamgroups_kafka.client.job_thread import Job, JobThread, ThreadEnded, is_collecting


def test_jobs_run_in_their_order_on_one_thread_and_the_last_one_ends_it() -> None:
    thread = JobThread("example")
    jobs = [thread.start(threading.get_ident) for _ in range(3)]
    last = thread.finish(lambda: None)
    assert {job.result(10) for job in jobs} == {thread._thread.ident}
    last.result(10)
    thread._thread.join(10)
    assert not thread._thread.is_alive()


def test_the_error_of_a_job_is_raised_for_each_caller_and_the_next_job_runs() -> None:
    thread = JobThread("example")
    failed = thread.start(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.result(10)
    assert thread.start(lambda: 6 * 7).result(10) == 42
    thread.finish(lambda: None)


def test_all_threads_that_wait_for_a_job_continue() -> None:
    thread, continues = JobThread("example"), threading.Event()
    job = thread.start(lambda: continues.wait(10))
    assert not job.wait(0)
    with pytest.raises(TimeoutError, match="within 0 s"):
        job.result(0)
    found: list[bool] = []
    waiting = [threading.Thread(target=lambda: found.append(job.result(10))) for _ in range(5)]
    for it in waiting:
        it.start()
    continues.set()
    for it in waiting:
        it.join(10)
    assert found == [True] * 5
    thread.finish(lambda: None)


def test_a_rejected_job_does_not_start_and_a_started_one_is_not_rejected() -> None:
    thread, starts, continues, ran = JobThread("example"), threading.Event(), threading.Event(), list[str]()
    started = thread.start(lambda: starts.set() or continues.wait(10))  # type: ignore[func-returns-value]
    waiting = thread.start(lambda: ran.append("waiting"))
    assert starts.wait(10)
    for job in (started, waiting):
        job.reject()
    continues.set()
    assert started.result(10)
    with pytest.raises(ThreadEnded):
        waiting.result(10)
    thread.finish(lambda: ran.append("last")).result(10)
    assert ran == ["last"]


def test_of_several_last_jobs_the_first_one_runs_once() -> None:
    thread = JobThread("example")
    ran: list[int] = []
    jobs = [thread.finish(lambda n=n: ran.append(n)) for n in range(3)]  # type: ignore[misc]
    for job in jobs:
        job.result(10)
    assert ran == [0]


def test_an_end_that_interrupts_another_one_does_not_wait_for_it() -> None:
    """A signal handler interrupts ``finish`` after it has stored the last job, and before it submits it."""
    thread = JobThread("example")
    ran: list[str] = []
    thread._last["last"] = Job(lambda: ran.append("first"))
    thread.finish(lambda: ran.append("second")).result(10)
    assert ran == ["first"]


def test_a_job_that_was_submitted_during_the_end_is_rejected() -> None:
    thread = JobThread("example")

    class Late(dict[str, Job[None]]):
        """Is empty for the check of ``start``; the thread ends right after it."""

        def __bool__(self) -> bool:
            thread._last = last
            thread.finish(lambda: None).result(10)
            thread._thread.join(10)
            return False

    last, thread._last = thread._last, Late()
    with pytest.raises(ThreadEnded):
        thread.start(lambda: None).result(10)


class Finalized:
    """Deleted by the garbage collector only, because it refers to itself."""

    def __init__(self, finalizer: Callable[[], Any]) -> None:
        self.itself, self.finalizer = self, finalizer

    def __del__(self) -> None:
        self.finalizer()


def test_a_finalizer_detects_the_collector_and_the_thread_does_not_wait_for_itself() -> None:
    thread = JobThread("example")
    found: list[bool] = []
    # Older objects of other tests are collected first.
    gc.collect()
    Finalized(lambda: found.extend([is_collecting(), thread.may_wait()]))
    gc.collect()
    assert found == [True, False]
    assert (is_collecting(), thread.may_wait()) == (False, True)
    assert not thread.start(thread.may_wait).result(10)
    thread.finish(lambda: None)


def test_the_collector_runs_on_one_thread_and_others_wait() -> None:
    thread, begins, continues = JobThread("example"), threading.Event(), threading.Event()

    def collect() -> None:
        Finalized(lambda: (begins.set(), continues.wait(10)))
        gc.collect()

    gc.collect()
    collecting = threading.Thread(target=collect)
    collecting.start()
    assert begins.wait(10)
    found = [is_collecting(), thread.may_wait()]
    continues.set()
    collecting.join(10)
    assert found == [False, True]
    thread.finish(lambda: None)


def test_the_error_of_a_job_keeps_no_variables_of_its_callers() -> None:
    class Variable:
        """Belongs to a caller."""

    thread = JobThread("example")

    def call() -> weakref.ref[Variable]:
        variable = Variable()
        with pytest.raises(ZeroDivisionError):
            thread.start(lambda: 1 // 0).result(10)
        return weakref.ref(variable)

    gc.disable()
    try:
        variable = call()
        # Until then, the thread has the job.
        thread.finish(lambda: None).result(10)
        assert variable() is None
    finally:
        gc.enable()


def test_a_forked_process_has_no_thread_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = JobThread("example")
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 0)
        with pytest.raises(ThreadEnded):
            thread.start(lambda: None)
        assert not thread.may_wait()
    assert thread.may_wait()
    thread.finish(lambda: None)


def test_a_later_thread_with_the_same_identifier_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = JobThread("example")
    assert thread.start(lambda: thread.is_current).result(10)
    thread.finish(lambda: None).result(10)
    thread._thread.join(10)
    monkeypatch.setattr(threading, "get_ident", lambda: thread._thread.ident)
    assert not thread.is_current
    assert thread.may_wait()
