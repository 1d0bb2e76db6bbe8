"""The documented job on YARN in cluster mode: an executor and the application master are killed, and each row is there once.

The archive and the program are on HDFS. Checkpoint and state are in a directory that all containers share, because Arrow reads HDFS
only with Hadoop's native library, which no package here has. Source: docs/deploy.rst, "YARN"; X2, G12.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.counted_flights import PARTITIONS, Flights, hours_in
from integration_tests.installations import build_distributions, install_with_dependencies, outside_environment
from integration_tests.test_packed_environments import ARCHIVE, PACK, PYTHON
from integration_tests.test_spark_clusters import HOURS, Run
from integration_tests.tiers import LONG
from integration_tests.yarn_cluster import YarnCluster, yarn_cluster
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until

pytestmark = [LONG, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of ``spark-submit``, with the packed environment."""
    directory = tmp_path_factory.mktemp("submit")
    wheel = build_distributions(tmp_path_factory.mktemp("distributions")).wheel
    install_with_dependencies(wheel, directory / "environment", "cli", "postgres")
    subprocess.run(PACK.split(), cwd=directory, check=True)
    return directory


def program_with_state(directory: Path, state: Path) -> Path:
    """The program of the documents with the option ``stateLocation``."""
    text, loaded = HOURS.read_text(encoding="utf-8"), ".load()\n"
    assert text.count(loaded) == 1
    program = directory / HOURS.name
    program.write_text(text.replace(loaded, f'.option("stateLocation", "{state}"){loaded}'), encoding="utf-8")
    return program


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


def test_X2_an_executor_and_the_application_master_are_killed(
    yarn: YarnCluster, packed: Path, postgres: str, tmp_path: Path
) -> None:
    flights = Flights(6_000)
    with EmbeddedKafka(properties=BROKER_PROPERTIES) as kafka:
        bootstrap = kafka.bootstrap_servers
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), "flights", PARTITIONS, {"retention.ms": "-1"})
        run = Run(bootstrap, "hours", tmp_path, {"flights": "flights"})
        variables = {"BROKERS": bootstrap, "DATABASE": postgres}
        options = [f"spark.yarn.appMasterEnv.{name}={value}" for name, value in variables.items()]
        submitted = yarn.submit(
            *(word for option in options for word in ("--conf", option)),
            *(
                "--archives",
                ARCHIVE,
                str(program_with_state(tmp_path, tmp_path / "state")),
                f"file://{tmp_path}/checkpoints/one",
            ),
            log=tmp_path / "log",
            environment=outside_environment() | {"PYSPARK_PYTHON": PYTHON},
            directory=packed,
        )
        with submitted as program:
            try:
                run.wait_for_members(program, 1, timeout_s=300)
                flights.write(bootstrap, "flights", 0, 2_000)
                run.wait_until_all_is_read(program)
                first, *_ = yarn.executors()
                first.kill()
                flights.write(bootstrap, "flights", 2_000, 4_000)
                run.wait_until_all_is_read(program)
                (master,) = yarn.application_masters()
                master.kill()
                wait_until(
                    lambda: [it.pid for it in yarn.application_masters()] not in ([], [master.pid]),
                    "YARN starts the driver again",
                    180,
                )
                flights.write(bootstrap, "flights", 4_000)
                flights.close_windows(bootstrap, "flights")
                run.wait_until_all_is_read(program)
            except AssertionError as e:
                raise AssertionError(f"{e}\n{yarn.logs()}") from e
        assert hours_in(postgres) == flights.hours()
