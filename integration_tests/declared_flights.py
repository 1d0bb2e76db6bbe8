"""The declared processor of the documents: flights with JSON, windows that upsert into PostgreSQL, and dead letters.

Used by ``test_processors`` and by ``benchmarks.processors``. The expected rows are computed without Spark.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamgroups_testkit.producing import ordered_producer

HOUR_S = 3_600
_START_S = 1_357_000_000 - 1_357_000_000 % HOUR_S
_CARRIERS = ("AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN")
_BAD = (b"{", b'{"carrier": "AA", "delay": "late"}', b"\xff\xfe", b"")
_PARTITIONS = 4
_CHUNK = 50_000


def enrich(df: DataFrame) -> DataFrame:
    """The function of the processor: names of carriers in upper case."""
    return df.withColumn("carrier", F.upper("carrier"))


@dataclass(frozen=True)
class Flights:
    """The records of a topic.

    Args:
        values: partition, key and value of each record, in order.
        windows: the number of late flights by hour and carrier, of the windows that close.
        bad: the number of records that are no flights.
    """

    values: tuple[tuple[int, bytes, bytes], ...]
    windows: Mapping[tuple[int, str], int]
    bad: int


def flights(count: int, seed: int) -> Flights:
    """Returns flights in the order of their departures, a hundredth of them malformed."""
    by = random.Random(seed)
    values, windows, bad = [], Counter[tuple[int, str]](), 0
    for number in range(count):
        carrier = by.choice(_CARRIERS)
        partition = _CARRIERS.index(carrier) % _PARTITIONS
        if by.random() < 0.01:
            values.append((partition, carrier.encode(), by.choice(_BAD)))
            bad += 1
            continue
        dep_s = _START_S + number * 36
        delay = by.randrange(60)
        values.append((partition, carrier.encode(), _flight(carrier.lower(), dep_s, delay)))
        if delay > 15:
            windows[dep_s - dep_s % HOUR_S, carrier] += 1
    # One later flight of each partition closes its windows.
    end_s = _START_S + count * 36 + 100 * HOUR_S
    values += [(n, carrier.encode(), _flight("zz", end_s, 99)) for n, carrier in enumerate(_CARRIERS[:_PARTITIONS])]
    return Flights(tuple(values), windows, bad)


def _flight(carrier: str, dep_s: int, delay: int) -> bytes:
    return json.dumps({"carrier": carrier, "dep": dep_s * 1_000, "delay": delay}).encode()


def write(bootstrap: str, topic: str, values: Iterator[tuple[int, bytes, bytes]]) -> None:
    """Writes records to their partitions, any number of them."""
    producer = ordered_producer(bootstrap)
    for count, (partition, key, value) in enumerate(values, 1):
        producer.produce(topic, value, key, partition)
        # The queue of the producer has a limit of 100,000 records.
        if not count % _CHUNK:
            producer.flush(60)
    assert producer.flush(60) == 0


def connections(directory: Path, bootstrap: str, conninfo: str) -> Path:
    """Writes the file of connections."""
    path = directory / "config.toml"
    path.write_text(
        f'[connections.prod]\ntype = "kafka"\nbootstrap-servers = "{bootstrap}"\n'
        f'[connections.warehouse]\ntype = "postgres"\nconninfo = {{ file = "warehouse" }}\n'
    )
    path.chmod(0o600)
    (directory / "warehouse").write_text(conninfo)
    return path


def file_text(topic: str, letters: str, *, more: str = "", trigger: str = "") -> str:
    """Returns the processor file of the documents."""
    return f"""\
name: late-flights
source: {{connection: prod, subscribe: {topic}, startingOffsets: earliest, kafka.session.timeout.ms: 6000{more}}}
steps:
  - decode: {{format: {{json: "carrier string, dep bigint, delay int"}}}}
  - sql: SELECT *, record.carrier, timestamp_millis(record.dep) AS dep FROM input WHERE record.delay > 15
  - function: integration_tests.declared_flights:enrich          # DataFrame -> DataFrame
  - windows: {{on: dep, by: [carrier], window: {{tumbling: 1 hour}}, watermark_delay: 30s, aggregate: {{n: count(*)}}, prepartitioned: true}}
sink: {{connection: warehouse, table: delays, mode: upsert, key: [window_start, carrier]}}
dead_letters: {{connection: prod, topic: {letters}}}
{trigger}
"""
