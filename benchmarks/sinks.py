"""Exactly-once writes from Kafka to Kafka, PostgreSQL and Delta, compared with the common at-least-once writes.
Streaming, in one micro-batch.

A family of ``benchmarks.command``. The peers are Spark's own sink for Kafka, Spark's ``jdbc`` format in
``foreachBatch`` for PostgreSQL, and ``write_deltalake`` in ``foreachBatch`` for Delta. Each query reads with its own
source. The figure is the speed of the trigger, without the start and the stop of the query. A reader of committed
records counts the output. The limit by key is Spark's copy with a shuffle: in a transaction only one task may write to a
partition.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Protocol

import psycopg
from deltalake import DeltaTable, write_deltalake
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from benchmarks.bench import TASKS, Bench
from benchmarks.figures import RECORDS_PER_S, Row
from benchmarks.rounds import WrongCount
from benchmarks.sources import SPARK_20, STREAMGROUPS, stream_frame, stream_rows, until_end
from benchmarks.workload import TopicSpec, create
from streamgroups_testkit.postgres import PostgresServer

_PARTITIONS = 8
#: Spark's source and sink with a shuffle by key between them.
_SHUFFLED = "Spark kafka, with a shuffle"
#: The output columns of each measurement. A key also determines the output partition.
_SHAPES: Mapping[str, list[str]] = {
    "Kafka to Kafka, without keys": ["value"],
    "Kafka to Kafka, by key": ["key", "value"],
}


def sinks(bench: Bench) -> Iterator[Row]:
    """Copies of a topic."""
    spec = TopicSpec(bench.scale.query)
    topic = bench.topic(spec)

    def speed(name: str, columns: list[str]) -> float:
        output = f"out-{uuid.uuid4().hex[:8]}"
        create(bench.bootstrap, output, _PARTITIONS)
        writer = _writer(bench, name, topic, columns, output)
        progress = until_end(writer.trigger(availableNow=True).start())
        read = [p for p in progress if p.numInputRows]
        arrived = _count(bench, output)
        if arrived != spec.records:
            raise WrongCount(f"{arrived} of {spec.records} records arrived")
        return spec.records * 1000 / float(sum(p.durationMs["triggerExecution"] for p in read))

    for what, columns in _SHAPES.items():
        names = (STREAMGROUPS, SPARK_20, *([_SHUFFLED] if "key" in columns else []))
        runs = {name: partial(speed, name, columns) for name in names}
        title = f"{what}, {spec.records:,} of 100 B"
        yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds, limits=(_SHUFFLED,))


def ledger_sinks(bench: Bench) -> Iterator[Row]:
    """Copies of a topic to a table."""
    spec = TopicSpec(bench.scale.others)
    topic = bench.topic(spec)
    with PostgresServer() as server, server.database() as conninfo:
        targets: Mapping[str, _Target] = {"PostgreSQL": _Postgres(bench, conninfo), "Delta": _Delta(bench)}
        for what, target in targets.items():

            def speed(name: str, target: _Target = target) -> float:
                table = f"t{uuid.uuid4().hex[:8]}"
                frame = stream_frame(bench, name, topic).selectExpr(
                    "cast(value AS string) AS value", "partition", "offset", "timestamp"
                )
                checkpoint = str(bench.directory / uuid.uuid4().hex)
                writer = (
                    target.own(frame, table, checkpoint)
                    if name == STREAMGROUPS
                    else target.usual(frame, table, checkpoint)
                )
                read = [p for p in until_end(writer.trigger(availableNow=True).start()) if p.numInputRows]
                arrived = target.count(table)
                if arrived != spec.records:
                    raise WrongCount(f"{arrived} of {spec.records} records arrived")
                return spec.records * 1000 / float(sum(p.durationMs["triggerExecution"] for p in read))

            runs = {name: partial(speed, name) for name in (STREAMGROUPS, SPARK_20)}
            title = f"Kafka to {what}, {spec.records:,} of 100 B"
            yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds)


class _Target(Protocol):
    def own(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter: ...
    def usual(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter: ...
    def count(self, table: str) -> int: ...


class _Postgres:
    def __init__(self, bench: Bench, conninfo: str) -> None:
        self._bench, self._conninfo = bench, conninfo
        given = conninfo_to_dict(conninfo)
        self._jdbc = {
            "driver": "org.postgresql.Driver",
            "url": f"jdbc:postgresql://{given['host']}:{given.get('port', 5432)}/{given['dbname']}",
            "user": str(given.get("user", "postgres")),
            "password": str(given.get("password", "")),
            # The documentation of the driver recommends this for inserts.
            "reWriteBatchedInserts": "true",
            "batchsize": "10000",
        }

    def own(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        return sg.exactly_once(frame, sink=sg.PostgresSink(conninfo=self._conninfo, table=table), checkpoint=checkpoint)

    def usual(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        def write(rows: DataFrame, _batch_id: int) -> None:
            rows.write.format("jdbc").options(**self._jdbc, dbtable=table).mode("append").save()

        return frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)

    def count(self, table: str) -> int:
        with psycopg.connect(self._conninfo) as db:
            found = db.execute(SQL("SELECT count(*) FROM {}").format(Identifier(table))).fetchone()
            db.execute(SQL("DROP TABLE {}").format(Identifier(table)))
            return int(found[0]) if found else 0


class _Delta:
    def __init__(self, bench: Bench) -> None:
        self._directory = bench.directory

    def own(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        return sg.exactly_once(frame, sink=sg.DeltaSink(uri=str(self._directory / table)), checkpoint=checkpoint)

    def usual(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        def write(rows: DataFrame, _batch_id: int) -> None:
            write_deltalake(str(self._directory / table), rows.toArrow(), mode="append")

        return frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)

    def count(self, table: str) -> int:
        return int(DeltaTable(str(self._directory / table)).to_pyarrow_dataset().count_rows())


def _writer(bench: Bench, name: str, topic: str, columns: list[str], output: str) -> DataStreamWriter:
    checkpoint = str(bench.directory / uuid.uuid4().hex)
    frame = stream_frame(bench, SPARK_20 if name == _SHUFFLED else name, topic).select(*columns)
    if name == _SHUFFLED:
        frame = frame.repartition(TASKS, "key")
    to = {"kafka.bootstrap.servers": bench.bootstrap, "topic": output}
    if name == STREAMGROUPS:
        return sg.exactly_once(
            frame, sink=sg.KafkaSink(bootstrap_servers=bench.bootstrap, topic=output), checkpoint=checkpoint
        )
    return frame.writeStream.format("kafka").options(**to).option("checkpointLocation", checkpoint)


def _count(bench: Bench, topic: str) -> int:
    """Counts with retries, because the markers of the last transaction can be written after the response to its
    commit.
    """
    options = {
        "kafka.bootstrap.servers": bench.bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
    }
    deadline_s = time.monotonic() + 10
    while True:
        found = bench.spark.read.format("streamgroups").options(**options).load().count()
        if found or time.monotonic() > deadline_s:
            return found
