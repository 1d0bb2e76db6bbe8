"""``streamgroups doctor``: shows the versions in use and the problems of an installation.

Part of the command line (``streamgroups_cli``). The probes of the connectors collect facts, :mod:`streamgroups.doctor`
checks them, this file prints the results.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups._version import __version__
from streamgroups.doctor.check_results import CheckResult, ok, problem, warning
from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_cli._spark_application import WORKER_PYTHON
from streamgroups_cli.check_results import emit_results
from streamgroups_cli.connection import ClusterOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption
from streamgroups_cli.spark_settings import Conf, Master, spark_settings

if TYPE_CHECKING:
    from streamgroups_kafka.client.config import ClientConfig


@with_options
def doctor(
    cluster: ClusterOptions,
    executors: Annotated[
        bool,
        typer.Option(
            "--executors",
            help="Start a Spark application with --master and --conf, and check the Python of every executor.",
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the versions in use, and the problems.

    Checks packages, the reader, librdkafka, Java, Spark and the Python of Spark's workers. With --bootstrap-server or a
    context it also checks a Kafka cluster: reachable brokers and retention of offsets. With --executors it runs a check
    on every executor of a Spark application. Changes nothing, prints no secrets.

    Each result is ok, a warning (it works, but slower or at risk) or a problem (something will fail), with a remedy.
    Exit code: 0 without a problem, 1 with one, 2 wrong usage.
    """
    config = _client_config(cluster)
    if not executors and (master is not None or conf):
        raise InvalidOption("--master and --conf need --executors.", remedy="Add --executors, or omit them.")
    settings = spark_settings(master, conf)
    results = _local_results(settings.get(WORKER_PYTHON))
    brokers: list[str] = []
    if isinstance(config, CheckResult):
        results.append(config)
    elif config is not None:
        from streamgroups.doctor.cluster_checks import Cluster, judge_cluster
        from streamgroups_kafka.probes.cluster_probe import probe_cluster

        found = probe_cluster(config)
        results += judge_cluster(found)
        brokers = [broker.address for broker in found.brokers] if isinstance(found, Cluster) else []
    if executors:
        results += _executor_results(settings, brokers)
    emit_results(results, output)


def _client_config(cluster: ClusterOptions) -> ClientConfig | CheckResult | None:
    """The settings of the cluster to check, validated before any other check; ``None`` without a cluster.

    A check result if the Kafka client cannot be imported. The local checks report the reason.
    """
    to = cluster.connection()
    if to.bootstrap_server is None and to.file is None and not to.settings:
        return None
    try:
        from streamgroups_kafka.client.properties_file import command_config
    except ImportError:
        return warning(
            "cluster", "It was not checked, because that requires a Kafka client.", "Repair the client first."
        )
    return command_config(to.bootstrap_server, to.file, to.settings)


def _local_results(worker_python: str | None) -> list[CheckResult]:
    """All checks without a cluster. PySpark is not imported, because its import is slow."""
    from streamgroups.doctor import installation_checks, machine_checks
    from streamgroups_cli._this_python import packages
    from streamgroups_kafka.probes.client_probe import probe_client, probe_reader
    from streamgroups_spark.ops.probe import probe_spark_home, probe_workers, pyspark_without_pip

    version = platform.python_version()
    # Checks that start other programs run while the client is loaded here.
    with ThreadPoolExecutor() as pool:
        java, workers = pool.submit(_java), pool.submit(probe_workers, worker_python)
        client = probe_client()
    found = installation_checks.with_version(packages(), "pyspark", pyspark_without_pip)
    by_name = {package.name: package for package in found}
    home = probe_spark_home()
    pyspark_version = by_name["pyspark"].installed if "pyspark" in by_name else pyspark_without_pip()
    spark_home = home and machine_checks.judge_spark_home(home, pyspark_version)
    return [
        ok("python", "", version),
        _own_result(is_installed=bool(found)),
        *(
            [installation_checks.judge_reader(probe_reader())]
            if isinstance(client, installation_checks.ClientLibrary)
            else []
        ),
        installation_checks.judge_client(client, by_name.get("confluent-kafka")),
        java.result(),
        *installation_checks.judge_packages(found),
        *([spark_home] if spark_home else []),
        machine_checks.judge_workers(workers.result(), version),
    ]


def _executor_results(settings: dict[str, str], brokers: Sequence[str]) -> list[CheckResult]:
    """Starts a Spark application for the check of its executors, and stops it."""
    from streamgroups.doctor.executor_checks import judge_executors
    from streamgroups_cli._spark_application import explained_failure, spark_application
    from streamgroups_spark.ops.executors import driver_versions, probe_executors

    try:
        with spark_application(settings) as spark:
            found, expected = probe_executors(spark, brokers)
    except Exception as e:  # Py4J and PySpark have no common class of errors
        return [problem("executors", *explained_failure(e))]
    return judge_executors(found, expected, driver_versions())


def _java() -> CheckResult:
    from streamgroups.doctor.machine_checks import judge_java
    from streamgroups_broker._java import find_java, release

    try:
        java = find_java()
    except EmbeddedBrokerError as e:
        return problem("java", e.what, e.remedy)
    return judge_java(java.executable, java.version, release(java.version))


def _own_result(*, is_installed: bool) -> CheckResult:
    where = str(Path(__file__).parents[2])
    if is_installed:
        return ok("streamgroups", f"In {where}.", __version__)
    what = f"It runs from {where} and is not installed, so its requirements are unknown."
    return warning("streamgroups", what, "Install its wheel.", __version__)
