"""A join by brute force, and one that runs batches over state files in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.joined_lookup import is_together
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import UNNAMED, Named, New, StateOrigin
from streamgroups.state.state_lookup import Empty, OnMissingState, Position
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.joins.join_definition import How, JoinOperator
from streamgroups_operators.joins.join_states import JoinTaskStates
from streamgroups_operators.store import Operator, StateStore, StoredStates
from unit_tests.fake_state_files import FakeStateFiles

TOPICS = JoinedTopics("orders", "payments")
PLACES = TopicPartition("orders", 3), TopicPartition("payments", 3)
TOPIC = TopicIdentity("MkU3", "59qr")
WITHIN_US, DELAY_US = 14_000_000, 10_000_000
RECORD = pa.struct([pa.field("n", pa.string())])

#: Both keys, the left and the right record, and whether it is late.
Row = tuple[str | None, int | None, str | None, str | None, bool]


@dataclass(frozen=True)
class Record:
    """A record: its event time in seconds after an arbitrary time, or none; and its two keys, each of them or none.

    A record with a watermark of the producer is a marker: no row.
    """

    at_s: int | None
    key: str | None
    producer_s: int | None = None
    site: int | None = 1

    @property
    def time_us(self) -> int | None:
        return _time_us(self.at_s)

    @property
    def producer_us(self) -> int | None:
        return _time_us(self.producer_s)


def _time_us(at_s: int | None) -> int | None:
    return None if at_s is None else 1_732_334_879_000_000 + at_s * 1_000_000


Records = tuple[Sequence[Record], Sequence[Record]]


def operator(how: How, delay_us: int | None = DELAY_US) -> JoinOperator:
    return JoinOperator("paid", TOPICS, how, WITHIN_US, delay_us, (pa.string(), pa.int64()), RECORD)


def brute_force(records: Records, upto: tuple[int, int], how: How) -> Counter[Row]:
    """The rows of a join that has read the records before two offsets."""
    rows: Counter[Row] = Counter()
    sides: list[list[tuple[int, Record]]] = []
    watermarks: list[float] = []
    for side, (all_records, end) in enumerate(zip(records, upto, strict=True)):
        newest = producer = float("-inf")
        good = []
        for offset, record in enumerate(all_records[:end]):
            if record.producer_us is not None:
                producer = max(producer, record.producer_us)
                continue
            if record.time_us is None:
                rows.update(_single(side, offset, record, how))
                continue
            if record.time_us < max(newest - DELAY_US, producer):
                rows[_row(side, offset, record, is_late=True)] += 1
            elif record.key is None or record.site is None:
                rows.update(_single(side, offset, record, how))
            else:
                good.append((offset, record))
            newest = max(newest, record.time_us)
        sides.append(good)
        watermarks.append(max(newest - DELAY_US, producer))
    matched: tuple[set[int], set[int]] = set(), set()
    for i, one in sides[0]:
        for j, other in sides[1]:
            assert one.time_us is not None
            assert other.time_us is not None
            is_same = (one.key, one.site) == (other.key, other.site)
            if is_same and abs(one.time_us - other.time_us) <= WITHIN_US:
                rows[one.key, one.site, f"{i}", f"{j}", False] += 1
                matched[0].add(i)
                matched[1].add(j)
    for side in (0, 1):
        for offset, record in sides[side]:
            assert record.time_us is not None
            if offset not in matched[side] and record.time_us + WITHIN_US < watermarks[1 - side]:
                rows.update(_single(side, offset, record, how))
    return rows


def _row(side: int, offset: int, record: Record, *, is_late: bool = False) -> Row:
    own: list[str | None] = [None, None]
    own[side] = f"{offset}"
    return record.key, record.site, own[0], own[1], is_late


def _single(side: int, offset: int, record: Record, how: How) -> list[Row]:
    return [_row(side, offset, record)] if how.emits_unmatched[side] else []


@dataclass
class Joining:
    """A pair of partitions that a group reads."""

    how: How
    records: Records
    files: FakeStateFiles = field(default_factory=FakeStateFiles)
    at: tuple[int, int] = (0, 0)
    origins: tuple[StateOrigin, StateOrigin] = (New(), New())
    attempts: int = 0
    delay_us: int | None = DELAY_US
    topics: tuple[TopicIdentity, TopicIdentity] = (TOPIC, TOPIC)

    def run(self, upto: tuple[int, int], chunk: int = 3, *, counts: bool = True) -> Counter[Row]:
        """Runs a batch up to two offsets. Returns its output.

        Args:
            upto: the ends of both ranges.
            chunk: the number of records in each Arrow batch.
            counts: whether the batch is committed. Otherwise it is killed after its end.
        """
        self.attempts += 1
        of = operator(self.how, self.delay_us)
        store = StateStore(Operator("billing", of.name, of.form, of.schema), self.files)
        plan = TaskPlan(
            "memory", "billing", 1_732_334_879_000 + self.attempts, "1f3a9c2b7d10", self.attempts, self._plans(upto)
        )
        task = JoinTaskStates(of, plan, store)
        # The reader is ahead of the operator.
        task.add_watermarks(self._watermarks(plan))
        for batch in self._batches(plan, chunk):
            task.add(batch)
        manifest, output = task.finish(plan.file(1))
        if counts:
            self.at, self.origins = upto, (self._origin(manifest, 0), self._origin(manifest, 1))
        return Counter(_rows(output))

    def reset(self, to: tuple[int, int]) -> None:
        """Sets the positions, as a tool does."""
        origins = tuple(
            origin if at == now else UNNAMED for origin, at, now in zip(self.origins, self.at, to, strict=True)
        )
        self.at, self.origins = to, (origins[0], origins[1])

    def _origin(self, manifest: Manifest, side: int) -> Named:
        state = manifest.state_of(PLACES[side])
        assert state is not None
        return Named(manifest.file, state.next_offset)

    def _plans(self, upto: tuple[int, int]) -> tuple[RangePlan, ...]:
        left, right = (Position(*it) for it in zip(PLACES, self.at, self.origins, self.topics, strict=True))
        if is_together(left, right):
            states = [(it.origin, it.next_offset) for it in (left, right)]
        else:
            found = StoredStates("billing", "paid", self.files, OnMissingState.FAIL).find_both(left, right)
            states = [(New() if isinstance(it, Empty) else it.origin, it.read_from) for it in found]
        return tuple(
            RangePlan(OffsetRange(tp, at, end), state, read_from, topic)  # type: ignore[arg-type]
            for tp, at, end, topic, (state, read_from) in zip(PLACES, self.at, upto, self.topics, states, strict=True)
        )

    def _watermarks(self, plan: TaskPlan) -> Iterator[ProducerWatermarks]:
        for records, it in zip(self.records, plan.ranges, strict=True):
            for n in range(it.read_from, it.range.end_offset):
                producer_us = records[n].producer_us
                if producer_us is not None:
                    yield ProducerWatermarks(it.range.topic_partition, (n,), (producer_us // 1_000,))

    def _batches(self, plan: TaskPlan, chunk: int) -> Iterator[pa.RecordBatch]:
        rows: list[list[dict[str, Any]]] = []
        for records, it in zip(self.records, plan.ranges, strict=True):
            tp = it.range.topic_partition
            rows.append(
                [
                    {"topic": tp.topic, "partition": tp.partition, "offset": n, "time": records[n].time_us}
                    | {"k0": records[n].key, "k1": records[n].site, "record": {"n": f"{n}"}}
                    for n in range(it.read_from, it.range.end_offset)
                    if records[n].producer_us is None
                ]
            )
        schema = pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("time", pa.int64()),
                ("k0", pa.string()),
                ("k1", pa.int64()),
                ("record", RECORD),
            ]
        )
        longest = max(map(len, rows))
        for first in range(0, longest, chunk):
            mixed = [row for side in reversed(rows) for row in side[first : first + chunk]]
            yield pa.RecordBatch.from_pylist(mixed, schema)


def _rows(tables: list[pa.Table]) -> Iterator[Row]:
    for table in tables:
        for row in table.to_pylist():
            left, right = row.get("left"), row.get("right")
            offsets = left and left["n"], right and right["n"]
            yield row["k0"], row["k1"], *offsets, row.get("watermark") is not None
