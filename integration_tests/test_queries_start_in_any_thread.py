"""Reads and writes can start in a thread other than that of their session, as ``sg.supervise`` needs for several queries,
and the classes of PySpark stay as they are.

Spark searches a sink in the active session of the calling thread. Source: Spark's ``DataSource.lookupDataSource``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption, QueryGivenUp
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import read_committed

RECORDS = 20
#: The attributes of PySpark's classes when this module is imported, which is before any test registers a session.
_CLASSES = (
    *(DataFrame, DataFrameReader, DataFrameWriter, DataSource, DataStreamReader, DataStreamWriter),
    *(SparkSession, StreamingQuery, StreamingQueryManager),
)
_BEFORE = {cls: dict(vars(cls)) for cls in _CLASSES}
#: PySpark itself sets these.
_VARIABLES = {"_activeSession", "_instantiatedSession", "_sc"}


def changed() -> dict[str, set[str]]:
    """The attributes of PySpark's classes that have changed since the import."""
    found = {}
    for cls, before in _BEFORE.items():
        now: dict[str, Any] = dict(vars(cls))
        names = {name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}
        found[cls.__name__] = names - _VARIABLES
    return {name: names for name, names in found.items() if names}


def in_thread(work: Callable[[], Any]) -> Any:
    """Runs a function in a new thread, and checks that the thread has no active session before and after it."""
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(SparkSession.getActiveSession).result() is None
        try:
            return thread.submit(work).result()
        finally:
            assert thread.submit(SparkSession.getActiveSession).result() is None


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str) -> DataFrame:
    """A stream of `RECORDS` records, which another thread has read."""
    topic = new_topic(1)
    produce(bootstrap, topic, RECORDS, partitions=1)
    reader = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic))
    return in_thread(lambda: reader.load().select("key", "value"))  # type: ignore[no-any-return]


@LONG
def test_sparks_own_writers_need_the_active_session(
    spark: SparkSession, stream: DataFrame, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    output = new_topic(1)
    cluster = {"kafka.bootstrap.servers": bootstrap, "topic": output}
    checkpoint = str(tmp_path / "checkpoint")

    def start() -> StreamingQuery:
        writer = stream.writeStream.format("streamgroups").options(**cluster, checkpointLocation=checkpoint)
        return writer.trigger(availableNow=True).start()

    def save() -> None:
        rows = spark.range(RECORDS).selectExpr("cast(id as string) value").coalesce(1)
        rows.write.format("streamgroups").options(**cluster).mode("append").save()

    for work in (start, save):
        with pytest.raises(Py4JJavaError, match=r"DATA_SOURCE_NOT_FOUND.*: streamgroups"):
            in_thread(work)
    with pytest.raises(
        QueryGivenUp, match=r"format 'streamgroups'.*in the block: with sg\.supervision\.session_active\(spark\)"
    ):
        in_thread(lambda: sg.supervise(start))

    def with_session() -> None:
        with sg.supervision.session_active(spark):
            assert SparkSession.getActiveSession() is spark
            save()
            start().awaitTermination()

    in_thread(with_session)
    assert len(read_committed(bootstrap, output)) == 2 * RECORDS
    assert changed() == {}


@LONG
def test_supervise_starts_a_query_in_another_thread(
    spark: SparkSession, stream: DataFrame, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    output = new_topic(1)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": output, "delivery": "at-least-once"}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")

    def start() -> StreamingQuery:
        with sg.supervision.session_active(spark):
            return stream.writeStream.format("streamgroups").options(**options).trigger(availableNow=True).start()

    policy = sg.supervision.RestartPolicy(first_wait_ms=1, max_failures=1)
    assert in_thread(lambda: sg.supervise(start, policy=policy)).restarts == 0
    assert len(read_committed(bootstrap, output)) == RECORDS


def test_writers_of_this_library_activate_the_session(
    spark: SparkSession, stream: DataFrame, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    output = new_topic(1)
    active, sink = SparkSession.getActiveSession(), sg.KafkaSink(bootstrap_servers=bootstrap, topic=output)

    def write() -> None:
        writer = sg.exactly_once(stream, sink=sink, checkpoint=str(tmp_path / "once"))
        writer = (
            writer.trigger(availableNow=True).queryName("delays").outputMode("append").option("includeHeaders", "true")
        )
        query = writer.options(includeHeaders="false").start()
        assert query.name == "delays"
        query.awaitTermination()
        sg.write(spark.range(RECORDS).selectExpr("cast(id as string) value"), sink=sink)

    in_thread(write)
    assert len(read_committed(bootstrap, output)) == 2 * RECORDS
    assert SparkSession.getActiveSession() is active
    assert changed() == {}


def test_a_writer_keeps_its_sink_and_its_checkpoint(
    stream: DataFrame, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    sink, checkpoint = sg.KafkaSink(bootstrap_servers=bootstrap, topic=new_topic(1)), str(tmp_path / "once")
    writer: Any = sg.exactly_once(stream, sink=sink, checkpoint=checkpoint)
    others: tuple[Callable[[], object], ...] = (
        lambda: writer.format("console"),
        lambda: writer.start(format="console"),
        lambda: writer.foreach(print),
        lambda: writer.foreachBatch(print),
        lambda: writer.toTable("delays"),
    )
    for other in others:
        with pytest.raises(InvalidOption, match=r"has a sink already.*df\.writeStream"):
            other()
    for other in (
        lambda: writer.option("checkpointlocation", "/elsewhere"),
        lambda: writer.start(checkpointLocation="/elsewhere"),
    ):
        with pytest.raises(InvalidOption, match=r"checkpoint of this writer is '.*once', but.*'/elsewhere'"):
            other()
    assert writer.option("checkpointLocation", checkpoint) is writer
