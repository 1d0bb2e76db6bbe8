"""P2: a worker runs several processors in one Spark driver, and each record is copied once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.command_line import streamgroups
from integration_tests.copying_instance import PARTITIONS, CopyingInstance, connections_file, spark_worker
from integration_tests.spark_events import logged_queries
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
def test_P2_positions_and_savepoints_of_a_processor(instance: CopyingInstance) -> None:
    savepoints = str(instance.directory / "savepoints")
    instance.declare("copy1")
    instance.produce(100)
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    with instance.manager("--slots", "1", "--lease", "10s", "--idle", "10m", "--worker-command", spark_worker()):
        instance.start("copy1")
        wait_until(lambda: instance.has_all("copy1", 100), "it copies", 180)
        stopped = instance.command("processors", "stop", "copy1", "--savepoint", savepoints, "--wait", "2m")
        found = re.search(r"The savepoint is (\S+)", stopped)
        assert found is not None
        instance.produce(50)
        assert _sampled(instance, "copy1", 4) == {100, 101, 102, 103}
        instance.command("processors", "start", "copy1", "--from", "latest", "--wait", "3m")
        instance.produce(20)
        wait_until(lambda: instance.has_all("copy1", 120), "it continues at the end", 180)
        instance.stop("copy1")
        instance.command("processors", "start", "copy1", "--from", "earliest", "--wait", "3m")
        wait_until(lambda: instance.has_all("copy1", 290), "it copies all again", 180)
        instance.stop("copy1")
        restore = ("processors", "start", "copy1", "--savepoint", found[1], "--wait", "3m")
        assert "The output of 70 offsets would be written again" in instance.command(*restore, code=3)
        instance.command(*restore, "--accept-repeated-output")
        wait_until(lambda: instance.has_all("copy1", 360), "it continues at the savepoint", 180)
        instance.stop("copy1")
    numbers = {int(value.rstrip(b".")): count for value, count in instance.copied("copy1").items()}
    assert numbers == {number: 3 if number >= 150 else 2 for number in range(170)}


def _sampled(instance: CopyingInstance, name: str, records: int) -> set[int]:
    """The numbers of the records that ``processors sample`` shows, in a process of its own: the command stops its Spark."""
    command = [
        sys.executable,
        "-c",
        "from streamgroups_cli import main; main()",
        "processors",
        "sample",
        name,
        str(records),
    ]
    command += [
        "--master",
        "local[1]",
        "--conf",
        "spark.ui.enabled=false",
        "-i",
        instance.name,
        "--bootstrap-server",
        instance.bootstrap,
    ]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    return {int(b64decode(it["value"]).rstrip(b".")) for it in rows}


@LONG
@pytest.mark.timeout(1_200)
def test_P2_replicas_share_the_partitions_of_one_group(instance: CopyingInstance) -> None:
    instance.declare("copy1", replicas=2)
    instance.produce(100)
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    worker = f"{spark_worker()} --metrics 127.0.0.1:0"
    with instance.manager("--slots", "1", "--lease", "6s", "--worker-command", worker):
        instance.start("copy1")
        wait_until(lambda: len(_owners(instance, "copy1")) == 2, "each replica owns a partition", 180)
        assert instance.view("copy1", 0).worker != instance.view("copy1", 1).worker
        instance.produce(100)
        wait_until(lambda: instance.has_all("copy1", 200), "both copy", 180)
        addresses = re.findall(r"Metrics are available at (\S+)", instance.text())
        assert len(addresses) == 2
        wait_until(lambda: all(_has_batches(it, f"{instance.name}.copy1") for it in addresses), "both have metrics")
        os.kill(instance.worker("copy1").pid, signal.SIGKILL)
        instance.produce(100)
        wait_until(lambda: instance.has_all("copy1", 300), "the other replica, or its successor, copies", 240)
    instance.check("copy1", 300)


def _owners(instance: CopyingInstance, name: str) -> set[str]:
    """The members that own a partition. The group does not exist before the first one joins."""
    group = f"{instance.name}.{name}"
    done = streamgroups("groups", "describe", group, "--bootstrap-server", instance.bootstrap, "-o", "json")
    assert done.returncode == 0 or "unknown_group" in done.stderr, done.stderr
    found = json.loads(done.stdout)["groups"]
    return {it["owner"] for group in found for it in group["partitions"] if it["owner"] is not None}


def _has_batches(address: str, processor: str) -> bool:
    with urllib.request.urlopen(address, timeout=30) as response:
        text = response.read().decode()
    found = re.search(
        rf'streamgroups_query_batches_total{{[^}}]*processor="{re.escape(processor)}"[^}}]*}} (\S+)', text
    )
    return found is not None and float(found[1]) > 0


@LONG
def test_P2_a_processor_whose_cluster_does_not_respond_shows_it(instance: CopyingInstance, tmp_path: Path) -> None:
    file = connections_file(tmp_path, instance.bootstrap)
    text = file.read_text()
    file.write_text(f'{text}[connections.gone]\ntype = "kafka"\nbootstrap-servers = "127.0.0.1:1"\n')
    instance.declare("copy1")
    declared = instance.files / "copy1.yaml"
    declared.write_text(declared.read_text().replace("source: {connection: prod", "source: {connection: gone"))
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    with instance.manager("--slots", "1", "--worker-command", spark_worker()):
        instance.command("processors", "start", "copy1", "--wait", "0s")
        wait_until(lambda: "BrokerUnreachable" in instance.view("copy1").why, "the reason is shown", 180)
        assert (instance.view("copy1").state, instance.view("copy1").error_code) == ("starting", "broker_unreachable")
        assert "127.0.0.1:1" in instance.command("processors", "list")
        instance.stop("copy1")


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
            instance.wait_for_more(*names)
        with instance.manager(*options, number=3):
            _kill(instance, "copy2")
            _freeze(instance, "copy1")
            instance.wait_for_more(*names)
    for name in names:
        wait_until(lambda it=name: instance.has_all(it, load.count), f"{name} copies all", 180)  # type: ignore[misc]
        instance.check(name, load.count)


@LONG
@pytest.mark.timeout(1_800)
def test_P2_twelve_processors_on_three_workers(instance: CopyingInstance) -> None:
    """A worker is killed: its four processors start on a new worker, and the eight others continue to run."""
    names = tuple(f"copy{number:02}" for number in range(1, 13))
    instance.declare(*names, trigger="2 seconds")
    instance.produce(100)
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    with instance.manager("--slots", "4", "--lease", "20s", "--worker-command", spark_worker("local[1]")):
        instance.command("processors", "start", *names, "--wait", "15m")
        before = dict(zip(names, instance.workers(*names), strict=True))
        assert sorted(Counter(before.values()).values()) == [4, 4, 4]
        killed = instance.worker(names[0])
        os.kill(killed.pid, signal.SIGKILL)
        instance.produce(100)
        moved = [it for it in names if before[it] == killed.id]
        new = {instance.wait_for_worker(it, lambda worker: worker.id != killed.id, timeout_s=600).id for it in moved}
        assert len(new) == 1
        assert not new & set(before.values())
        for name in names:
            wait_until(lambda it=name: instance.has_all(it, 200), f"{name} copies all", 600)  # type: ignore[misc]
        after = dict(zip(names, instance.workers(*names), strict=True))
        assert {it for it in names if after[it] != before[it]} == set(moved)
    for name in names:
        instance.check(name, 200)


@LONG
@pytest.mark.timeout(1_200)
def test_P2_the_upgrade_of_one_processor_costs_no_batch_of_the_others(instance: CopyingInstance) -> None:
    """One of four processors in a worker is upgraded, and restarted: the batches of the others continue without a gap."""
    upgraded, *others = names = ("copy1", "copy2", "copy3", "copy4")
    instance.declare(*names, trigger="1 second")
    instance.command("processors", "apply", "-f", str(instance.files), "--execute")
    events = instance.directory / "events"
    events.mkdir()
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    options = ("--slots", "4", "--lease", "10s", "--worker-command", spark_worker(more=log))

    def batches() -> dict[str, list[int]]:
        found = logged_queries(events)
        return {it: found[group].batches if (group := f"{instance.name}.{it}") in found else [] for it in names}

    def continue_all() -> None:
        before = {name: len(it) for name, it in batches().items()}
        wait_until(lambda: all(len(it) > before[name] for name, it in batches().items()), "all have batches", 180, 1)

    with (
        instance.manager(*options),
        Load(instance.bootstrap, instance.source, partitions=PARTITIONS, per_second=100) as load,
    ):
        instance.command("processors", "start", *names, "--wait", "5m")
        assert len(set(instance.workers(*names))) == 1
        continue_all()
        instance.declare(upgraded, sql="SELECT key, value FROM input WHERE true", trigger="1 second")
        instance.command("processors", "apply", "-f", str(instance.files), "--execute")
        instance.wait_until(
            lambda _: (view := instance.view(upgraded)).state == "running" and not view.is_outdated,
            "it is upgraded",
            180,
        )
        continue_all()
        instance.command("processors", "restart", upgraded, "--wait", "3m")
        continue_all()
    for name in names:
        wait_until(lambda it=name: instance.has_all(it, load.count), f"{name} copies all", 180)  # type: ignore[misc]
        instance.check(name, load.count)
    found = logged_queries(events)
    assert len(found[f"{instance.name}.{upgraded}"].runs) == 3
    for name in others:
        query = found[f"{instance.name}.{name}"]
        assert (len(query.runs), query.errors) == (1, [])
        # A batch without data has the id of the next batch.
        assert sorted(set(query.batches)) == list(range(max(query.batches) + 1))


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
