"""From Kafka to Kafka: our sink, exactly once, beside Spark's own, which writes at least once. Streaming, in one micro-batch.

A family of ``command``. Each reads with its own source. The figure is the speed of the trigger, without starting and stopping the query. What
arrived is counted by a reader of committed records.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial

from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Row
from benchmarks.rounds import WrongCount
from benchmarks.sources import OURS, SPARK_20, stream_frame, stream_rows, until_end
from benchmarks.workload import TopicSpec, create

_PARTITIONS = 8
#: What is written of each record, and what that means for the way there.
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
        runs = {name: partial(speed, name, columns) for name in (OURS, SPARK_20)}
        title = f"{what}, {spec.records:,} of 100 B"
        yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds)


def _writer(bench: Bench, name: str, topic: str, columns: list[str], output: str) -> DataStreamWriter:
    checkpoint = str(bench.directory / uuid.uuid4().hex)
    frame = stream_frame(bench, name, topic).select(*columns)
    to = {"kafka.bootstrap.servers": bench.bootstrap, "topic": output}
    if name == OURS:
        return sg.exactly_once(frame, sink=sg.KafkaSink(to), checkpoint=checkpoint)
    return frame.writeStream.format("kafka").options(**to).option("checkpointLocation", checkpoint)


def _count(bench: Bench, topic: str) -> int:
    """The last transaction's markers may still be on their way when its commit is answered."""
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
