"""The queries of the tutorial run on a Spark cluster, whose executors are processes of their own and are killed.

``streamgroups doctor --executors`` reports each of them. Source: docs/deploy.rst; X2, G12.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.choosing_python import choosing_python
from integration_tests.counted_flights import PARTITIONS, Flights, hours_in
from integration_tests.programs import Program, running
from integration_tests.spark_cluster import SparkCluster, spark_cluster
from integration_tests.tiers import LONG
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.reading import (
    committed_offsets,
    end_offsets,
    read_committed,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT

#: The doctor warns about the plain reader, with which ``make plain-reader`` runs this test.
STATE = "warning" if os.environ.get("STREAMGROUPS_READER") == "plain" else "ok"
HOURS = ROOT / "docker" / "cluster" / "hours.py"


@dataclass(frozen=True)
class Run:
    """A run of the program, with its topics."""

    bootstrap: str
    group: str
    directory: Path
    config: dict[str, Any]

    def wait_for_members(self, program: Program, count: int, timeout_s: float = 120) -> None:
        """Waits until the group has this number of members, each with partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def have_partitions() -> bool:
            program.check()
            try:
                members = admin.describe_consumer_groups([self.group])[self.group].result(30).members
            except KafkaException:  # The broker is still creating the topic of its coordinators.
                return False
            owned = [len(member.assignment.topic_partitions) for member in members]
            return len(owned) == count and all(owned) and sum(owned) == PARTITIONS

        wait_until(have_partitions, f"{count} members own partitions", timeout_s)

    def wait_until_all_is_read(self, *programs: Program) -> None:
        ends = end_offsets(self.bootstrap, self.config["flights"], PARTITIONS)

        def is_read() -> bool:
            for program in programs:
                program.check()
            return committed_offsets(self.bootstrap, self.group, self.config["flights"]) == ends

        wait_until(is_read, "all flights are read")

    def kill_the_held_executor(self, program: Program) -> None:
        """Waits until a task is held, and kills its executor with ``kill -9``."""

        def attempts() -> list[Path]:
            program.check()
            return list(self.directory.glob("attempt-*"))

        wait_until(attempts, "a task is held")
        (held,) = attempts()
        executor = psutil.Process(int(held.name.removeprefix("attempt-"))).parent()
        assert executor is not None
        assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
        executor.kill()
        wait_until(lambda: len(attempts()) == 2, "the task has run on another executor")

    def finish(self, program: Program) -> None:
        """Stops the two queries, and waits for the end of the third."""
        (self.directory / "stop").touch()
        program.wait_for_end(120)

    def late(self) -> list[dict[str, Any]]:
        wait_until_no_transaction_is_open(self.bootstrap, self.config["late"])
        return [json.loads(it.value) for it in read_committed(self.bootstrap, self.config["late"])]

    def hours(self) -> Counter[tuple[str, int]]:
        found = [json.loads(it.value) for it in read_committed(self.bootstrap, self.config["hours"])]
        assert len({(it["key"], it["hour_ms"]) for it in found}) == len(found), "a window is there twice"
        return Counter({(it["key"], it["hour_ms"]): it["flights"] for it in found})


@pytest.fixture
def run(bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> Run:
    config = {
        "bootstrap": bootstrap,
        "flights": new_topic(PARTITIONS, retention_ms="-1"),
        "late": new_topic(PARTITIONS),
        "group": group,
        "directory": str(tmp_path),
        "queries": ["one", "two"],
    }
    return Run(bootstrap, group, tmp_path, config)


@LONG
def test_X2_an_executor_is_killed_and_the_output_of_two_queries_is_exactly_once(run: Run, tmp_path: Path) -> None:
    flights = Flights(2_000)
    config = run.config | {"master": "local-cluster[2,1,512]"}
    with running("cluster_query", config, tmp_path / "log") as program:
        run.wait_for_members(program, 2)
        flights.write(run.bootstrap, run.config["flights"])
        run.kill_the_held_executor(program)
        run.wait_until_all_is_read(program)
        run.finish(program)
    found = run.late()
    assert sorted(it["number"] for it in found) == flights.late()
    assert {it["query"] for it in found} == {"one", "two"}, "both queries of the group have read"
    (check,) = json.loads((tmp_path / "executors.json").read_text())
    assert (check["state"], check["what"].partition(",")[0]) == (STATE, "2 executors"), check


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@LONG
def test_X2_executors_of_a_standalone_cluster_are_killed(
    run: Run, cluster: SparkCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    flights = Flights(40_000)
    run.config["hours"] = new_topic(PARTITIONS)
    config = run.config | {"master": cluster.url}
    with running("cluster_query", config, tmp_path / "log") as program:
        run.wait_for_members(program, 2)
        flights.write(run.bootstrap, run.config["flights"])
        run.kill_the_held_executor(program)
        for _ in range(2):
            wait_until(lambda: len(cluster.executors()) == 2, "the worker has started another executor")
            killed = cluster.executors()[0]
            killed.kill()
            killed.wait(30)
        run.wait_until_all_is_read(program)
        run.finish(program)
    assert sorted(it["number"] for it in run.late()) == flights.late()
    assert run.hours() == flights.hours()


@LONG
def test_X2_drivers_of_spark_submit_share_windows_and_an_executor_is_killed(
    cluster: SparkCluster, postgres: str, tmp_path: Path
) -> None:
    flights, parts = Flights(40_000), 8
    with EmbeddedKafka(properties=BROKER_PROPERTIES) as kafka, ExitStack() as drivers:
        bootstrap = kafka.bootstrap_servers
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), "flights", PARTITIONS, {"retention.ms": "-1"})
        run = Run(bootstrap, "hours", tmp_path, {"flights": "flights"})
        environment = {**os.environ, "BROKERS": bootstrap, "DATABASE": postgres, "SPARK_LOCAL_IP": "127.0.0.1"}
        programs = []
        for name in ("one", "two"):
            arguments = (str(HOURS), f"{tmp_path}/checkpoints/{name}")
            submitted = cluster.submit(*arguments, log=tmp_path / f"{name}.log", environment=environment)
            programs.append(drivers.enter_context(submitted))
        run.wait_for_members(programs[0], len(programs))
        for part in range(parts):
            flights.write(bootstrap, "flights", part * flights.count // parts, (part + 1) * flights.count // parts)
            if part == parts // 2:
                wait_until(lambda: len(cluster.executors()) == 4, "each driver has two executors")
                cluster.executors()[0].kill()
            run.wait_until_all_is_read(*programs)
        wait_until(lambda: len(cluster.executors()) == 4, "the worker has started another executor")
        flights.close_windows(bootstrap, "flights")
        run.wait_until_all_is_read(*programs)
        assert hours_in(postgres) == flights.hours()
        programs[0].terminate()
        # The broker removes a killed member after the session timeout, 45 s.
        run.wait_for_members(programs[1], 1, timeout_s=30)


def doctor(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Runs ``streamgroups doctor --executors`` in a program of its own, as Spark needs."""
    command = [sys.executable, "-c", "from streamgroups_cli import main; main()", "doctor", "--executors", "-o", "json"]
    settings = (
        "--conf",
        "spark.executor.memory=512m",
        "--conf",
        "spark.executor.cores=1",
        "--conf",
        "spark.cores.max=2",
    )
    # The doctor reports a SPARK_HOME that is not PySpark's own.
    env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    env["PYSPARK_PYTHON"] = python
    return subprocess.run([*command, *settings, *arguments], capture_output=True, text=True, check=False, env=env)


def executor_results(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert result.returncode in (0, 1), result.stderr
    return [it for it in json.loads(result.stdout)["results"] if it["about"] == "executors"]


@LONG
def test_doctor_reports_each_executor_of_a_cluster(cluster: SparkCluster, bootstrap: str) -> None:
    (check,) = executor_results(doctor("--master", cluster.url, "-b", bootstrap))
    assert check["state"] == STATE, check
    versions = (sys.executable, "streamgroups ", "pyarrow ", "confluent_kafka ", "native reader.")
    for fact in ("2 executors, on ", *(versions if STATE == "ok" else ("the plain reader",))):
        assert fact in check["what"]


@LONG
def test_doctor_reports_executors_without_the_library(cluster: SparkCluster, tmp_path: Path) -> None:
    script, bare = choosing_python(tmp_path, "pyspark.worker")
    (check,) = executor_results(doctor("--master", cluster.url, python=str(script)))
    assert check["state"] == "problem"
    assert check["what"].startswith("2 executors, on ")
    # The script starts it in its directory, and executors name a Python in their directory by its relative path.
    assert f": ./{bare.name} (Python " in check["what"]
    assert "cannot import streamgroups: No module named 'streamgroups" in check["what"]
    assert "Every task fails there." in check["what"]
