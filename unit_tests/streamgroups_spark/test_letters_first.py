"""X9: dead letters in another system than the output commit first, and a replay writes none of them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.dlq.limits import LetterLimits
from streamgroups.errors import SinkUnreachable
from streamgroups.fakes import FakeLedger
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.letters.before_output import finish, write_first
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE, GoodRows
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, letters_of

P0, P1 = TopicPartition("flights", 0), TopicPartition("airlines", 1)


class Table:
    """A sink of dead letters with a ledger."""

    def __init__(self) -> None:
        self.ledgers: dict[str, FakeLedger[Any]] = {}
        self.stages: set[str] = set()
        self.is_broken = False

    def begin(self, schema: pa.Schema, token: str) -> str:
        self.stages.add(token)
        return token

    def write(self, stage: str, records: Iterator[pa.RecordBatch], attempt: int) -> list[str]:
        return [id_ for batch in records for id_ in batch["id"].to_pylist()]

    @contextmanager
    def open(self, group_id: str) -> Iterator[FakeLedger[Any]]:
        if self.is_broken:
            raise SinkUnreachable("No answer.")
        yield self.ledgers.setdefault(group_id, FakeLedger(group_id))

    def discard(self, stage: str) -> None:
        self.stages.discard(stage)

    @property
    def ids(self) -> list[str]:
        return [id_ for ledger in self.ledgers.values() for parts in ledger.written for part in parts for id_ in part]


class Batch(BatchInfo):
    """A batch with given ranges."""

    def __init__(self, *ranges: OffsetRange, **of_others: tuple[OffsetRange, ...]) -> None:
        super().__init__((), 3)
        object.__setattr__(self, "_reads", {"billing": ranges, **of_others})

    @property
    def reads(self) -> dict[str, tuple[OffsetRange, ...]]:
        return self._reads  # type: ignore[attr-defined, no-any-return]


def letter(offset: int | None, group_id: str = "billing") -> DeadLetter:
    return DeadLetter(
        id=str(offset),
        group_id=group_id,
        query="q",
        failed_at_ms=0,
        attempt=1,
        step="s",
        error_class="E",
        error="no",
        origin=None if offset is None else Origin(P0, offset),
    )


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def output(table: Table) -> LetterOutput:
    return LetterOutput(table, LetterLimits(), ("billing",), with_output=False)


def test_X9_a_replay_writes_only_what_is_missing(table: Table, output: LetterOutput) -> None:
    first, larger = Batch(OffsetRange(P0, 0, 10)), Batch(OffsetRange(P0, 0, 20))
    write_first(output, [letter(3)], first, str, lambda: first)
    written = write_first(output, [letter(3), letter(15)], larger, str, lambda: larger)
    assert table.ids == ["3", "15"]
    assert set(table.ledgers) == {"billing.streamgroups.letters"}
    assert not table.stages, "no stage remains"
    finish(output, larger, str, written, lambda: larger)
    reset = Batch(OffsetRange(P0, 12, 20))
    write_first(output, [letter(15)], reset, str, lambda: reset)
    assert table.ids == ["3", "15", "15"], "after a reset letters are written again"


@pytest.mark.parametrize(
    ("target", "ids"), [(12, ["15"]), (10, ["15"]), (5, ["15", "8", "15"]), (0, ["15", "3", "8", "15"])]
)
def test_X9_a_reset_to_before_a_batch_without_output_writes_its_letters_again(
    table: Table, output: LetterOutput, target: int, ids: list[str]
) -> None:
    """A reset into the batch does not. The batches after the reset read six records each."""

    def run(batch: Batch) -> None:
        (r,) = batch.reads["billing"]
        letters = [letter(n) for n in (3, 8, 15) if r.next_offset <= n < r.end_offset]
        finish(output, batch, str, write_first(output, letters, batch, str, lambda: batch), lambda: batch)

    killed = Batch(OffsetRange(P0, 10, 20))
    write_first(output, [letter(15)], killed, str, lambda: killed)
    for begin in range(target, 20, 6):
        run(Batch(OffsetRange(P0, begin, begin + 6)))
    assert table.ids == ids


def test_X9_a_letter_without_origin_belongs_to_the_first_group_that_the_batch_reads(table: Table) -> None:
    """The batch has new records of one of two groups. It is killed before the commit of its output."""
    output = LetterOutput(table, LetterLimits(), ("airline", "billing"), with_output=False)
    batch = Batch(OffsetRange(P0, 0, 10), airline=())
    rows = GoodRows(iter(()))
    rows.add(pa.array([{"step": "sink", "error_class": "E", "error": "no"}], FAILURE_TYPE))
    task = rows.letters(0, "q")
    assert task is not None
    for _ in range(2):
        letters = letters_of(output, [task], 1, batch)
        assert [it.group_id for it in letters] == ["billing"]
        assert write_first(output, letters, batch, str, lambda: batch) == {"billing"}
    assert table.ids == [it.id for it in letters]


def test_X9_the_ledger_of_a_letter_without_origin_has_the_ranges_of_all_groups(table: Table) -> None:
    output = LetterOutput(table, LetterLimits(), ("airline", "billing"), with_output=False)
    batch = Batch(OffsetRange(P0, 0, 10), airline=(OffsetRange(P1, 0, 3),))
    more = Batch(OffsetRange(P0, 0, 15), airline=(OffsetRange(P1, 0, 3),))
    for it in (batch, batch, more):
        written = write_first(output, [letter(None, "airline")], it, str, lambda it=it: it)
    assert table.ids == ["None", "None"], "the larger batch can have another letter"
    finish(output, more, str, written, lambda: more)
    write_first(output, [letter(None, "airline")], more, str, lambda: more)
    assert table.ids == ["None"] * 3, "after a reset it is written again"


def test_X9_two_groups_that_read_one_partition_have_ranges_of_their_own(table: Table) -> None:
    output = LetterOutput(table, LetterLimits(), ("airline", "billing"), with_output=False)
    batch = Batch(OffsetRange(P0, 0, 10), airline=(OffsetRange(P0, 4, 6),))
    for _ in range(2):
        write_first(output, [letter(None, "airline"), letter(3)], batch, str, lambda: batch)
    assert table.ids == ["None", "3"]


def test_X9_a_letter_of_an_earlier_record_is_written_once(table: Table, output: LetterOutput) -> None:
    """A join emits the record 3 again, and the sink rejects the row."""
    batch, larger = Batch(OffsetRange(P0, 5, 10)), Batch(OffsetRange(P0, 5, 20))
    for it in (batch, batch):
        write_first(output, [letter(3)], it, str, lambda it=it: it)
    assert table.ids == ["3"]
    # A larger batch can have another row with this record.
    write_first(output, [letter(3)], larger, str, lambda: larger)
    assert table.ids == ["3", "3"]


def test_X9_a_batch_without_letters_changes_nothing(table: Table, output: LetterOutput) -> None:
    batch = Batch(OffsetRange(P0, 0, 10))
    assert write_first(output, [], batch, str, lambda: batch) == frozenset()
    finish(output, batch, str, (), lambda: batch)
    assert table.ledgers == {}


def test_X9_the_batch_is_complete_without_its_last_record_in_the_ledger(table: Table, output: LetterOutput) -> None:
    batch = Batch(OffsetRange(P0, 0, 10))
    written = write_first(output, [letter(3)], batch, str, lambda: batch)
    table.is_broken = True
    finish(output, batch, str, written, lambda: batch)
    table.is_broken = False
    following = Batch(OffsetRange(P0, 10, 20))
    write_first(output, [letter(12)], following, str, lambda: following)
    assert table.ids == ["3", "12"]
