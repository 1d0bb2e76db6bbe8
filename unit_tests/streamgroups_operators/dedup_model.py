"""A model of ``sg.dedup`` record by record, and a query that runs the operator in tasks. Used by ``test_dedup``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.id_filters import bucket_length_ms
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.dedup.dedup_operator import COUNTS, DedupOperator
from streamgroups_operators.dedup.seen_ids import forget_filters
from streamgroups_operators.store import Operator, StateStore
from streamgroups_operators.task_states import TaskStates
from unit_tests.fake_state_files import FakeStateFiles

P0 = TopicPartition("flights", 0)
TOPIC = TopicIdentity("c1", "t1")
START_MS = 1_750_000_000_000
CLOCK_MS = START_MS + 1_000_000
HORIZON_MS = 800
RECORDS = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("id", pa.int64())])
OUTPUT = pa.schema([*RECORDS, *((name, pa.int64()) for name in COUNTS)])
DEDUP = DedupOperator("dedup", "ids", HORIZON_MS, OUTPUT)
Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A record.

    Args:
        id: its id. It is also both halves of the hash, as :func:`halves` spreads it.
        time_ms: its timestamp.
    """

    id: int | None
    time_ms: int | None


def halves(id_: int) -> tuple[int, int]:
    """A hash of an id. Many ids have the same first half, which the hash of Spark avoids."""
    spread = (id_ * 0x9E3779B97F4A7C15) % 2**63
    return (id_ % 3) * 2**60, spread


def batch(records: Sequence[Record], first: int) -> pa.RecordBatch:
    """The records of the partition from an offset on, as the stage receives them."""
    hashes = [(None, None) if it.id is None else halves(it.id) for it in records]
    return pa.record_batch(
        {
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(first, first + len(records)), pa.int64()),
            "id": pa.array([it.id for it in records], pa.int64()),
            "id_high": pa.array([high for high, _ in hashes], pa.int64()),
            "id_low": pa.array([low for _, low in hashes], pa.int64()),
            "id_time_ms": pa.array([it.time_ms for it in records], pa.int64()),
        }
    )


@dataclass
class Reference:
    """The definition of X5, one record after the other."""

    horizon_ms: int = HORIZON_MS
    clock_ms: int = CLOCK_MS
    newest_ms: int = -(2**62)
    ends_ms: dict[int, int] = field(default_factory=dict)
    duplicates: int = 0
    too_old: int = 0

    def returns(self, record: Record) -> bool:
        """Whether the record is returned."""
        if record.time_ms is not None:
            self.newest_ms = max(self.newest_ms, min(record.time_ms, self.clock_ms))
        watermark_ms = self.newest_ms - self.horizon_ms
        if record.id is None:
            return True
        if record.time_ms is not None and record.time_ms < watermark_ms:
            self.too_old += 1
            return False
        if self.ends_ms.get(record.id, -(2**63)) > watermark_ms:
            self.duplicates += 1
            return False
        length_ms = bucket_length_ms(self.horizon_ms)
        self.ends_ms[record.id] = (self.newest_ms // length_ms + 1) * length_ms
        return True


def returned(records: Sequence[Record]) -> list[int]:
    """The offsets of the records that the model returns."""
    model = Reference()
    return [offset for offset, record in enumerate(records) if model.returns(record)]


class Query:
    """Runs the operator over ranges, each in a task of its own that shares nothing but files with the others."""

    def __init__(self, operator: DedupOperator = DEDUP, files: FakeStateFiles | None = None) -> None:
        forget_filters()
        self.operator, self.files = operator, files or FakeStateFiles()
        self.attempts, self.clock_ms, self.next_offset = 0, CLOCK_MS, 0
        self.state: New | Named = New()
        self.scope = Operator("billing", operator.name, operator.form, operator.schema)
        self.counts = np.zeros(len(COUNTS), np.int64)
        self.read_files = 0

    def run(
        self, records: Sequence[Record], end: int, read_from: int | None = None, chunk: int = 7
    ) -> tuple[Manifest, list[int]]:
        """Runs a batch. The records are those of the partition from offset 0 on. Returns the offsets of its output."""
        self.attempts += 1
        read_from = self.next_offset if read_from is None else read_from
        ranges = (RangePlan(OffsetRange(P0, self.next_offset, end), self.state, read_from, TOPIC),)
        plan = TaskPlan("memory", "billing", self.clock_ms, "1f3a9c2b7d10", self.attempts, ranges)
        task = TaskStates(self.operator, plan, StateStore(self.scope, self.files))
        for at in range(read_from, end, chunk):
            task.add(batch(records[at : min(at + chunk, end)], at))
        manifest, output = task.finish(plan.file(self.attempts))
        self.read_files = task.figures.read_files
        rows = [row for table in output for row in table.to_pylist()]
        for row in rows:
            if COUNTS[0] in row:
                self.counts += [row[name] for name in COUNTS]
        return manifest, [row["offset"] for row in rows if "offset" in row]

    def advance(
        self, records: Sequence[Record], end: int, read_from: int | None = None, chunk: int = 7
    ) -> tuple[Manifest, list[int]]:
        """Runs a batch and continues with its state."""
        manifest, offsets = self.run(records, end, read_from, chunk)
        self.state, self.next_offset = Named(manifest.file, end), end
        return manifest, offsets

    def seek(self, offset: int, *, kept: bool = False) -> int:
        """Continues at an offset that a tool has set. Returns the first offset to read."""
        store, position = StateStore(self.scope, self.files), Position(P0, offset, Unnamed(), TOPIC)
        choice = store.find_kept(position) if kept else store.find(position)
        self.state = Named(choice.file, choice.state.next_offset) if isinstance(choice, Stored) else New()
        self.next_offset = offset
        return min(offset, choice.read_from)
