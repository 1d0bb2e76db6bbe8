"""``streamgroups doctor``: shows the versions in use and the problems of an installation.

Part of the command line (``streamgroups_cli``). The probes of the connectors collect facts, :mod:`streamgroups.doctor`
checks them, this file prints the results.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups._version import __version__
from streamgroups.errors import InvalidOption
from streamgroups.tables import Column, Table
from streamgroups_cli._spark_application import WORKER_PYTHON
from streamgroups_cli.connection import ClusterOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit

if TYPE_CHECKING:
    from streamgroups.doctor.check_results import Finding
    from streamgroups.doctor.installation import Distribution
    from streamgroups_kafka.client.config import ClientConfig

#: Modules of other projects that Spark's workers import, and that a file of a job could hide.
_DEPENDENCIES = ("confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "py4j")
#: In a pipe, paths must not be broken at the 80th character.
_PIPE_WIDTH = 500
_COLUMNS = tuple(map(Column, ("state", "about", "in_use", "what", "remedy")))
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@with_options
def doctor(
    cluster: ClusterOptions,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Main script of your Spark job: files beside it can hide modules of Python.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    executors: Annotated[
        bool, typer.Option("--executors", help="Start a Spark application, and check the Python of every executor.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --executors: Spark's master. Default: that of spark-submit and spark-defaults.conf.",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="With --executors: a setting of Spark; repeatable."),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the versions in use, and the problems.

    Checks Python, the reader, librdkafka, Java, Spark, the Python of Spark's workers, the embedded broker's jars and
    the machine. With --bootstrap-server or a context it also checks a Kafka cluster: reachable brokers, release, group protocols and
    retention of offsets. With --executors it runs a check on every executor of a Spark application. Changes nothing,
    prints no secrets.

    Each result is ok, a warning (it works, but slower or at risk) or a problem (something will fail), with a remedy.
    Exit code: 0 without a problem, 1 with one, 2 wrong usage.
    """
    from streamgroups.doctor.check_results import State, worst

    config = _client_config(cluster)
    settings = _spark_settings(master, conf or [], executors=executors)
    findings = _local_findings(script, settings.get(WORKER_PYTHON))
    brokers: list[str] = []
    if config is not None:
        from streamgroups.doctor.cluster import Cluster, judge_cluster
        from streamgroups_kafka.probes.cluster import probe_cluster

        found = probe_cluster(config)
        findings += judge_cluster(found)
        brokers = [broker.address for broker in found.brokers] if isinstance(found, Cluster) else []
    if executors:
        findings += _executor_findings(settings, brokers)
    if output is Output.table:
        _print_table(findings)
    else:
        documents = [{**asdict(finding), "state": finding.state.value} for finding in findings]
        emit(
            output,
            document=lambda: {"state": worst(findings).value, "findings": documents},
            tables=lambda: [Table(_COLUMNS, [[found[column.name] for column in _COLUMNS] for found in documents])],
        )
    if worst(findings) is State.PROBLEM:
        raise typer.Exit(1)


def _client_config(cluster: ClusterOptions) -> ClientConfig | None:
    """The settings of the cluster to check, validated before any other check; None without a cluster."""
    to = cluster.connection()
    if to.bootstrap_server is None and to.file is None and not to.settings:
        return None
    try:
        from streamgroups_kafka.client.properties_file import command_config
    except ImportError as e:
        remedy = "Run `streamgroups doctor` without --bootstrap-server first."
        raise InvalidOption(f"A check of the cluster requires a Kafka client: {e}.", remedy=remedy) from e
    return command_config(to.bootstrap_server, to.file, to.settings)


def _local_findings(script: Path | None, worker_python: str | None) -> list[Finding]:
    """All checks without a cluster. PySpark is not imported, because its import is slow."""
    from streamgroups.doctor import installation, machine
    from streamgroups_broker.probe import probe_embedded_kafka, probe_java
    from streamgroups_cli import _this_python
    from streamgroups_kafka.probes.client import probe_client, probe_reader
    from streamgroups_spark.ops.probe import probe_spark_home, probe_workers, pyspark_without_pip

    version = platform.python_version()
    # Checks that start other programs or read all jars run while the client is loaded here.
    with ThreadPoolExecutor() as pool:
        java, workers, kafka = (
            pool.submit(probe_java),
            pool.submit(probe_workers, worker_python),
            pool.submit(probe_embedded_kafka),
        )
        client = probe_client()
    packages = installation.with_version(_this_python.packages(), "pyspark", pyspark_without_pip)
    by_name = {package.name: package for package in packages}
    names = machine.shadowing(_this_python.early_on_the_path(script), sys.stdlib_module_names, _DEPENDENCIES)
    home = probe_spark_home()
    pyspark_version = by_name["pyspark"].installed if "pyspark" in by_name else pyspark_without_pip()
    spark_home = home and machine.judge_spark_home(home, pyspark_version)
    return [
        *_own_findings(version, _this_python.distribution()),
        *([installation.judge_reader(probe_reader())] if isinstance(client, installation.ClientLibrary) else []),
        installation.judge_client(client, by_name.get("confluent-kafka")),
        machine.judge_java(java.result()),
        *installation.judge_packages(packages),
        *([spark_home] if spark_home else []),
        machine.judge_workers(workers.result(), version),
        machine.judge_names(names),
        machine.judge_embedded_kafka(kafka.result()),
        *machine.judge_machine(_this_python.machine()),
    ]


def _spark_settings(master: str | None, assignments: Sequence[str], *, executors: bool) -> dict[str, str]:
    if not executors and (master is not None or assignments):
        raise InvalidOption("--master and --conf need --executors.", remedy="Add --executors, or omit them.")
    settings = {} if master is None else {"spark.master": master}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            # The text can be a secret.
            raise InvalidOption("A --conf option is not NAME=VALUE.", remedy="Write it as --conf spark.cores.max=4.")
        settings[name.strip()] = value
    return settings


def _executor_findings(settings: dict[str, str], brokers: Sequence[str]) -> list[Finding]:
    """Starts a Spark application for the check of its executors, and stops it."""
    from streamgroups.doctor.check_results import problem
    from streamgroups.doctor.executors import judge_executors
    from streamgroups_cli._spark_application import explained_failure, spark_application
    from streamgroups_spark.ops.executors import driver_versions, probe_executors

    try:
        with spark_application(settings) as spark:
            found, expected = probe_executors(spark, brokers)
    except Exception as e:  # Py4J and PySpark have no common class of errors
        return [problem("executors", *explained_failure(e))]
    return judge_executors(found, expected, driver_versions())


def _own_findings(python_version: str, distribution: Distribution | None) -> list[Finding]:
    from streamgroups.doctor.check_results import ok, warning
    from streamgroups.doctor.installation import judge_python

    where = str(Path(__file__).parents[2])
    if distribution is None:
        what = f"It runs from {where} and is not installed, so its requirements are unknown."
        return [
            ok("python", "", python_version),
            warning("streamgroups", what, "Run: pip install streamgroups.", __version__),
        ]
    return [judge_python(python_version, distribution), ok("streamgroups", f"In {where}.", __version__)]


def _print_table(findings: Sequence[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE, show_header=False, padding=(0, 1))
    for column in ({"no_wrap": True}, {"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"}):
        table.add_column(**column)
    for finding in findings:
        state = finding.state.value
        said = Text(_said(finding))  # as Text, because rich would interpret pyspark[sql] in a plain string as markup
        table.add_row(Text(state, _STYLES[state]), Text(finding.about), Text(finding.in_use or ""), said)
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)
    counts = {state: sum(finding.state.value == state for finding in findings) for state in ("problem", "warning")}
    console.print(Text(_summary(counts["problem"], counts["warning"])))


def _said(finding: Finding) -> str:
    return f"{finding.what}\n→ {finding.remedy}" if finding.remedy else finding.what


def _summary(problems: int, warnings: int) -> str:
    """Returns the last line.

    >>> print(_summary(0, 0), _summary(1, 0), _summary(2, 1), sep=" | ")
    No problems found. | 1 problem. | 2 problems, 1 warning.
    """
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((problems, "problem"), (warnings, "warning")) if n]
    return f"{', '.join(counts)}." if counts else "No problems found."
