"""The machine and the software of a measurement, without which figures have no meaning.

Called by ``benchmarks.command`` for the footer of the table.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import confluent_kafka
import psutil
from pyspark.sql import SparkSession

import streamgroups
from streamgroups_kafka.probes.client_probe import probe_reader


def machine(spark: SparkSession, kafka_version: str) -> dict[str, str]:
    """The machine and the versions of a measurement, by name, in the order to print.

    Args:
        spark: the session of the measurement.
        kafka_version: the version of the broker.
    """
    jvm = spark._jvm
    assert jvm is not None
    properties = jvm.java.lang.System
    return {
        "Processor": f"{_processor()}, {os.cpu_count()} cores; Spark uses {spark.sparkContext.defaultParallelism}",
        "Memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "System": f"{_system()}, {platform.machine()}",
        "Python": f"{platform.python_version()}; pyarrow {_version('pyarrow')}, pandas {_version('pandas')}",
        "Java": f"{properties.getProperty('java.version')} ({properties.getProperty('java.vm.name')})",
        "Spark": spark.version,
        "Kafka": f"{kafka_version}, one broker on the same machine",
        "confluent-kafka": f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}",
        "streamgroups": f"{streamgroups.__version__}, {reader()}",
    }


def reader() -> str:
    """The reader of our figures: native or plain."""
    requested = os.environ.get("STREAMGROUPS_READER", "")
    if requested:
        return f"the {requested} reader, selected by STREAMGROUPS_READER"
    found = probe_reader()
    return "the native reader" if found.works else f"the plain reader. {found.reason}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _processor() -> str:
    """The name of the processor. ``platform.processor`` is empty or the architecture on most systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.system()} {platform.release()}"
