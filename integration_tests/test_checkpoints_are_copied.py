"""C1, C5: plain Spark continues from a copy of a checkpoint at an earlier batch, as an undisturbed run from there on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from integration_tests.command_line import streamgroups
from integration_tests.spark_kafka import spark_kafka_jars
from integration_tests.tiers import LONG
from streamgroups.checkpoints.spark_copy import replaced_files
from streamgroups.spark_features import release_of
from streamgroups_testkit.producing import produce
from unit_tests.requirements import without

_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: The settings of the state stores.
STORES = {
    "hdfs": {},
    "rocksdb": {f"{_STORE}.providerClass": _ROCKSDB},
    "changelog": {
        f"{_STORE}.providerClass": _ROCKSDB,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "unique ids": {
        f"{_STORE}.providerClass": _ROCKSDB,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.checkpointFormatVersion": "2",
    },
}
_PER_BATCH = 8
#: The connector of Spark 4.1 fails after it has run a planned batch again (SPARK-57438).
_RUNS_AGAIN = release_of(pyspark.__version__) != (4, 1)
_START_MS = 1_356_998_400_000  # 2013-01-01
_MINUTE_MS = 60_000
_FILES_S = 1_700_000_000

#: The rows of each batch: the start of a window in minutes, and its count.
Rows = dict[int, list[tuple[int, int]]]


def _run(source: DataFrame, checkpoint: Path) -> Rows:
    """Counts records in windows of 10 minutes until all records are read."""
    rows: Rows = {}

    def keep(batch: DataFrame, number: int) -> None:
        found = [(int(row["minute"]), int(row["count"])) for row in batch.collect()]
        if found:
            rows[number] = sorted(found)

    window = f.window("t", "10 minutes")
    minute = ((f.unix_millis("window.start") - _START_MS) / _MINUTE_MS).alias("minute")
    counts = source.withWatermark("t", "5 minutes").groupBy(window).count().select(minute, "count")
    writer = counts.writeStream.outputMode("update").foreachBatch(keep)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return rows


def _copy(old: Path, new: Path, *more: str) -> str:
    copied = streamgroups("checkpoint", "copy", str(old), str(new), "--allow-running", "--execute", *more)
    assert copied.returncode == 0, copied.stderr
    return copied.stderr


def _verify(checkpoint: Path) -> None:
    verified = streamgroups("checkpoint", "verify", str(checkpoint))
    assert verified.returncode == 0, verified.stdout


def _last(checkpoint: Path) -> int:
    return max(int(it.name) for it in (checkpoint / "commits").iterdir() if it.name.isdigit())


def _content(directory: Path) -> dict[Path, bytes]:
    return {it: it.read_bytes() for it in directory.rglob("*") if it.is_file()}


def _with(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    for name, value in {"spark.sql.shuffle.partitions": "2", f"{_STORE}.minDeltasForSnapshot": "2", **settings}.items():
        session.conf.set(name, value)
    return session


def _files(spark: SparkSession, directory: Path) -> DataFrame:
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(directory))
    return lines.select(f.timestamp_millis(f.col("value").cast("long") * _MINUTE_MS + _START_MS).alias("t"))


def _write(directory: Path, numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    for n in numbers:
        text = "\n".join(str(n * 4 + k) for k in range(4))
        (directory / f".{n}").write_text(text)
        # Spark reads files in the order of their times.
        os.utime(directory / f".{n}", (_FILES_S + n, _FILES_S + n))
        (directory / f".{n}").rename(directory / f"{n}.txt")


@LONG
@pytest.mark.parametrize("store", STORES)
def test_C5_a_query_of_files_continues_from_a_copy(spark: SparkSession, store: str, tmp_path: Path) -> None:
    session = _with(spark, STORES[store])
    _write(tmp_path / "input", range(6))
    before = _run(_files(session, tmp_path / "input"), tmp_path / "old")
    _verify(tmp_path / "old")
    chosen = _last(tmp_path / "old") - 3
    content = _content(tmp_path / "old")
    _copy(tmp_path / "old", tmp_path / "new", "--batch", str(chosen))
    assert _content(tmp_path / "old") == content
    _verify(tmp_path / "new")

    # The copy as it is before its last two files are written: Spark does not start it. Earlier versions than 4.2 create the file
    # 'metadata', and then need the offsets of the batch before.
    half = shutil.copytree(tmp_path / "new", tmp_path / "half")
    (half / "offsets" / str(chosen - 1)).unlink()
    with pytest.raises(StreamingQueryException, match=f"batch {chosen - 1} doesn't exist"):
        _run(_files(session, tmp_path / "input"), half)
    (half / "metadata").unlink()
    with pytest.raises(PySparkException):
        _run(_files(session, tmp_path / "input"), half)

    # A copy of batch 0 before its last file, with the file 'metadata' that earlier versions create.
    _copy(tmp_path / "old", tmp_path / "first", "--batch", "0")
    (tmp_path / "first" / "offsets" / "0").write_text(replaced_files(0)["offsets/0"])
    with pytest.raises(StreamingQueryException, match="This copy is incomplete"):
        _run(_files(session, tmp_path / "input"), tmp_path / "first")

    _write(tmp_path / "input", range(6, 9))
    undisturbed = before | _run(_files(session, tmp_path / "input"), tmp_path / "old")
    continued = {n: rows for n, rows in before.items() if n <= chosen} | _run(
        _files(session, tmp_path / "input"), tmp_path / "new"
    )
    assert max(continued) > chosen
    assert _final(continued) == _final(undisturbed) == {0: 10, 10: 10, 20: 10, 30: 6}
    _verify(tmp_path / "new")


def _final(rows: Rows) -> dict[int, int]:
    """The last count of each window."""
    return dict(row for number in sorted(rows) for row in rows[number])


@pytest.mark.parametrize("store", [pytest.param(it, marks=[] if it == "changelog" else LONG) for it in STORES])
def test_C1_C5_a_query_of_kafka_continues_from_a_copy(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], store: str, tmp_path: Path
) -> None:
    if not spark_kafka_jars().paths:
        without("parity", spark_kafka_jars().why_not)
    session = _with(spark, STORES[store])
    topic = new_topic(2, retention_ms="-1")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def records() -> DataFrame:
        reader = session.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", _PER_BATCH)
        return reader.load().select(f.col("timestamp").alias("t"))

    def write(first: int, count: int) -> None:
        def time_ms(n: int) -> int:
            return _START_MS + n * _MINUTE_MS

        produce(bootstrap, topic, count, partitions=2, first=first, time_ms_of=time_ms)

    write(0, 5 * _PER_BATCH)
    before = _run(records(), tmp_path / "old")
    # The files of a query that was killed after the output of its last batch and before the commit.
    last = _last(tmp_path / "old")
    for name in (str(last), f".{last}.crc") if _RUNS_AGAIN else ():
        (tmp_path / "old" / "commits" / name).unlink()
    chosen = last - 3
    shown: dict[str, Any] = json.loads(_shown(tmp_path / "old", "--batch", str(chosen), "-o", "json"))
    assert [it["status"] for it in shown["batches"]] == ["committed"]
    read = json.loads(_shown(tmp_path / "old", "--batch", str(chosen), "--as-options")) if shown["partitions"] else {}
    assert sum(it["offsets"] for it in shown["partitions"]) in (0, _PER_BATCH)
    if read:
        of_batch = session.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).options(**read).load()
        assert of_batch.count() == _PER_BATCH
    messages = _copy(tmp_path / "old", tmp_path / "new", "--batch", str(chosen))
    assert (f"batch {last} is planned and not committed" in messages) is _RUNS_AGAIN

    write(5 * _PER_BATCH, 2 * _PER_BATCH)
    undisturbed = before | _run(records(), tmp_path / "old")
    continued = _run(records(), tmp_path / "new")
    # The undisturbed query has no-data batches where it was stopped, so the numbers of its batches are higher.
    assert list(continued.values()) == [rows for n, rows in undisturbed.items() if n > chosen]
    assert len(continued) > 3
    _verify(tmp_path / "old")
    _verify(tmp_path / "new")


def _shown(checkpoint: Path, *more: str) -> str:
    shown = streamgroups("checkpoint", "show", str(checkpoint), *more)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


@LONG
def test_C5_a_copy_is_repartitioned_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.2 changes the number of shuffle partitions in place. So it changes the copy, and the old checkpoint stays."""
    session = _with(spark, STORES["unique ids"])
    _write(tmp_path / "input", range(6))
    before = _run(_files(session, tmp_path / "input"), tmp_path / "old")
    content = _content(tmp_path / "old")
    _copy(tmp_path / "old", tmp_path / "new")
    session._streamingCheckpointManager.repartition(str(tmp_path / "new"), 5)
    _verify(tmp_path / "new")
    shown = json.loads(_shown(tmp_path / "new", "-o", "json"))
    assert [store["partitions"] for it in shown["operators"] for store in it["stores"]] == [5]
    assert _content(tmp_path / "old") == content

    _write(tmp_path / "input", range(6, 9))
    undisturbed = before | _run(_files(session, tmp_path / "input"), tmp_path / "old")
    continued = before | _run(_files(session, tmp_path / "input"), tmp_path / "new")
    assert _final(continued) == _final(undisturbed) == {0: 10, 10: 10, 20: 10, 30: 6}
    _verify(tmp_path / "new")
