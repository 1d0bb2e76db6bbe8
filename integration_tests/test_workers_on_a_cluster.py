"""P2: a worker of an instance is a driver that ``spark-submit`` starts, and its executors are killed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.copying_instance import PARTITIONS, CopyingInstance, connections_file
from integration_tests.spark_cluster import SparkCluster, spark_cluster
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import Load
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def instance(
    bootstrap: str, tmp_path: Path, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CopyingInstance]:
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(connections_file(tmp_path, bootstrap)))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "runs"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    instance = CopyingInstance(bootstrap, tmp_path, new_topic=new_topic)
    yield instance
    instance.close()


@LONG
@pytest.mark.timeout(900)
def test_P2_executors_of_a_submitted_worker_are_killed(instance: CopyingInstance, cluster: SparkCluster) -> None:
    names = ("copy1", "copy2")
    instance.declare(*names)
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    command = shlex.join(cluster.command(os.environ)) + " {program} {arguments}"
    with (
        instance.manager("--slots", "2", "--lease", "10s", "--worker-command", command),
        Load(instance.bootstrap, instance.source, partitions=PARTITIONS, per_second=200) as load,
    ):
        instance.start(*names)
        worker, *others = set(instance.workers(*names))
        assert not others
        for _ in range(3):
            wait_until(lambda: len(cluster.executors()) == 2, "the worker has two executors")
            instance.wait_for_more(*names)
            killed = cluster.executors()[0]
            killed.kill()
            killed.wait(30)
        instance.wait_for_more(*names)
        assert set(instance.workers(*names)) == {worker}, "the driver has not ended"
    for name in names:
        wait_until(lambda it=name: instance.has_all(it, load.count), f"{name} copies all", 180)  # type: ignore[misc]
        instance.check(name, load.count)
