"""Operators with random records, and their rows by a plain program, for ``test_savepoints_of_each_operator``."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.dedup_query import once
from integration_tests.join_query import joined
from streamgroups.groups.commit_metadata import mark_of
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.state.origins import Named
from streamgroups_operators.joins.join_definition import How
from streamgroups_testkit.producing import ordered_producer
from unit_tests.streamgroups_operators.join_model import Record as JoinedRecord
from unit_tests.streamgroups_operators.join_model import brute_force

PARTITIONS = 4
#: The time of the model of joins.
START_MS = 1_732_334_879_000
END_MS = START_MS + 1_000_000_000
SECOND_MS, MINUTE_MS = 1_000, 60_000
#: In place of null, which cannot be sorted.
NULL = -1
Row = tuple[Any, ...]
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its time in milliseconds since the epoch, and its key."""

    time_ms: int
    key: str | None


class RandomRecords:
    """Random records of some topics with four partitions.

    Args:
        bootstrap: the broker.
        topics: the topics.
        seed: the seed of the records.
    """

    #: The largest difference between the times of two records in order, in milliseconds.
    max_step_ms: ClassVar[int] = 200
    #: How many milliseconds after newer records of its partition a record can be.
    max_delay_ms: ClassVar[int] = 20_000

    def __init__(self, bootstrap: str, topics: list[str], seed: int) -> None:
        self._producer, self.names, self.random = (
            ordered_producer(bootstrap),
            topics,
            random.Random(seed),
        )
        self.written: dict[TopicPartition, list[Record]] = {
            TopicPartition(topic, partition): [] for topic in topics for partition in range(PARTITIONS)
        }
        self.clocks_ms = dict.fromkeys(self.written, START_MS)

    def write(self, count: int) -> None:
        """Writes records to each partition, in random order of partitions and times."""
        places = [tp for tp in self.written for _ in range(count)]
        self.random.shuffle(places)
        for tp in places:
            self._send(tp, self.next_record(tp))
        assert self._producer.flush(30) == 0

    def end(self) -> None:
        """Writes a record to each partition that closes all windows."""
        for tp in self.written:
            self._send(tp, Record(END_MS, f"{tp.partition}-end"))
        assert self._producer.flush(30) == 0

    def next_record(self, tp: TopicPartition) -> Record:
        """A random record of a partition. A key is in one partition."""
        choose = self.random
        self.clocks_ms[tp] += choose.randint(0, self.max_step_ms)
        late_ms = 0 if choose.random() < 0.7 else choose.randint(0, self.max_delay_ms)
        return Record(self.clocks_ms[tp] - late_ms, f"{tp.partition}-{choose.randint(0, 12)}")

    def _send(self, tp: TopicPartition, record: Record) -> None:
        self.written[tp].append(record)
        self._producer.produce(tp.topic, b"", record.key, tp.partition, timestamp=record.time_ms)
        self._producer.poll(0)

    @property
    def ends(self) -> Positions:
        return {tp: len(records) for tp, records in self.written.items()}

    def before(self, positions: Positions | None) -> Iterator[tuple[TopicPartition, list[Record]]]:
        """The records before these positions, or all of them."""
        for tp, records in self.written.items():
            yield tp, records[: None if positions is None else positions.get(tp, 0)]


class Operator(RandomRecords, ABC):
    """An operator in a query, its random records, and its rows by a plain program."""

    topics: ClassVar[int] = 1
    options: ClassVar[Mapping[str, str]] = {"maxOffsetsPerTrigger": "300"}

    def changed(self, kind: type[Operator], **attributes: Any) -> Operator:
        """The operator of a changed program, which reads the same records."""
        other = copy(self)
        other.__class__ = kind
        for name, value in attributes.items():
            setattr(other, name, value)
        return other

    @abstractmethod
    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        """The rows of a query with these options."""

    @abstractmethod
    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        """The rows of a program that has read the records before these positions, or all of them."""

    def expected_after(self, savepoint: CommitRecord) -> Counter[Row]:
        """The rows of a program that continues at a savepoint and reads all other records."""
        return self.expected() - self.expected({tp: it.next_offset for tp, it in savepoint.positions.items()})


class Join(Operator):
    """``sg.join`` of two topics, with unmatched and late records."""

    topics = 2
    options: ClassVar[Mapping[str, str]] = {"kafka.group.remote.assignor": "range", "maxOffsetsPerTrigger": "600"}

    def next_record(self, tp: TopicPartition) -> Record:
        record = super().next_record(tp)
        # The model has whole seconds.
        time_ms = START_MS + (record.time_ms - START_MS) // SECOND_MS * SECOND_MS
        return Record(time_ms, None if self.random.random() < 0.05 else record.key)

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        left, right = self.names
        rows = joined(spark, left, right, options)
        offsets = (F.coalesce(name, F.lit(NULL)) for name in ("one", "other"))
        return rows.select("partition", F.coalesce("key", F.lit("")), *offsets, "late")

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        found: Counter[Row] = Counter()
        records = dict(self.before(positions))
        for partition in range(PARTITIONS):
            left, right = (
                [
                    JoinedRecord((it.time_ms - START_MS) // SECOND_MS, it.key)
                    for it in records[TopicPartition(name, partition)]
                ]
                for name in self.names
            )
            for (key, _, one, other, late), times in brute_force(
                (left, right), (len(left), len(right)), How.FULL
            ).items():
                offsets = [NULL if it is None else int(it) for it in (one, other)]
                row: Row = (partition, key or "", *offsets, late)
                found[row] += times
        return found


class Dedup(Operator):
    """``sg.dedup``: ids that are sent again soon, after the horizon, and too late."""

    _HORIZON_MS = 10 * MINUTE_MS

    def next_record(self, tp: TopicPartition) -> Record:
        choose, earlier = self.random, self.written[tp]
        if choose.random() < 0.01:
            # All ids are forgotten, also those of the last bucket.
            self.clocks_ms[tp] += 2 * self._HORIZON_MS
        record = super().next_record(tp)
        if earlier and choose.random() < 0.3:
            again = choose.choice(earlier)
            return choose.choice((again, Record(record.time_ms, again.key)))
        return Record(record.time_ms, f"{tp.partition}-{len(earlier)}")

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        return once(read(spark, options)).select("partition", "offset")

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for tp, records in self.before(positions):
            newest_ms, seen = 0, dict[str | None, int]()
            for offset, record in enumerate(records):
                newest_ms = max(newest_ms, record.time_ms)
                if record.time_ms < newest_ms - self._HORIZON_MS:
                    continue
                if newest_ms - seen.get(record.key, 0) > self._HORIZON_MS:
                    found[tp.partition, offset] += 1
                    seen[record.key] = newest_ms
        return found


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("streamgroups").options(**options).load()


def timed(spark: SparkSession, options: dict[str, str], delay_s: int) -> DataFrame:
    return (
        read(spark, options)
        .withColumn("key", F.expr("cast(key AS string)"))
        .withWatermark("timestamp", f"{delay_s} seconds")
    )


def result(rows: DataFrame) -> DataFrame:
    return rows.select("key", F.unix_millis("window_start"), "n")


class Chain(Operator):
    """Windows of windows: the most records of 10 seconds, for each 50 seconds. Some records are late."""

    _DELAY_S, _SIZE_MS, _CHAINED_MS = 5, 10_000, 50_000
    #: The names of both operators.
    steps = ("small", "peaks")

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        small = self._windows(
            timed(spark, options, self._DELAY_S), 0, on="timestamp", aggregate={"n": "count(*)"}, chained=True
        )
        return result(self._windows(small, 1, on="window_start", aggregate={"n": "max(n)"}))

    def _windows(self, df: DataFrame, step: int, **more: Any) -> DataFrame:
        window = sg.shapes.tumbling(f"{(self._SIZE_MS, self._CHAINED_MS)[step] // SECOND_MS} seconds")
        return sg.windows(df, by=["key"], window=window, name=self.steps[step], **more)

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        peaks: dict[tuple[str | None, int], int] = defaultdict(int)
        for small, watermark_ms in self._small(positions):
            for (key, start_ms), n in small.items():
                chained_ms = start_ms // self._CHAINED_MS * self._CHAINED_MS
                if chained_ms + self._CHAINED_MS <= watermark_ms:
                    peaks[key, chained_ms] = max(peaks[key, chained_ms], n)
        return Counter((key, start_ms, n) for (key, start_ms), n in peaks.items())

    def _small(self, positions: Positions | None) -> Iterator[tuple[Counter[tuple[str | None, int]], int]]:
        """The windows of the first operator, also open ones, and the watermark of each partition."""
        for _, records in self.before(positions):
            watermark_ms, small = 0, Counter[tuple[str | None, int]]()
            for record in records:
                start_ms = record.time_ms // self._SIZE_MS * self._SIZE_MS
                if start_ms + self._SIZE_MS > watermark_ms:
                    small[record.key, start_ms] += 1
                watermark_ms = max(watermark_ms, record.time_ms - self._DELAY_S * SECOND_MS)
            yield small, watermark_ms


class FirstOfChain(Chain):
    """The same without the second operator."""

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        small = self._windows(
            timed(spark, options, self._DELAY_S), 0, on="timestamp", aggregate={"n": "count(*)"}, chained=True
        )
        return result(small)

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        return Counter(
            (key, start_ms, n)
            for small, watermark_ms in self._small(positions)
            for (key, start_ms), n in small.items()
            if start_ms + self._SIZE_MS <= watermark_ms
        )


class GroupWindows(Operator):
    """Windows with the watermark of the group. No record is late, so the results do not depend on batches."""

    _DELAY_S, _SIZE_MS = 20, 10_000

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        records = timed(spark, options, self._DELAY_S)
        return result(sg.windows(records, on="timestamp", by=["key"], window=sg.shapes.tumbling("10 seconds"),
                                 aggregate={"n": "count(*)"}, time="group"))  # fmt: skip

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        newest_ms = [max(it.time_ms for it in records) for _, records in self.before(positions)]
        ends_ms = dict.fromkeys(range(PARTITIONS), min(newest_ms) - self._DELAY_S * SECOND_MS)
        return self._ended(positions, lambda end_ms, partition: end_ms <= ends_ms[partition])

    def expected_after(self, savepoint: CommitRecord) -> Counter[Row]:
        """The state of a partition contains the watermark that its last batch has used."""
        used_ms = {}
        for tp, position in savepoint.positions.items():
            mark = mark_of(position.metadata)
            assert mark is not None
            assert isinstance(mark.state, Named)
            assert mark.state.time is not None
            assert mark.state.time.group is not None
            used_ms[tp.partition] = mark.state.time.group.watermark_ms or 0
        return self.expected() & self._ended(None, lambda end_ms, partition: end_ms > used_ms[partition])

    def _ended(self, positions: Positions | None, is_ended: Callable[[int, int], bool]) -> Counter[Row]:
        counts: Counter[tuple[str | None, int]] = Counter()
        for tp, records in self.before(positions):
            for record in records:
                start_ms = record.time_ms // self._SIZE_MS * self._SIZE_MS
                if is_ended(start_ms + self._SIZE_MS, tp.partition):
                    counts[record.key, start_ms] += 1
        return Counter((key, start_ms, n) for (key, start_ms), n in counts.items())


#: The arrival of records: the time of the clock, and the times of records of each partition.
Arrival = tuple[int, Mapping[int, list[int]]]


class IdleWindows(Operator):
    """Windows that the watermark or the idle timeout of their partition closes."""

    options: ClassVar[Mapping[str, str]] = {}
    _SIZE_MS, _TIMEOUT_MS, _DELAY_MS = 10_000, 15_000, 2_000

    def arrivals(self, count: int) -> list[Arrival]:
        """Random arrivals. At each of them a partition has some records, or none."""
        now_ms, choose = START_MS, self.random
        found: list[Arrival] = []
        for _ in range(count):
            now_ms += choose.randint(1, 12) * SECOND_MS
            having = [partition for partition in range(PARTITIONS) if choose.random() < 0.4]
            found.append(
                (
                    now_ms,
                    {it: [now_ms - choose.randint(0, 6_000) for _ in range(choose.randint(1, 4))] for it in having},
                )
            )
        return found

    def send(self, times: Mapping[int, list[int]]) -> None:
        (topic,) = self.names
        for partition, times_ms in times.items():
            for time_ms in times_ms:
                self._send(TopicPartition(topic, partition), Record(time_ms, f"key-{partition}"))
        assert self._producer.flush(30) == 0

    def rows(self, spark: SparkSession, options: dict[str, str]) -> DataFrame:
        records = timed(spark, options, self._DELAY_MS // SECOND_MS)
        rows = sg.windows(records, on="timestamp", by=["key"], window=sg.shapes.tumbling("10 seconds"),
                          aggregate={"n": "count(*)"}, idle_timeout="15 seconds")  # fmt: skip
        return rows.select("key", F.unix_millis("window_start"), "n", "pane")

    def expected(self, positions: Positions | None = None) -> Counter[Row]:
        raise NotImplementedError

    def results(self, arrivals: list[Arrival]) -> tuple[list[list[Row]], dict[int, int]]:
        """The rows at each arrival, and the watermarks at the end, by partition."""
        rows: list[list[Row]] = [[] for _ in arrivals]
        watermarks_ms = {}
        for partition in range(PARTITIONS):
            read_ms = watermark_ms = 0
            counts: Counter[int] = Counter()
            for (now_ms, times), closed in zip(arrivals, rows, strict=True):
                for time_ms in times.get(partition, []):
                    read_ms, start_ms = now_ms, time_ms // self._SIZE_MS * self._SIZE_MS
                    if start_ms + self._SIZE_MS > watermark_ms:
                        counts[start_ms] += 1
                    watermark_ms = max(watermark_ms, time_ms - self._DELAY_MS)
                for start_ms in sorted(counts):
                    end_ms = start_ms + self._SIZE_MS
                    if end_ms <= watermark_ms:
                        closed.append((f"key-{partition}", start_ms, counts.pop(start_ms), "on time"))
                    elif now_ms >= max(read_ms, end_ms) + self._TIMEOUT_MS:
                        watermark_ms = end_ms
                        closed.append((f"key-{partition}", start_ms, counts.pop(start_ms), "idle"))
            watermarks_ms[partition] = watermark_ms
        return rows, watermarks_ms
