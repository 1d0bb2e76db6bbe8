"""What grows with what, on a broker and in Spark: partitions, members, groups, keys, windows, dead letters, sizes of records.

A program: ``python -m benchmarks.scale``. ``simulated_scale`` has larger sizes without a broker. A line whose growth is worse than
linear is marked. Source: SEMANTICS S1, G11, S10, W10, P4.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import streamgroups as sg
from benchmarks.bench import QUICK, Bench, Scale, session
from benchmarks.growth import Growth, rst, table
from benchmarks.soak import RUNNER, spark_processes
from benchmarks.sources import STREAMGROUPS, stream_frame, until_end
from streamgroups.groups.history import no_history
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_testkit.waits import wait_until

_BATCHES = 5
_WAIT_S = 300
_MIB = 2**20
_TRIGGER_RECORDS = 8_000
_LARGEST_RECORD_BYTES = 12_000_000
_SIZES: Mapping[str, Sequence[int]] = {
    "partitions": (8, 100, 1_000, 5_000),
    "members": (2, 10, 50, 100),
    "groups": (10, 200, 2_000),
    "keys": (1_000, 10_000, 100_000, 1_000_000),
    "windows": (100, 1_000, 10_000, 100_000),
    "dead letters": (100, 1_000, 10_000, 100_000),
    "bytes": (20, 1_000, 100_000, 10_000_000),
}


# ---- partitions ------------------------------------------------------------------------------------------------------


def partitions(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """A query over one topic. Each batch has one record of each partition."""
    found = [_partitions(bench, it) for it in sizes]
    units = ("s", "ms", "MiB")
    names = ("from start() to the end of the first batch", "batch, p50", "memory of the source's process")
    for i, (what, unit) in enumerate(zip(names, units, strict=True)):
        yield Growth(what, unit, "partitions of a query", sizes, [it[i] for it in found])


def _partitions(bench: Bench, count: int) -> tuple[float, float, float]:
    topic = _topic(bench, count)
    records = count * (_BATCHES + 2)
    _produce(bench, topic, ((None, b"x" * 100, n % count) for n in range(records)))
    frame = stream_frame(bench, STREAMGROUPS, topic, maxOffsetsPerTrigger=str(count))
    began_s = time.monotonic()
    query = frame.writeStream.format("noop").option("checkpointLocation", _path(bench)).start()
    try:
        wait_until(lambda: query.recentProgress, "the first batch ends", _WAIT_S)
        first_s = time.monotonic() - began_s
        query.processAllAvailable()
        took = [float(it.durationMs["triggerExecution"]) for it in query.recentProgress if it.numInputRows]
        return first_s, statistics.median(took[1:]), _source_bytes() / _MIB
    finally:
        query.stop()


def _source_bytes() -> int:
    return max((rss_bytes for _, role, rss_bytes in spark_processes() if role == RUNNER), default=0)


# ---- groups and members ----------------------------------------------------------------------------------------------


def members(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """Members without Spark, in this process. All join at once; then another one joins."""
    found = [_members(bench, it) for it in sizes]
    for i, what in enumerate(
        ("all members join, until each has its share", "one more member joins, until it has its share")
    ):
        yield Growth(what, "s", "members of a group", sizes, [it[i] for it in found])


def _members(bench: Bench, count: int) -> tuple[float, float]:
    topic, group = _topic(bench, 2 * count), f"scale-{uuid.uuid4().hex[:8]}"
    config = ClientConfig.from_options({"bootstrap.servers": bench.bootstrap})
    with ExitStack() as stack:

        def joined(number: int) -> KafkaMember:
            name = f"member-{number}"
            settings = MemberSettings(group, name, config.for_member(group, client_id=name), topics=lambda: [topic])
            member = KafkaMember(settings, lambda missing: {tp: Owned(0) for tp in missing}, no_history)
            stack.callback(member.close)
            member.join(_WAIT_S * 1_000)
            return member

        began_s = time.monotonic()
        running = [joined(n) for n in range(count)]
        wait_until(lambda: all(len(it.membership.owned) == 2 for it in running), "all have their share", _WAIT_S)
        all_s = time.monotonic() - began_s
        began_s = time.monotonic()
        another = joined(count)
        wait_until(lambda: another.membership.owned, "it has its share", _WAIT_S)
        return all_s, time.monotonic() - began_s


def groups(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """A list of all groups of a cluster with their offsets, and the start of a query beside them."""
    topic = _topic(bench, 10)
    offsets = {TopicPartition(topic, p): Committed(5) for p in range(10)}
    config = ClientConfig.from_options({"bootstrap.servers": bench.bootstrap})
    described_s, start_s, there = [], [], 0
    with closing(AdminSession(config, timeout_s=60)) as admin:
        for size in sizes:
            for number in range(there, size):
                assert KafkaGroupAdmin(admin).alter_offsets(f"scale-group-{number:05}", offsets) == {}
            there = size
            began_s = time.monotonic()
            listed = [it.group_id for it in KafkaGroupAdmin(admin).list_groups()]
            KafkaGroupAdmin(admin).committed_offsets(listed)
            described_s.append(time.monotonic() - began_s)
            start_s.append(_partitions(bench, 8)[0])
    yield Growth("all groups are listed, with their offsets", "s", "groups on a cluster", sizes, described_s)
    yield Growth("a query starts, to the end of its first batch", "s", "groups on a cluster", sizes, start_s)


# ---- state -----------------------------------------------------------------------------------------------------------


def keys(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """Triggers with few records beside many keys of one partition, in one open window."""
    found = [_state(bench, ((f"k{n}", 0) for n in range(it)), it) for it in sizes]
    yield Growth(
        f"batch of {_TRIGGER_RECORDS:,} records, p50", "ms", "keys in a partition", sizes, [it[0] for it in found]
    )
    yield Growth("files of the state", "MiB", "keys in a partition", sizes, [it[1] for it in found])


def windows(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """The same with one key and many open windows of a minute."""
    found = [_state(bench, (("k", n) for n in range(it)), it) for it in sizes]
    yield Growth(f"batch of {_TRIGGER_RECORDS:,} records, p50", "ms", "open windows", sizes, [it[0] for it in found])


def _state(bench: Bench, entries: Iterator[tuple[str, int]], count: int) -> tuple[float, float]:
    topic, directory = _topic(bench, 1), Path(_path(bench))
    begin_ms = int(time.time() * 1_000) // 60_000 * 60_000 - 200_000 * 60_000
    known: list[tuple[str, int]] = []

    def records(of: Iterator[tuple[str, int]]) -> Iterator[tuple[str, bytes, int, int]]:
        for key, minute in of:
            if len(known) < _TRIGGER_RECORDS:
                known.append((key, minute))
            yield key, b"x" * 100, 0, begin_ms + minute * 60_000

    _produce(bench, topic, records(entries))
    frame = stream_frame(
        bench, STREAMGROUPS, topic, stateLocation=str(directory / "state"), maxOffsetsPerTrigger="500000"
    )
    counted = sg.windows(
        frame.select("key", "timestamp", "partition", "offset"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("1 minute"),
        watermark_delay="300 days",
        aggregate={"n": "count(*)"},
    )
    query = counted.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        wait_until(lambda: _rows(query) == count, "all keys are read", _WAIT_S)
        took = []
        for _ in range(_BATCHES):
            expected, seen = _rows(query) + len(known), query.recentProgress[-1].batchId
            _produce(bench, topic, ((key, b"x", 0, begin_ms + n * 60_000) for key, n in known))
            wait_until(lambda it=expected: _rows(query) == it, "the records are read", _WAIT_S)  # type: ignore[misc]
            new = [it for it in query.recentProgress if it.batchId > seen and it.numInputRows]
            took += [float(it.durationMs["triggerExecution"]) for it in new]
        stored = sum(it.stat().st_size for it in (directory / "state").rglob("*") if it.is_file())
        return statistics.median(took), stored / _MIB
    finally:
        query.stop()


def _rows(query: StreamingQuery) -> int:
    """The number of records that a query has read. Spark keeps the last hundred reports."""
    return sum(it.numInputRows for it in query.recentProgress)


# ---- records ---------------------------------------------------------------------------------------------------------


def dead_letters(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """One batch of the largest number of records, and this number of them becomes dead letters in a topic."""
    took_s = [_dead_letters(bench, it, max(sizes)) for it in sizes]
    yield Growth(f"batch of {max(sizes):,} records", "s", "dead letters of a batch", sizes, took_s)


def _dead_letters(bench: Bench, letters: int, records: int) -> float:
    topic, output, queue = _topic(bench, 4), _topic(bench, 4), _topic(bench, 4)
    good = json.dumps({"id": 1, "carrier": "AA"}).encode()
    _produce(bench, topic, ((None, b"{" if n < letters else good, n % 4) for n in range(records)))
    decoded = sg.decode(stream_frame(bench, STREAMGROUPS, topic), sg.schemas.Json("id long, carrier string"))
    rows = decoded.selectExpr("record.carrier AS value", "dead_letter")
    sink, letters_sink = (sg.KafkaSink(bootstrap_servers=bench.bootstrap, topic=it) for it in (output, queue))
    limits = sg.DeadLetters(sink=letters_sink, max_share=None)
    writer = sg.exactly_once(rows, sink=sink, checkpoint=_path(bench), dead_letters=limits)
    progress = until_end(writer.trigger(availableNow=True).start())
    return float(sum(it.durationMs["triggerExecution"] for it in progress if it.numInputRows)) / 1_000


def record_sizes(bench: Bench, sizes: Sequence[int]) -> Iterator[Growth]:
    """About the same bytes in records of different sizes."""
    took_ms = [_record_size(bench, it) for it in sizes]
    yield Growth("time for each MB", "ms", "bytes of a record", sizes, took_ms)


def _record_size(bench: Bench, size_bytes: int) -> float:
    topic, count = _topic(bench, 4), max(8, min(1_000_000, bench.scale.size_total_bytes // size_bytes))
    _produce(bench, topic, ((None, b"x" * size_bytes, n % 4) for n in range(count)))
    frame = stream_frame(bench, STREAMGROUPS, topic)
    writer = frame.writeStream.format("noop").option("checkpointLocation", _path(bench))
    progress = until_end(writer.trigger(availableNow=True).start())
    assert sum(it.numInputRows for it in progress) == count
    took_ms = sum(it.durationMs["triggerExecution"] for it in progress if it.numInputRows)
    return float(took_ms / (count * size_bytes / 1_000_000))


# ---- common ----------------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, Callable[[Bench, Sequence[int]], Iterator[Growth]]] = {
    "partitions": partitions,
    "members": members,
    "groups": groups,
    "keys": keys,
    "windows": windows,
    "dead letters": dead_letters,
    "bytes": record_sizes,
}


def _path(bench: Bench) -> str:
    return str(bench.directory / uuid.uuid4().hex)


def _topic(bench: Bench, count: int) -> str:
    topic = f"scale-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0})
    config = {"max.message.bytes": str(_LARGEST_RECORD_BYTES), "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, count, 1, config=config)], operation_timeout=60)[topic].result(120)
    return topic


def _produce(bench: Bench, topic: str, records: Iterator[tuple[object, ...]]) -> None:
    """Writes records: key, value, partition and, optionally, the timestamp."""
    producer = Producer(
        {
            "bootstrap.servers": bench.bootstrap,
            "linger.ms": 20,
            "enable.idempotence": True,
            "message.max.bytes": _LARGEST_RECORD_BYTES,
            "log_level": 0,
        }
    )
    for key, value, partition, *timestamp in records:
        more = {"timestamp": timestamp[0]} if timestamp else {}
        while True:
            try:
                producer.produce(topic, value, key, partition, **more)  # type: ignore[arg-type]
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_WAIT_S) == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns 1 if a growth is worse than linear."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="What grows with what.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--only", nargs="+", choices=_KINDS, metavar="NAME", help=f"of {', '.join(_KINDS)}")
    parser.add_argument("--out", type=Path, metavar="FILE.rst", help="write the table as reStructuredText, too")
    requested = parser.parse_args(arguments)
    found: list[Growth] = []
    properties = {"message.max.bytes": _LARGEST_RECORD_BYTES}
    with (
        tempfile.TemporaryDirectory(prefix="streamgroups-scale-") as directory,
        EmbeddedKafka(data_dir=Path(directory) / "kafka", jvm_options=(), heap_mb=1024, properties=properties) as kafka,
        session(peers=False) as spark,
    ):
        bench = Bench(spark, kafka.bootstrap_servers, Path(directory), QUICK if requested.quick else Scale())
        for name in requested.only or _KINDS:
            sizes = [max(i, n // 50) for i, n in enumerate(_SIZES[name][1:3], 2)] if requested.quick else _SIZES[name]
            # The first run starts processes and compiles code.
            list(_KINDS[name](bench, sizes[:1]))
            for growth in _KINDS[name](bench, sizes):
                print(growth, file=sys.stderr, flush=True)
                found.append(growth)
    Console(width=150).print(table(found))
    if requested.out:
        text = rst(found, "Growth on one broker, and in Spark with two cores", "python -m benchmarks.scale --out")
        requested.out.write_text(text, encoding="utf-8")
    return 1 if any(it.is_worse_than_linear for it in found) else 0


if __name__ == "__main__":
    sys.exit(main())
