"""YARN and HDFS on this machine: Hadoop's mini cluster, whose containers are processes of their own. Used by ``test_yarn``.

PySpark's wheel has Hadoop's client and Spark's part of YARN. The cluster comes from a Maven repository. Source: Hadoop's
``MiniYARNCluster`` and ``MiniDFSCluster``; Spark's "Running Spark on YARN".
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
import pytest

from integration_tests.programs import Program, running_command
from streamgroups.errors import StreamGroupsError
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly
from streamgroups_broker._java import Java, find_java
from streamgroups_testkit.spark_sessions import JVM
from streamgroups_testkit.waits import wait_until

_SOURCE = Path(__file__).parent / "yarn" / "MiniYarn.java"
_HOME = Path(pyspark.__file__).parent
#: Classes that Hadoop creates at run time, with the modules of Java 17.
_OPENS = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-exports=java.base/sun.net.dns=ALL-UNNAMED")
#: What Hadoop's mini cluster needs and does not contain: assertions of its tests, and the certificates of the resource manager.
_NEEDED = (
    "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.junit.platform:junit-platform-commons:1.12.2",
    "org.opentest4j:opentest4j:1.3.0",
    "org.apiguardian:apiguardian-api:1.1.2",
    "org.bouncycastle:bcprov-jdk18on:1.78.1",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcutil-jdk18on:1.78.1",
)
_LOG = "cluster.log"
_APPLICATION_MASTER, _EXECUTOR = "yarn.ApplicationMaster", "YarnCoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class YarnCluster:
    """A running cluster.

    Args:
        directory: its directory, also with the logs of containers.
        java_home: the home of its Java.
    """

    directory: Path
    java_home: Path

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables by which ``spark-submit`` finds the cluster."""
        return {
            "HADOOP_CONF_DIR": str(self.directory / "conf"),
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(_HOME),
        }

    @property
    def hdfs_uri(self) -> str:
        """The URI of its file system."""
        written = (self.directory / "conf" / "core-site.xml").read_text(encoding="utf-8")
        return str(next(it for it in re.findall(r"<value>(hdfs://[^<]+)</value>", written)))

    @contextmanager
    def submit(self, command: str, *, log: Path, environment: Mapping[str, str], directory: Path) -> Iterator[Program]:
        """Runs a shell command with ``spark-submit``, which waits for the end of its program. Programs have two executors.

        Args:
            command: the command.
            log: the file for its output.
            environment: its environment variables.
            directory: its working directory.
        """
        settings = {
            # Containers read the jars where they are. Otherwise they are copied to HDFS.
            "spark.yarn.jars": f"local:{_HOME}/jars/*",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.instances": "2",
            "spark.driver.extraJavaOptions": JVM,
            "spark.executor.extraJavaOptions": JVM,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        # The settings of a cluster, so that the command is that of a user.
        defaults = self.directory / "spark" / "spark-defaults.conf"
        defaults.parent.mkdir(exist_ok=True)
        defaults.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        own = {
            **environment,
            **self.client_environment,
            "SPARK_CONF_DIR": str(defaults.parent),
            "PATH": f"{_HOME}/bin:{environment['PATH']}",
        }
        with running_command(["bash", "-c", f"set -e\n{command}"], log, own, directory) as program:
            yield program

    def application_masters(self) -> list[psutil.Process]:
        """The Java processes of the drivers."""
        return _java_processes(_APPLICATION_MASTER)

    def executors(self) -> list[psutil.Process]:
        """The Java processes of the executors."""
        return _java_processes(_EXECUTOR)

    def logs(self) -> str:
        """The errors of all containers."""
        found = sorted(self.directory.rglob("stderr"))
        return "\n".join(f"{it}:\n{it.read_text(errors='replace')[-4_000:]}" for it in found)


def _java_processes(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].endswith("java") and name in " ".join(command):
            found.append(process)
    return found


@contextmanager
def yarn_cluster(directory: Path) -> Iterator[YarnCluster]:
    """Starts a cluster with two node managers, and ends it at the end of the block. Skips the test without its jars.

    Args:
        directory: the directory of its files.
    """
    with _started(directory) as java_home:
        try:
            yield YarnCluster(directory, java_home)
        finally:
            for it in (*_java_processes(_APPLICATION_MASTER), *_java_processes(_EXECUTOR)):
                it.kill()


@contextmanager
def hdfs_cluster(directory: Path) -> Iterator[str]:
    """Starts HDFS without YARN, as :func:`yarn_cluster`. Yields its URI, such as ``hdfs://localhost:8020``."""
    with _started(directory, "hdfs"):
        (uri,) = (it for it in (directory / _LOG).read_text().splitlines() if it.startswith("hdfs://"))
        yield uri


@contextmanager
def _started(directory: Path, *arguments: str) -> Iterator[Path]:
    """Starts the process of a cluster. Yields the home of its Java."""
    java = find_java()
    version = next((_HOME / "jars").glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
    coordinates = (f"org.apache.hadoop:hadoop-client-minicluster:{version}", *_NEEDED)
    try:
        found = cached_jars("mini-yarn", version, lambda to, _: fetch_exactly(to, coordinates, java))
    except StreamGroupsError as e:
        pytest.skip(f"Hadoop's mini cluster cannot be downloaded: {e}")
    jars = [str(found.directory / name) for name in found.jars]
    java_home = _home_of(java)
    log = directory / _LOG
    command = [str(java_home / "bin" / "java"), *_OPENS, "-Xmx512m", "-cp", ":".join([*jars, f"{_HOME}/jars/*"])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(_SOURCE), str(directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, "JAVA_HOME": str(java_home)},
        )
        try:

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text(errors="replace")[-6_000:]
                return "\nready\n" in f"\n{log.read_text(errors='replace')}"

            wait_until(is_ready, "YARN and HDFS run", 240)
            yield java_home
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _home_of(java: Java) -> Path:
    shown = subprocess.run(
        [str(java.executable), "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    (home,) = (line.partition("=")[2].strip() for line in shown.stderr.splitlines() if "java.home" in line)
    return Path(home)
