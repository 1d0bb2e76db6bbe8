"""A declared processor beside the same program by hand: start to end.

A family of ``benchmarks.command``. Flights with JSON are decoded, selected and counted in windows, which a Kafka sink writes
exactly once, with dead letters. Both programs run in this session with the trigger availableNow, and their output is
compared. Source: SEMANTICS P1.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import Cell, Missing, Row, S, compare, median_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import STREAMGROUPS
from benchmarks.workload import create
from integration_tests.declared_flights import connections, flights, write
from streamgroups_testkit.reading import read_committed

BY_HAND = "the same program by hand"
_SCHEMA = "carrier string, dep bigint, delay int"
_SELECTED = "record.delay > 15"
_AGGREGATE = {"n": "count(*)"}


def processors(bench: Bench) -> Iterator[Row]:
    """Both programs over the same flights."""
    found = flights(min(bench.scale.others, 200_000), seed=1)
    topic = f"bench.flights.{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic, 4)
    write(bench.bootstrap, topic, iter(found.values))
    os.environ["STREAMGROUPS_CONFIG"] = str(connections(bench.directory, bench.bootstrap, "unused"))
    os.environ["STREAMGROUPS_PROCESSORS"] = str(bench.directory / "processors")
    sg.register(bench.spark)
    expected = len(found.windows)
    contestants: dict[str, Callable[[], float]] = {
        STREAMGROUPS: lambda: _timed(bench, expected, lambda to: _declared(bench, topic, to)),
        BY_HAND: lambda: _timed(bench, expected, lambda to: _by_hand(bench, topic, to)),
    }
    what = "declared processor, start to end"
    rounds = bench.race(what, contestants, bench.scale.rounds)
    cells: dict[str, Cell] = {name: it if isinstance(it, Missing) else median_of(it) for name, it in rounds.items()}
    yield from compare(what, S, cells, own=STREAMGROUPS)


def _timed(bench: Bench, expected: int, writer_to: Callable[[str], DataStreamWriter]) -> float:
    output = f"bench.delays.{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, output, 4)
    create(bench.bootstrap, f"{output}.dlq", 1)
    began_s = time.monotonic()
    query = writer_to(output).start()
    query.awaitTermination()
    took_s = time.monotonic() - began_s
    if (count := len(read_committed(bench.bootstrap, output))) != expected:
        raise WrongCount(f"{count} windows instead of {expected}")
    return took_s


def _declared(bench: Bench, topic: str, output: str) -> DataStreamWriter:
    window = {"on": "dep", "by": ["carrier"], "window": {"tumbling": "1 hour"}, "watermark_delay": "30s"}
    document: dict[str, Any] = {
        "name": f"p-{uuid.uuid4().hex[:8]}",
        "source": {"connection": "prod", "subscribe": topic, "startingOffsets": "earliest"},
        "steps": [
            {"decode": {"format": {"json": _SCHEMA}}},
            {"sql": f"SELECT *, record.carrier, timestamp_millis(record.dep) AS dep FROM input WHERE {_SELECTED}"},
            {"windows": {**window, "aggregate": _AGGREGATE, "prepartitioned": True}},
            {"sql": "SELECT carrier AS key, to_json(struct(window_start, n)) AS value FROM input"},
        ],
        "sink": {"connection": "prod", "topic": output},
        "dead_letters": {"connection": "prod", "topic": f"{output}.dlq"},
        "trigger": {"availableNow": True},
    }
    _, writer = sg.processor(document, bench.spark)
    assert writer is not None
    return writer


def _by_hand(bench: Bench, topic: str, output: str) -> DataStreamWriter:
    directory = Path(bench.directory) / uuid.uuid4().hex
    stream = (
        bench.spark.readStream.format("streamgroups")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("group.id", f"g-{uuid.uuid4().hex[:8]}")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    decoded = sg.decode(stream, sg.schemas.Json(_SCHEMA))
    late = decoded.where(f"dead_letter IS NOT NULL OR {_SELECTED}")
    counted = sg.windows(
        late.withColumns({"carrier": F.col("record.carrier"), "dep": F.timestamp_millis("record.dep")}),
        on="dep",
        by=["carrier"],
        window=sg.shapes.tumbling("1 hour"),
        watermark_delay="30s",
        aggregate=_AGGREGATE,
        prepartitioned=True,
    )
    value = F.to_json(F.struct("window_start", "n"))
    rows = counted.select(
        F.col("carrier").alias("key"), F.when(F.col("dead_letter").isNull(), value).alias("value"), "dead_letter"
    )
    sink = sg.KafkaSink(bootstrap_servers=bench.bootstrap, topic=output)
    letters = sg.KafkaSink(bootstrap_servers=bench.bootstrap, topic=f"{output}.dlq")
    writer = sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(directory))
    return writer.trigger(availableNow=True)
