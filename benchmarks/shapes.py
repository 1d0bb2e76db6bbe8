"""The cost of the shape of a topic: partitions, the size of records, compression. Streaming, in one micro-batch into
``noop``.

Three families of ``benchmarks.command``. The figure is the speed of the trigger, without the start and the stop of the
query. All topics of a family contain about the same number of records or bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.figures import MB_PER_S, RECORDS_PER_S, Row
from benchmarks.rounds import NotHere
from benchmarks.sources import SOURCES, SPARK, stream_read, stream_rows
from benchmarks.workload import TopicSpec

_COMPRESSED_BYTES = 256


def partitions(bench: Bench) -> Iterator[Row]:
    """The same records in an increasing number of partitions."""
    for count in bench.scale.partitions:
        spec = TopicSpec(bench.scale.partition_records, partitions=count)
        title = f"stream, {spec.records:,} of 100 B in {count} partition{'s' if count > 1 else ''}"
        yield from _speeds(bench, title, spec, in_bytes=False)


def sizes(bench: Bench) -> Iterator[Row]:
    """About the same number of bytes in records of increasing size."""
    for size_bytes in bench.scale.sizes_bytes:
        records = min(bench.scale.size_total_bytes // size_bytes, bench.scale.size_most_records)
        spec = TopicSpec(records, value_bytes=size_bytes)
        yield from _speeds(bench, f"stream, {records:,} of {size_bytes:,} B", spec, in_bytes=True)


def compression(bench: Bench) -> Iterator[Row]:
    """The same records with each compression and without."""
    for codec in bench.scale.codecs:
        spec = TopicSpec(bench.scale.compressed, value_bytes=_COMPRESSED_BYTES, compression=codec)
        title = f"stream, {spec.records:,} of {_COMPRESSED_BYTES} B, compression {codec}"
        yield from _speeds(bench, title, spec, in_bytes=False)


def _speeds(bench: Bench, title: str, spec: TopicSpec, *, in_bytes: bool) -> list[Row]:
    topic = bench.topic(spec)
    per_record = spec.value_bytes / 1e6 if in_bytes else 1

    def speed(name: str) -> float:
        if name == SPARK and spec.partitions > bench.scale.defaults_up_to_partitions:
            raise NotHere(f"not run with {spec.partitions} partitions; at the end of each it waits for half a second")
        run = stream_read(bench, name, topic, spec.records)
        return run.records * per_record / run.trigger_s

    runs = {name: partial(speed, name) for name in SOURCES}
    return stream_rows(bench, title, MB_PER_S if in_bytes else RECORDS_PER_S, runs, bench.scale.shape_rounds)
