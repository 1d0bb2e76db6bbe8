"""W1-W7, W9: the tables of ``docs/event-time.rst``, row by row, by windows of partitions with a clock of the test."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.tiers import LONG
from streamgroups_operators.inspection import inspect
from streamgroups_operators.locations import files_below
from streamgroups_testkit.clocks import ControlledClock, controlled_clock
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options

DOCUMENT = Path(__file__).parent.parent / "docs" / "event-time.rst"
MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS
#: The day of the tables.
TODAY_MS = 20_254 * DAY_MS
#: Window, pane, number of records, and revision.
Row = tuple[str, str, int, int]
#: Event time, reason, watermark, and missed window.
Letter = tuple[str, str, str, str]


def table(*columns: str) -> list[list[str]]:
    """The rows of the table of the document that begins with these columns."""
    lines = DOCUMENT.read_text().splitlines()
    borders = [i for i, line in enumerate(lines) if set(line) == {"=", " "}]
    for first, second, last in zip(borders, borders[1:], borders[2:], strict=False):
        spans = [match.span() for match in re.finditer("=+", lines[first])]
        found = [[line[a : b if b < spans[-1][1] else None].strip() for a, b in spans] for line in lines[first:last]]
        if second == first + 2 and found[1][: len(columns)] == list(columns):
            return found[3:]
    raise AssertionError(f"{DOCUMENT.name} has no table with the columns {columns}")


def ms(clock: str) -> int:
    """12:05 on the day of the tables."""
    hours, minutes = map(int, clock.split(":"))
    return TODAY_MS + (hours * 60 + minutes) * MINUTE_MS


def clock_of(time_ms: int) -> str:
    minutes = time_ms % DAY_MS // MINUTE_MS
    return f"{minutes // 60:02}:{minutes % 60:02}"


def window(start_ms: int, size_ms: int) -> str:
    return f"{clock_of(start_ms)}-{clock_of(start_ms + size_ms)}"


@dataclass
class Topic:
    """A topic whose records have event times of the tables."""

    bootstrap: str
    name: str

    def __post_init__(self) -> None:
        self._producer = ordered_producer(self.bootstrap)

    def write(self, *times: str, key: str = "a", partition: int = 0, until: str = "00:00", shift_ms: int = 0) -> None:
        for time in times:
            self._producer.produce(self.name, str(ms(until)), key, partition, timestamp=ms(time) + shift_ms)
        assert self._producer.flush(30) == 0


class Transaction:
    """A transaction that is open until its commit."""

    def __init__(self, topic: Topic, *, partition: int, shift_ms: int) -> None:
        self._topic, self._partition, self._shift_ms = topic, partition, shift_ms
        self._producer = Producer(
            {"bootstrap.servers": topic.bootstrap, "transactional.id": f"{topic.name}-{id(self)}"}
        )
        self._producer.init_transactions(30)
        self._producer.begin_transaction()

    def write(self, *times: str) -> None:
        for time in times:
            self._producer.produce(self._topic.name, "", "a", self._partition, timestamp=ms(time) + self._shift_ms)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)


@dataclass
class Run:
    """A running query with windows of partitions."""

    location: str
    group: str
    size_ms: int
    _results: list[Any] = field(default_factory=list)
    _dead: list[Any] = field(default_factory=list)
    query: StreamingQuery = field(init=False)

    def collect(self, batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            (self._dead if row.pane == "dead letter" else self._results).append(row)

    def settle(self) -> None:
        """Waits until the query has polled its topic, and has processed all that a batch can process at this time."""
        self.query.processAllAvailable()

    def rows(self, key: str = "a") -> list[Row]:
        """Window, pane, number of records and revision of the rows of a key since the last call."""
        found, self._results = self._results, []
        return [(window(r.start, self.size_ms), r.pane, r.n, r.revision) for r in found if r.key == key]

    def dead(self) -> list[Letter]:
        """Event time, reason, watermark and missed window of the dead letters since the last call."""
        found, self._dead = self._dead, []
        return [(clock_of(r.event_time), r.why, clock_of(r.watermark), window(r.start, self.size_ms)) for r in found]

    def outcomes(self) -> dict[str, str]:
        """The outcome of each key: the window that counts its record, or why no window does."""
        counted = {r.key: f"{window(r.start, self.size_ms)}, {r.n}" for r in self._results}
        return counted | {r.key: r.why for r in self._dead}

    @property
    def explained(self) -> tuple[str, list[list[str]]]:
        """The watermark of the group, and event time, watermark and state of each partition (``sg.event_time.explain_time``)."""
        heading, _, *lines = str(sg.event_time.explain_time(self.query)).splitlines()
        cells = [re.split(r"\s{2,}", line)[1:] for line in lines]
        return _short(heading), [[_short(a), _short(b), state] for a, b, state in cells]

    def open_windows(self, watermark: str) -> str:
        """The windows with records in the newest state, and the window that contains the watermark."""
        newest = inspect(files_below(self.location, self.group, "windows")).manifests[-1]
        starts = {int(start) for start in newest.states[0].parts} | {ms(watermark) // self.size_ms * self.size_ms}
        return ", ".join(window(start, self.size_ms) for start in sorted(starts))


def _short(time: str) -> str:
    found = re.search(r"T(\d\d:\d\d):\d\d\.\d{3}Z", time)
    return "undefined" if found is None else found[1]


class Tables:
    """Starts queries over topics of the tables."""

    def __init__(self, spark: SparkSession, bootstrap: str, group: str, directory: Path) -> None:
        self._spark, self.bootstrap, self.group, self._directory = spark, bootstrap, group, directory

    def _rows(self, name: str, topic: Topic, options: Mapping[str, str], windows: Mapping[str, Any]) -> DataFrame:
        group, location = f"{self.group}-{name}", str(self._directory / name)
        options = exclusive_options(self.bootstrap, group, topic.name) | {"stateLocation": location} | dict(options)
        records = self._spark.readStream.format("streamgroups").options(**options).load()
        until = F.timestamp_millis(F.expr("try_cast(cast(value AS string) AS bigint)"))
        timed = records.withColumn("key", F.expr("cast(key AS string)")).withColumn("valid_until", until)
        defaults = {"on": "timestamp", "by": ["key"], "aggregate": {"n": "count(*)"}, "dead_letters": True}
        rows = sg.windows(timed.withWatermark("timestamp", "0 seconds"), **{**defaults, "time": "partition", **windows})
        details = F.col("dead_letter.details")
        times = {name: F.to_timestamp(details[name]) for name in ("event_time", "watermark")}
        times["start"] = F.col("window_start")
        in_ms = [F.unix_millis(time).alias(column) for column, time in times.items()]
        return rows.select("key", "pane", "n", "revision", details["why"].alias("why"), *in_ms)

    @contextmanager
    def running(
        self,
        name: str,
        topic: Topic,
        options: Mapping[str, str] | None = None,
        # Longer than the minimum interval between two polls.
        trigger: Mapping[str, Any] = MappingProxyType({"processingTime": "60 milliseconds"}),
        **windows: Any,
    ) -> Iterator[Run]:
        rows = self._rows(name, topic, options or {}, windows)
        run = Run(str(self._directory / name), f"{self.group}-{name}", windows["window"].size_ms)
        writer = rows.writeStream.foreachBatch(run.collect).trigger(**trigger)
        run.query = writer.option("checkpointLocation", str(self._directory / f"checkpoint-{name}")).start()
        try:
            yield run
        finally:
            run.query.stop()


@pytest.fixture
def tables(spark: SparkSession, bootstrap: str, group: str, tmp_path: Path) -> Tables:
    return Tables(spark, bootstrap, group, tmp_path)


@pytest.fixture
def clock(spark: SparkSession) -> Iterator[ControlledClock]:
    with controlled_clock(spark, ms("09:00")) as controlled:
        yield controlled


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Callable[[int], Topic]:
    return lambda partitions: Topic(bootstrap, new_topic(partitions, retention_ms="-1"))


@LONG
def test_W1_W6_windows_by_the_watermark_and_by_the_clock(
    tables: Tables, topic: Callable[[int], Topic], clock: ControlledClock
) -> None:
    five, source = sg.shapes.tumbling("5 minutes"), topic(1)
    with (
        tables.running("event", source, window=five) as by_event,
        tables.running("clock", source, window=five, boundary="processingTime") as by_clock,
    ):

        def arrive(event: str, arrival: str) -> None:
            with clock.moved_to(ms(arrival)):
                source.write(event)
            by_event.settle()
            by_clock.settle()

        arrive("09:33", "09:37")
        rows = table("event", "arrival", "window by clock", "window by watermark", "watermark")
        for event, arrival, _, _, watermark in rows:
            arrive(event, arrival)
            assert by_event.explained[1][0][1] == watermark
            if arrival == "12:00":
                assert by_event.rows() == [("09:30-09:35", "on time", 1, 0)]
                assert by_clock.rows() == [("09:35-09:40", "on time", 1, 0)]
            if arrival == "12:06":
                assert by_event.rows() == [], "the first window is open until 12:07"
        (first, in_first), (second, in_second) = Counter(row[3] for row in rows).items()
        assert by_event.rows() == [(first, "on time", in_first, 0)]
        arrive("12:10", "12:10")
        assert by_event.rows() == [(second, "on time", in_second, 0)]
        assert by_clock.rows() == [(span, "on time", n, 0) for span, n in Counter(row[2] for row in rows).items()]


@LONG
def test_W4_allowed_lateness_delays_when_a_window_closes(
    tables: Tables, topic: Callable[[int], Topic], clock: ControlledClock
) -> None:
    source = topic(1)
    with tables.running("late", source, window=sg.shapes.tumbling("5 minutes"), allowed_lateness="2 minutes") as run:
        emitted = {}
        for event, watermark, closed, windows in table("event", "watermark", "minus 2 minutes", "open windows"):
            assert ms(watermark) - ms(closed) == 2 * MINUTE_MS
            source.write(event)
            # Records of another key advance the watermark too.
            source.write(watermark, key="b")
            run.settle()
            assert run.explained[1][0][1] == watermark
            assert run.open_windows(watermark) == windows
            emitted[event] = run.rows()
        assert {event: panes for event, panes in emitted.items() if panes} == {
            "12:05": [("12:00-12:05", "on time", 3, 0)],
            "12:04": [("12:00-12:05", "update", 4, 1)],
        }
        assert run.dead() == []
        source.write("12:04")
        run.settle()
        assert run.dead() == [("12:04", "late", "12:07", "12:00-12:05")]


@LONG
def test_W5_the_idle_timeout_closes_a_window_and_advances_the_watermark(
    tables: Tables, topic: Callable[[int], Topic], clock: ControlledClock
) -> None:
    source = topic(1)
    with tables.running("idle", source, window=sg.shapes.tumbling("3 minutes"), idle_timeout="1 minute") as run:
        emitted, states = {}, {}
        for now, event, watermark, windows in table("clock", "event", "watermark", "open window"):
            with clock.moved_to(ms(now)):
                if event != "idle":
                    source.write(event)
            run.settle()
            [(_, reached, states[now])] = run.explained[1]
            assert reached == watermark
            assert run.open_windows(watermark) == windows
            emitted[now] = run.rows()
            if now == "12:08":
                _check_commands(tables, run)
        assert {now: panes for now, panes in emitted.items() if panes} == {
            "12:05": [("12:00-12:03", "on time", 2, 0)],
            "12:07": [("12:03-12:06", "idle", 1, 0)],
        }
        assert states["12:06"] == "active; the idle timeout expires at 2025-06-15T12:07:00.000Z"
        assert states["12:07"] == states["12:08"] == "idle: the idle timeout has advanced the watermark"
        assert states["12:09"].startswith("active")
        assert run.dead() == []


def _check_commands(tables: Tables, run: Run) -> None:
    """The time that the idle timeout has advanced is visible from other machines."""

    def partition(command: str, *arguments: str) -> Any:
        result = streamgroups("groups", command, run.group, *arguments, "-o", "json", "-b", tables.bootstrap)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["groups"][0]["partitions"][0]

    watched = partition("watch", "--count", "1")
    assert [_short(watched[name]) for name in ("event_time", "watermark")] == ["12:05", "12:06"]
    assert watched["time_state"] == "idle"
    described = partition("describe", "--state")["state"]
    assert (described["watermark_ms"], described["time_state"]) == (ms("12:06"), "idle")


@LONG
def test_W2_W3_the_watermark_of_a_group_is_the_minimum_without_idle_partitions(
    tables: Tables, topic: Callable[[int], Topic], clock: ControlledClock
) -> None:
    source = topic(2)
    options = {"partitionIdleTimeout": "2 minutes", "kafka.isolation.level": "read_committed"}
    with tables.running("group", source, options, window=sg.shapes.tumbling("5 minutes"), time="group") as run:
        for fast, slow, watermark in table("fast partition", "slow partition", "watermark"):
            source.write(fast)
            if slow != "no record":
                source.write(slow, partition=1)
            run.settle()
            assert run.explained[0] == watermark
        assert run.dead() == [], "no record of the slow partition is late"

        # The next table is of the next day. Records of open transactions are available and not readable.
        first, others = (Transaction(source, partition=1, shift_ms=DAY_MS) for _ in range(2))
        states, before = {}, ""
        for now, fast, slow, available, watermark, _ in table("clock", "fast", "slow", "available", "watermark"):
            with clock.moved_to(ms(now) + DAY_MS):
                if fast != before:
                    source.write(fast, shift_ms=DAY_MS)
                if now == "12:03":
                    first.write("12:02")
                    others.write(*["12:45"] * (int(available) - 1))
                elif now == "12:10":
                    first.commit()
                elif now == "12:11":
                    others.commit()
                elif slow:
                    source.write(slow, partition=1, shift_ms=DAY_MS)
            run.settle()
            # The query observes once a second that a partition is idle.
            with clock.moved_to(ms(now) + DAY_MS + 1_000):
                pass
            run.settle()
            reached, [_, (_, _, states[now])] = run.explained
            assert reached == watermark, now
            late = [("12:02", "late", "12:30", "12:00-12:05")] if slow == "12:02" else []
            assert run.dead() == late
            before = fast
        assert states["12:01"] == "holds back the watermark; no available records for 60 s"
        assert states["12:02"] == "idle for 120 s: does not hold back the watermark"
        assert {states[now] for now in ("12:03", "12:09", "12:10")} == {"holds back the watermark"}


@LONG
def test_W9_records_before_the_watermark_are_kept_dropped_or_adjusted(
    tables: Tables, topic: Callable[[int], Topic]
) -> None:
    rows = table("Setting", "Record", "Result")
    results = {
        "late: its window is closed": "late",
        "counted in 12:05-12:10": "12:05-12:10, 1",
        "dropped": "violation",
        "dropped: it ends at the watermark": "violation",
        "counted at 12:08, in 12:05-12:10": "12:05-12:10, 1",
    }
    with ExitStack() as stack:
        runs = {}
        for policy in ("keep", "drop", "adjust"):
            source = topic(1)
            source.write("12:08", key="watermark")
            for _, record, _ in (row for row in rows if row[0] == f"``{policy}``"):
                start, end = record.split("-")
                source.write(start, key=record, until=end)
            source.write("12:30", key="watermark")
            arguments: dict[str, Any] = {"on_violation": policy} | (
                {"until": "valid_until"} if policy == "adjust" else {}
            )
            once = {"availableNow": True}
            runs[policy] = stack.enter_context(
                tables.running(policy, source, trigger=once, window=sg.shapes.tumbling("5 minutes"), **arguments)
            )
        for policy, run in runs.items():
            assert run.query.awaitTermination(60)
            expected = {record: results[result] for setting, record, result in rows if setting == f"``{policy}``"}
            assert {key: it for key, it in run.outcomes().items() if key != "watermark"} == expected
