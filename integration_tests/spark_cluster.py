"""A standalone cluster of Spark on this machine: a master and workers, whose executors are processes of their own.

Called by ``test_spark_clusters`` and ``test_workers_on_a_cluster``. PySpark's wheel contains the classes of master and worker, but not the scripts that
start them as services. Source: Spark's "Spark Standalone Mode".
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from integration_tests.programs import Program, running_command
from streamgroups_testkit.spark_sessions import JVM, spark_home
from streamgroups_testkit.waits import wait_until

_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """A running cluster.

    Args:
        url: the URL of its master, ``spark://host:port``.
        workers: the processes of its workers.
    """

    def __init__(self, url: str, workers: list[subprocess.Popen[bytes]]) -> None:
        self.url, self._workers = url, workers

    @contextmanager
    def submit(
        self, *arguments: str, log: Path, environment: Mapping[str, str], directory: Path | None = None
    ) -> Iterator[Program]:
        """Runs a program with ``spark-submit`` in client mode, and kills it at the end of the block. Its executors have
        one core each.

        Args:
            arguments: options of ``spark-submit``, the program, and its arguments.
            log: the file for its output.
            environment: the environment variables.
            directory: the working directory.
        """
        command = self.command(environment, *arguments)
        with running_command(command, log, environment, directory) as program:
            yield program

    def command(self, environment: Mapping[str, str], *arguments: str) -> list[str]:
        """Returns the command of :meth:`submit`."""
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JVM,
            "spark.executor.extraJavaOptions": JVM,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        return [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", self.url, *options, *arguments]

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors of all applications."""
        children = [child for worker in self._workers for child in psutil.Process(worker.pid).children()]
        return [it for it in children if _is_executor(it)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        # It has ended. A zombie, for which the worker has not waited yet, is one of these errors too.
        return False


@contextmanager
def spark_cluster(
    directory: Path, *, workers: int = 2, cores: int = 4, environment: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Starts a cluster, and kills it with its executors at the end of the block.

    Args:
        directory: the directory for logs and for the working directories of executors.
        workers: the number of workers.
        cores: the cores that each worker offers. They are only a number for Spark.
        environment: further environment variables of the workers, which their executors inherit.
    """
    env = {
        **os.environ,
        "SPARK_HOME": str(spark_home(directory / "spark")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
        "SPARK_LAUNCHER_OPTS": JVM,
        **(environment or {}),
    }
    with ExitStack() as processes:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            with (directory / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [f"{env['SPARK_HOME']}/bin/spark-class", *arguments],
                    env=env,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            processes.callback(_kill, process)
            return process

        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = start("master", f"{_DEPLOY}.master.Master", *address)
        (url,) = _logged(directory / "master.log", master, r"Starting Spark master at (spark://\S+)")
        offer = ("--cores", str(cores), "--memory", "4g", "--work-dir", str(directory / "work"))
        names = [f"worker-{number}" for number in range(workers)]
        started = [start(name, f"{_DEPLOY}.worker.Worker", *address, *offer, url) for name in names]
        for name, worker in zip(names, started, strict=True):
            _logged(directory / f"{name}.log", worker, r"Successfully registered with master (\S+)")
        yield SparkCluster(url, started)


def _logged(log: Path, process: subprocess.Popen[bytes], pattern: str) -> list[str]:
    found: list[str] = []

    def has_logged() -> bool:
        text = log.read_text(errors="replace")
        assert process.poll() is None, text[-3_000:]
        found[:] = re.findall(pattern, text)
        return bool(found)

    wait_until(has_logged, f"{log.name} contains {pattern}", timeout_s=60)
    return found[:1]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a daemon and the executors that it has started, which share its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
