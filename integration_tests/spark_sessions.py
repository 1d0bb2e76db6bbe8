"""Spark sessions of the tests, which live for seconds: cheap to start, on two cores that they share with a broker and each other.

Used by ``conftest`` and by ``query``. None of this changes what a query does, only what the JVM spends on getting fast: tests
read some thousand records, and compiling for speed took more processor time than everything else in a session. Source: the
options of the JVM (JEP 165, tiered compilation), Spark's "Configuration".
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

#: Compile once and lightly; collect garbage without threads of its own.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session_builder(name: str) -> SparkSession.Builder:
    """What every session of the tests is made with.

    Args:
        name: of the application.
    """
    # Each session is preceded by another JVM, which puts its command line together.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _JVM)
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.extraJavaOptions", _JVM)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
    )
