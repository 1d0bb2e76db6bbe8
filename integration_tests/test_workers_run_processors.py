"""P2: a worker runs several processors in one Spark driver, and each record is copied once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.copying_instance import PARTITIONS, CopyingInstance, connections_file, spark_worker
from integration_tests.tiers import LONG
from streamgroups.instances.entries import Replica
from streamgroups_testkit.producing import Load
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def instance(
    bootstrap: str, tmp_path: Path, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CopyingInstance]:
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(connections_file(tmp_path, bootstrap)))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "runs"))
    instance = CopyingInstance(bootstrap, tmp_path, new_topic=new_topic)
    yield instance
    instance.close()


@LONG
def test_P2_a_worker_runs_processors_beside_each_other(instance: CopyingInstance) -> None:
    instance.declare("copy1", "copy2")
    instance.produce(100)
    assert "added" in instance.command("processors", "apply", "-f", str(instance.files))
    assert not instance.state().definitions
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    with instance.manager("--slots", "3", "--lease", "10s", "--worker-command", spark_worker()):
        instance.start("copy1", "copy2")
        wait_until(lambda: instance.has_all("copy1", 100) and instance.has_all("copy2", 100), "both copy")
        # The upgrade of one processor restarts no other one.
        before = instance.state().placements[Replica("copy2", 0)]
        instance.declare("copy1", sql="SELECT key, value FROM input WHERE true")
        output = instance.command("processors", "apply", "-f", str(instance.files))
        assert "steps[0].sql" in output
        assert "restarts" in output
        # A processor that fails permanently frees its slot, with its error.
        instance.declare("copy3", sql="SELECT nothing FROM input")
        instance.command("processors", "apply", "-f", str(instance.files), "--execute")
        assert "copy3: failed:" in instance.command("processors", "start", "copy3", code=1)
        instance.wait_until(lambda state: Replica("copy3", 0) not in state.placements, "its slot is free")
        assert "nothing" in instance.view("copy3").why
        instance.stop("copy2")
        instance.produce(50)
        instance.start("copy2")
        wait_until(lambda: instance.has_all("copy1", 150) and instance.has_all("copy2", 150), "both continue")
        assert instance.state().placements[Replica("copy2", 0)].worker == before.worker
        worker = instance.worker("copy1")
        os.kill(worker.pid, signal.SIGTERM)
        instance.wait_until(lambda state: worker.id not in state.workers, "it ends in an orderly way")
    instance.check("copy1", 150)
    instance.check("copy2", 150)


@LONG
@pytest.mark.timeout(1_200)
def test_P2_killed_and_frozen_processes_copy_each_record_once(instance: CopyingInstance) -> None:
    """Under load: kill -9 of a worker, of the manager, of both, and SIGSTOP of a worker for longer than its lease."""
    names = ("copy1", "copy2", "copy3")
    instance.declare(*names)
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    options = ("--slots", "2", "--lease", "6s", "--worker-command", spark_worker())
    with Load(instance.bootstrap, instance.source, partitions=PARTITIONS, per_second=200) as load:
        with instance.manager(*options) as manager:
            instance.start(*names)
            _kill(instance, "copy1")
            _freeze(instance, "copy3")
            worker = instance.worker("copy2")
            manager.kill()
            os.kill(worker.pid, signal.SIGKILL)
        with instance.manager(*options, number=2) as manager:
            for name in names:
                instance.wait_for_worker(name, lambda it: it.id != worker.id, timeout_s=180)
            manager.kill()
            _copies_more(instance, *names)
        with instance.manager(*options, number=3):
            _kill(instance, "copy2")
            _freeze(instance, "copy1")
            _copies_more(instance, *names)
    for name in names:
        wait_until(lambda it=name: instance.has_all(it, load.count), f"{name} copies all", 180)  # type: ignore[misc]
        instance.check(name, load.count)


def _kill(instance: CopyingInstance, name: str) -> None:
    worker = instance.worker(name)
    os.kill(worker.pid, signal.SIGKILL)
    instance.wait_for_worker(name, lambda it: it.id != worker.id, timeout_s=180)


def _freeze(instance: CopyingInstance, name: str) -> None:
    """Freezes the process of a worker until its processor runs elsewhere, and continues it."""
    worker = instance.worker(name)
    os.killpg(worker.pid, signal.SIGSTOP)
    try:
        instance.wait_for_worker(name, lambda it: it.id != worker.id, timeout_s=180)
    finally:
        os.killpg(worker.pid, signal.SIGCONT)
    instance.wait_until(lambda state: worker.id not in state.workers, "it ends", 120)


def _copies_more(instance: CopyingInstance, *names: str) -> None:
    deadline_s = time.monotonic() + 180
    for name in names:
        before = len(instance.copied(name))
        while len(instance.copied(name)) <= before:
            assert time.monotonic() < deadline_s, f"{name} copies nothing"
