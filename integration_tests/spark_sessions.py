"""Spark sessions of the tests, which live for seconds: cheap to start, on two cores that they share with a broker and each other.

Used by ``conftest`` and ``query``. None of this changes what a query does, only what the JVM spends on getting
started and on getting fast: tests read some thousand records, and loading classes and compiling for speed took more processor time than
everything else in a session. Source: the options of the JVM (JEP 165, tiered compilation; JEP 350), Spark's "Configuration".
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from streamgroups_broker._cache import made_once

#: Compile once and lightly; collect garbage without threads of its own.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The state store that windows with a state of ours need.
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: Making the archive of classes takes half a minute on two idle cores.
_RETRY_TIMEOUT_S = 600


def session_builder(name: str) -> SparkSession.Builder:
    """What every session of the tests is made with.

    Args:
        name: of the application.
    """
    archive = class_archive()
    return builder(name, JVM if archive is None else f"{JVM} -XX:SharedArchiveFile={archive} -Xlog:cds=off")


def builder(name: str, jvm: str) -> SparkSession.Builder:
    """The same with options of the JVM of one's own."""
    # Each session is preceded by another JVM, which puts its command line together.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", JVM)
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.extraJavaOptions", jvm)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )


@cache
def class_archive() -> Path | None:
    """The archive of Spark's classes, in this virtual environment; made if it is not there yet; ``None`` where none can be made."""
    java = shutil.which(f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java")
    if java is None:
        return None
    of_what = hashlib.sha256(f"{os.path.realpath(java)} {pyspark.__version__}".encode()).hexdigest()[:8]
    archive = Path(sys.prefix) / f"spark-classes-{of_what}.jsa"
    # One that could not be made for lack of time is made the next time.
    with suppress(subprocess.SubprocessError):
        return made_once(archive, archive.with_suffix(".lock"), _make)
    return None


def _make(archive: Path) -> None:
    command = [sys.executable, "-m", "integration_tests.spark_classes", str(archive)]
    subprocess.run(command, capture_output=True, timeout=_RETRY_TIMEOUT_S, check=True)
