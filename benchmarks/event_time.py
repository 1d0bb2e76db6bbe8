"""The cost of event time: the same count by windows with our watermark and with Spark's. Streaming, in one micro-batch.

A family of ``benchmarks.command``. Ours is ``sg.with_event_time``, the minimum over the partitions; Spark's is
``withWatermark``. Each query reads with its own source. The event time is the record's own timestamp, a header, or a
number in the JSON of the value. Ours reads the header with the option ``eventTimeHeader``, which Spark's source does
not have.

The figure is the speed of the trigger that reads, as in ``queries``. Later triggers, two of ours and one of Spark's,
only advance the watermark, and normally coincide with the next records. The sum of the counts is checked, so no record
may be late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Row
from benchmarks.rounds import WrongCount
from benchmarks.sources import SOURCES, STREAMGROUPS, stream_read, stream_rows
from benchmarks.workload import EVENT_TIME_HEADER, TopicSpec

_BEHIND = "10 seconds"


@dataclass(frozen=True, slots=True)
class _From:
    """The origin of the event time.

    Args:
        column: the expression over the columns of Spark's source.
        options: the options of Spark's source.
        our_column: the expression over the columns of our source; ``None`` for the same.
        our_options: the options of our source; ``None`` for the same.
    """

    column: str
    options: Mapping[str, str]
    our_column: str | None = None
    our_options: Mapping[str, str] | None = None

    def column_of(self, name: str) -> str:
        """The expression for a source."""
        return self.our_column if name == STREAMGROUPS and self.our_column is not None else self.column

    def options_of(self, name: str) -> Mapping[str, str]:
        """The options of a source."""
        return self.our_options if name == STREAMGROUPS and self.our_options is not None else self.options


_TIMES: Mapping[str, _From] = {
    "the record's timestamp": _From("timestamp", {}, our_options={"columns": "topic,partition,offset,timestamp"}),
    "a header": _From(
        f"timestamp_millis(cast(cast(map_from_entries(headers)['{EVENT_TIME_HEADER}'] as string) as long))",
        {"includeHeaders": "true"},
        "eventTime",
        {"eventTimeHeader": EVENT_TIME_HEADER, "columns": "topic,partition,offset,eventTime"},
    ),
    "the payload": _From(
        "timestamp_millis(cast(get_json_object(cast(value as string), '$.id') as long))",
        {},
        our_options={"columns": "topic,partition,offset,value"},
    ),
}


def event_time(bench: Bench) -> Iterator[Row]:
    """A count by windows, for each origin of the event time."""
    spec = TopicSpec(bench.scale.query, has_time_header=True)
    topic = bench.topic(spec)

    def speed(name: str, time: _From) -> float:
        transform = partial(_counted, name == STREAMGROUPS, time.column_of(name))
        run = stream_read(bench, name, topic, spec.records, transform, has_state=True, **time.options_of(name))
        if run.observed.get("n") != spec.records:
            raise WrongCount(f"{run.observed.get('n')} were counted where {spec.records} should")
        return run.records / run.trigger_s

    for what, time in _TIMES.items():
        runs = {name: partial(speed, name, time) for name in SOURCES}
        title = f"stream, watermark + window count, {spec.records:,} of 100 B, time from {what}"
        yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds)


def _counted(is_streamgroups: bool, column: str, frame: DataFrame) -> DataFrame:
    is_there = column in frame.columns
    if not is_there:
        frame = frame.withColumn("at", F.expr(column))
    at = column if is_there else "at"
    # Unused columns are dropped, as users do.
    frame = frame.select("topic", "partition", "offset", at)
    timed = (
        sg.with_event_time(frame, at, watermark_delay=_BEHIND) if is_streamgroups else frame.withWatermark(at, _BEHIND)
    )
    return timed.groupBy(F.window(at, "1 minute")).count().observe("check", F.sum("count").alias("n"))
