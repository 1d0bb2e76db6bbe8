"""Spark sessions of the tests, which run for seconds: cheap to start, on two cores shared with a broker and other
sessions.

Called by fixtures and by ``query_program``. These settings do not change results. They reduce the work of the JVM for class
loading and compilation, which otherwise exceeds the processor time of the tests. Source: the options of the JVM (JEP
165, tiered compilation; JEP 350), Spark's "Configuration".
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from streamgroups.private_directories import make_private
from streamgroups_broker._cache import cache_root, made_once

#: Compile once and lightly; collect garbage without separate threads.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The state store that stateful windows of this library need.
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: The creation of the class archive takes half a minute on two idle cores.
_RETRY_TIMEOUT_S = 600


@contextmanager
def changed_settings(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Yields a function that sets a setting of a session for the duration of the block."""
    before: dict[str, str] = {}

    def set_to(name: str, value: str) -> None:
        before.setdefault(name, str(spark.conf.get(name)))
        spark.conf.set(name, value)

    try:
        yield set_to
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def session_builder(name: str) -> SparkSession.Builder:
    """The builder of every session of the tests.

    Args:
        name: the name of the application.
    """
    return builder(name, jvm_options())


def jvm_options() -> str:
    """Returns the options of a JVM of the tests, with the class archive if there is one."""
    archive = class_archive()
    return JVM if archive is None else f"{JVM} -XX:SharedArchiveFile={archive} -Xlog:cds=off"


def builder(name: str, jvm: str) -> SparkSession.Builder:
    """The same with additional options of the JVM."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(shared_spark_home()))
    # Another JVM precedes each session and builds its command line.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", JVM)
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.extraJavaOptions", jvm)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # An idle query polls its source 100 times a second by default.
        .config("spark.sql.streaming.pollingDelay", "50ms")
    )


def spark_home(directory: Path) -> Path:
    """Creates a Spark home with the Spark of PySpark, for Python processes that start faster.

    Spark puts ``python/lib/pyspark.zip`` of its home before all other packages. Each Python process of Spark would compile
    PySpark from this file, which takes a second. Without the file, the process imports the installed package.

    Args:
        directory: the directory of the home, which Spark's own workers write to.
    """
    installed = Path(pyspark.__file__).parent
    make_private(directory)
    for part in ("bin", "jars"):
        with suppress(FileExistsError):
            (directory / part).symlink_to(installed / part)
    return directory


@cache
def shared_spark_home() -> Path:
    """Returns the Spark home of all sessions of the tests."""
    digest = hashlib.sha256(pyspark.__file__.encode()).hexdigest()[:8]
    home = cache_root() / f"spark-home-{pyspark.__version__}-{digest}"
    try:
        return spark_home(home)
    except OSError:
        # The cache directory is read-only.
        return Path(pyspark.__file__).parent


@cache
def class_archive() -> Path | None:
    """The archive of the classes of this PySpark and this Java, created on the first call in the cache directory of the
    embedded broker; ``None`` if the creation fails.
    """
    java = shutil.which(f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java")
    if java is None:
        return None
    digest = hashlib.sha256(f"{os.path.realpath(java)} {shared_spark_home()}".encode()).hexdigest()[:8]
    archive = cache_root() / f"spark-classes-{digest}.jsa"
    with suppress(OSError):
        make_private(archive.parent)
    # A later call retries a creation that timed out.
    with suppress(subprocess.SubprocessError):
        return made_once(archive, archive.with_suffix(".lock"), _make)
    return None


def _make(archive: Path) -> None:
    command = [sys.executable, "-m", "streamgroups_testkit.spark_classes", str(archive)]
    subprocess.run(command, capture_output=True, timeout=_RETRY_TIMEOUT_S, check=True)
