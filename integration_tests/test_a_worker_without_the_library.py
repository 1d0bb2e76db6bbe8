"""A Python process of Spark without the library fails with an error that names its interpreter and PYSPARK_PYTHON, and
``doctor`` reports it before.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.choosing_python import choosing_python
from integration_tests.tiers import LONG
from streamgroups_spark.ops.executors import driver_versions, probe_executors
from streamgroups_testkit.producing import produce


@pytest.fixture
def without_us(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """``without_us("pyspark.worker")``: these processes then have a Python without the library. Returns its path."""

    def choose(kind: str) -> Path:
        chosen, bare = choosing_python(tmp_path, kind)
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(chosen))
        sg.register(spark)
        return bare

    yield choose
    monkeypatch.undo()
    sg.register(spark)


def read(spark: SparkSession, bootstrap: str, topic: str) -> None:
    records = spark.read.format("streamgroups").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    assert records.load().count() == 8


def stream(spark: SparkSession, bootstrap: str, topic: str, group: str, checkpoint: Path) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "group.id": group}
    records = spark.readStream.format("streamgroups").options(**options, startingOffsets="earliest").load()
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "at-least-once"}
    writer = records.select("key", "value").writeStream.format("streamgroups").options(**sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(once=True).start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(it, marks=pytest.mark.long) for it in ("create_data_source", "plan_data_source_read")),
        "python_streaming_source_runner",
        "pyspark.worker",
    ],
)
def test_each_process_names_its_interpreter(
    kind: str,
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    without_us: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 8, partitions=1)
    python = without_us(kind)

    def run() -> None:
        if kind == "python_streaming_source_runner":
            stream(spark, bootstrap, topic, group, tmp_path / "checkpoint")
        else:
            read(spark, bootstrap, topic)

    with pytest.raises(Exception, match="cannot import streamgroups, which streamgroups") as raised:
        run()
    assert f"The interpreter is {python}, Python {sys.version.split()[0]}, on host " in str(raised.value)
    assert "set PYSPARK_PYTHON" in str(raised.value)


@LONG
def test_doctor_checks_the_python_of_executors(
    spark: SparkSession, bootstrap: str, without_us: Callable[[str], Path]
) -> None:
    (sound,), expected = probe_executors(spark, [bootstrap])
    assert (expected, sound.python, sound.missing, sound.unreachable) == (1, platform.python_version(), "", {})
    assert sound.versions == driver_versions()
    without_us("pyspark.worker")
    found, _ = probe_executors(spark, [bootstrap, "127.0.0.1:1"])
    (bare,) = (it for it in found if it.missing)
    assert (bare.interpreter, bare.versions["streamgroups"]) == ("./python", None), "relative to the executor"
    assert "No module named 'streamgroups" in bare.missing
    assert bare.unreachable == {"127.0.0.1:1": "connection refused"}
