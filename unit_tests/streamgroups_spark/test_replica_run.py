"""P2: the state of a replica shows why its query does not run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.instances.entries import Definition, Observed, Placement, Replica
from streamgroups.supervision.failure_causes import Failure
from streamgroups_spark.workers import replica_run
from streamgroups_testkit.waits import wait_until

UNREACHABLE = Failure("BrokerUnreachable: No broker responds.", BrokerUnreachable)


@pytest.fixture
def steps() -> list[Callable[[], object]]:
    """The functions of a run, once it has begun."""
    return []


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> Iterator[replica_run.ReplicaRun]:
    monkeypatch.setattr(replica_run, "register", lambda _, parallelism: None)
    session = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
    spark = SimpleNamespace(newSession=lambda: session)

    def run(_spark: Any, _definition: Any, _placement: Any, stop: threading.Event, started: Any, waits: Any) -> None:
        conf = SimpleNamespace(get={"spark.sql.streaming.numRecentProgressUpdates": "1"}.__getitem__)
        jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(conf=lambda: conf))
        query = SimpleNamespace(lastProgress=None, _jsq=jsq)
        steps.extend((lambda: started(query), lambda: waits(UNREACHABLE)))
        stop.wait(60)

    placement = Placement(Replica("late", 0), "worker-1", 1, 1)
    replica = replica_run.ReplicaRun(spark, placement, Definition("late", "{}"), run)  # type: ignore[arg-type]
    wait_until(lambda: len(steps) == 2, "it has begun", 30)
    yield replica
    replica.stop("the test ends")
    assert replica.join(30)


def test_P2_a_replica_whose_progress_spark_does_not_keep_has_a_warning(
    replica: replica_run.ReplicaRun, steps: list[Callable[[], object]], caplog: pytest.LogCaptureFixture
) -> None:
    started, _ = steps
    started()
    assert replica.progress() is None
    text = "Processor late/0 has no progress in its status, because spark.sql.streaming.numRecentProgressUpdates is 1."
    assert text in caplog.text


def test_P2_a_failure_before_a_restart_is_the_reason_of_starting(
    replica: replica_run.ReplicaRun, steps: list[Callable[[], object]]
) -> None:
    started, waits = steps
    seen = replica.observation()
    assert (seen.state, seen.error) == (Observed.STARTING, None)
    for _ in range(2):
        waits()
        seen = replica.observation()
        assert (seen.state, seen.error_code, seen.error) == (
            Observed.STARTING,
            "broker_unreachable",
            UNREACHABLE.what,
        )
        assert replica.progress() is None
        started()
        seen = replica.observation()
        assert (seen.state, seen.error_code, seen.error) == (Observed.RUNNING, None, None)


def test_P2_a_jvm_that_has_ended_is_an_error_of_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without replicas calls the JVM for the first time when it starts one."""

    def parallelism() -> int:
        raise ConnectionRefusedError

    monkeypatch.setattr(replica_run, "jvm_is_gone", lambda: True)
    monkeypatch.setattr(replica_run, "register", lambda _, parallelism: None)
    context = SimpleNamespace(setLocalProperty=lambda *_: None)
    spark = SimpleNamespace(newSession=lambda: SimpleNamespace(sparkContext=context))
    placement = Placement(Replica("late", 0), "worker-1", 1, 1)
    replica = replica_run.ReplicaRun(
        spark,  # type: ignore[arg-type]
        placement,
        Definition("late", "{}"),
        lambda *_: None,
        parallelism=parallelism,
    )
    assert replica.join(30)
    assert (replica.observation().state, replica.has_lost_spark) == (Observed.FAILED, True)
