"""G8: jobs about resets run one after the other, and a job of the query in its own thread."""

from __future__ import annotations

import threading

from streamgroups_spark.source.background import SerialJobs
from streamgroups_testkit.waits import wait_until


def test_a_job_of_the_query_runs_in_its_thread_after_the_jobs_in_the_background() -> None:
    jobs, done = SerialJobs(), list[str]()
    started, released = threading.Event(), threading.Event()

    def in_background() -> None:
        started.set()
        released.wait(30)
        done.append("background")

    jobs.start(in_background)
    assert started.wait(30)
    query = threading.Thread(
        target=lambda: jobs.run(lambda: done.append(threading.current_thread().name)), name="query"
    )
    query.start()
    assert done == []
    released.set()
    query.join(30)
    assert done == ["background", "query"]


def test_nothing_runs_after_the_last_job() -> None:
    jobs, done = SerialJobs(), list[str]()
    jobs.finish(lambda: done.append("last"))
    wait_until(lambda: done == ["last"], "the last job has run")
    threads = set(threading.enumerate())
    jobs.start(lambda: done.append("later"))
    wait_until(lambda: set(threading.enumerate()) <= threads, "the thread of the later job has ended")
    assert done == ["last"]


def test_a_job_that_fails_does_not_stop_the_next_one() -> None:
    jobs = SerialJobs()

    def fail() -> None:
        raise ValueError

    for _ in range(2):
        try:
            jobs.run(fail)
        except ValueError:
            continue
    assert jobs.run(lambda: 42) == 42
