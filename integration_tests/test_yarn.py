"""The documented job on YARN in cluster mode: an executor and the application master are killed, and each row is there once.

The commands are those of the page. Archive, program, checkpoint and state are on HDFS. Source: docs/deploy.rst, "YARN"; X2, G12.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyarrow import fs

from integration_tests.counted_flights import PARTITIONS, Flights, hours_in
from integration_tests.installations import build_distributions, install_with_dependencies, outside_environment
from integration_tests.test_packed_environments import PACK
from integration_tests.test_spark_clusters import HOURS, Run
from integration_tests.tiers import LONG
from integration_tests.yarn_cluster import YarnCluster, yarn_cluster
from streamgroups_broker import EmbeddedKafka
from streamgroups_operators.hdfs import open_hdfs
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT

pytestmark = [LONG, pytest.mark.timeout(1_200)]
_PAGE = (ROOT / "docs" / "deploy.rst").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of ``spark-submit``, with the packed environment."""
    directory = tmp_path_factory.mktemp("submit")
    wheel = build_distributions(tmp_path_factory.mktemp("distributions")).wheel
    install_with_dependencies(wheel, directory / "environment", "cli", "postgres", "hdfs")
    subprocess.run(PACK.split(), cwd=directory, check=True)
    shutil.copy(HOURS, directory)
    return directory


def documented_command(bootstrap: str, database: str, hdfs: str) -> str:
    """The commands of the page, with the addresses of the test."""
    section = _PAGE.partition("\nYARN\n----\n")[2]
    (block,) = re.findall(r"::\n\n((?: {4}.*\n)+)", section.partition("\n**HDFS.**")[0])
    addresses = {
        "kafka-1:9092": bootstrap,
        "postgresql://board@postgres/flights": f"'{database}'",
        "hdfs://namenode:8020": hdfs,
    }
    for documented, used in addresses.items():
        assert block.count(documented) == 1, documented
        block = block.replace(documented, used)
    return str(block)


def files_on(uri: str) -> list[str]:
    """The upper two directories of each file on HDFS."""
    files, _ = open_hdfs(f"{uri}/")
    found = files.get_file_info(fs.FileSelector("/checkpoints", recursive=True))
    return ["/".join(it.path.strip("/").split("/")[:2]) for it in found if it.type == fs.FileType.File]


def kill_the_application_master(yarn: YarnCluster) -> None:
    """Kills the driver, and waits until YARN has started it again."""
    (master,) = yarn.application_masters()
    master.kill()
    wait_until(
        lambda: [it.pid for it in yarn.application_masters()] not in ([], [master.pid]),
        "YARN starts the driver again",
        180,
    )


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
        command = documented_command(bootstrap, postgres, yarn.hdfs_uri)
        submitted = yarn.submit(command, log=tmp_path / "log", environment=outside_environment(), directory=packed)
        with submitted as program:
            try:
                run.wait_for_members(program, 1, timeout_s=300)
                flights.write(bootstrap, "flights", 0, 2_000)
                run.wait_until_all_is_read(program)
                first, *_ = yarn.executors()
                first.kill()
                flights.write(bootstrap, "flights", 2_000, 4_000)
                run.wait_until_all_is_read(program)
                for start, stop in ((4_000, 5_000), (5_000, 6_000)):
                    kill_the_application_master(yarn)
                    flights.write(bootstrap, "flights", start, stop)
                    run.wait_until_all_is_read(program)
                flights.close_windows(bootstrap, "flights")
                run.wait_until_all_is_read(program)
            except AssertionError as e:
                raise AssertionError(f"{e}\n{yarn.logs()}") from e
            assert {"checkpoints/one", "checkpoints/streamgroups-state"} <= set(files_on(yarn.hdfs_uri))
        assert hours_in(postgres) == flights.hours()
