"""Executors without the library receive a packed environment with ``spark.archives``, as on YARN.

The workers of the cluster have no package of this environment. Source: docs/deploy.rst, "Packed environment"; PySpark's
"Python Package Management".
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.counted_flights import PARTITIONS, Flights, hours_in
from integration_tests.installations import build_distributions, install_with_dependencies, outside_environment
from integration_tests.spark_cluster import SparkCluster, spark_cluster
from integration_tests.test_spark_clusters import HOURS, Run
from integration_tests.tiers import LONG
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT

_PAGE = (ROOT / "docs" / "deploy.rst").read_text(encoding="utf-8")


def documented(pattern: str) -> str:
    """A part of a command of the page."""
    found = re.search(rf"^    .*?{pattern}", _PAGE, re.MULTILINE)
    assert found is not None
    return found[1]


PACK = documented("(tar .*)$")
ARCHIVE = documented(r"--archives (\S+)")
PYTHON = documented(r"export PYSPARK_PYTHON=(\./\S+)")
DOCTOR = documented(r"echo '(.*)' > doctor\.py")


@dataclass(frozen=True)
class Driver:
    """The directory of a driver with the environment, its archive, and a cluster without the library.

    Args:
        cluster: the cluster.
        directory: the working directory of the driver.
    """

    cluster: SparkCluster
    directory: Path

    def environment(self, **more: str) -> dict[str, str]:
        return outside_environment() | {"SPARK_HOME": _spark_home(), "PYSPARK_PYTHON": PYTHON, **more}


def _spark_home() -> str:
    """A Spark home with the file of PySpark that a Spark distribution has too."""
    return str(Path(pyspark.__file__).parent)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("driver")
    wheel = build_distributions(tmp_path_factory.mktemp("distributions")).wheel
    install_with_dependencies(wheel, directory / "environment", "cli", "postgres")
    subprocess.run(PACK.split(), cwd=directory, check=True)
    # Executors inherit the environment variables of their worker.
    bare = dict.fromkeys(("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV", "STREAMGROUPS_READER"), "")
    bare["SPARK_HOME"] = _spark_home()
    with spark_cluster(tmp_path_factory.mktemp("cluster"), environment=bare) as cluster:
        yield Driver(cluster, directory)


def doctor(driver: Driver, log: Path, *options: str) -> dict[str, str]:
    """The result of ``streamgroups doctor --executors``, with options of ``spark-submit``."""
    (driver.directory / "doctor.py").write_text(DOCTOR)
    arguments = (*options, "doctor.py", "doctor", "--executors", "-o", "json")
    submitted = driver.cluster.submit(*arguments, log=log, environment=driver.environment(), directory=driver.directory)
    with submitted as program:
        wait_until(program.has_ended, "the doctor has ended", timeout_s=120)
    (document,) = re.findall(r"^\{.*\}$", log.read_text(), re.MULTILINE)
    (check,) = (it for it in json.loads(document)["results"] if it["about"] == "executors")
    return dict(check)


@LONG
def test_executors_use_the_archive(driver: Driver, tmp_path: Path) -> None:
    check = doctor(driver, tmp_path / "log", "--archives", ARCHIVE)
    assert check["state"] == "ok", check
    assert check["what"].startswith("2 executors, on ")
    assert f"{PYTHON}, Python " in check["what"], "each executor has the archive in its own directory"
    assert check["what"].endswith("native reader.")


@LONG
def test_doctor_reports_a_missing_archive(driver: Driver, tmp_path: Path) -> None:
    check = doctor(driver, tmp_path / "log")
    assert check["state"] == "problem"
    assert f'Cannot run program "{PYTHON}"' in check["what"]
    assert "--archives" in check["remedy"]


@LONG
def test_a_query_runs_in_the_environment(driver: Driver, postgres: str, tmp_path: Path) -> None:
    flights = Flights(5_000)
    with EmbeddedKafka(properties=BROKER_PROPERTIES) as kafka:
        bootstrap = kafka.bootstrap_servers
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), "flights", PARTITIONS, {"retention.ms": "-1"})
        run = Run(bootstrap, "hours", tmp_path, {"flights": "flights"})
        flights.write(bootstrap, "flights")
        flights.close_windows(bootstrap, "flights")
        submitted = driver.cluster.submit(
            *("--archives", ARCHIVE, str(HOURS), str(tmp_path / "checkpoints" / "one")),
            log=tmp_path / "log",
            environment=driver.environment(BROKERS=bootstrap, DATABASE=postgres),
            directory=driver.directory,
        )
        with submitted as program:
            run.wait_for_members(program, 1)
            run.wait_until_all_is_read(program)
        assert hours_in(postgres) == flights.hours()
