"""X2, X3: what a sink with a ledger of its own does with a batch on the driver, on a ledger in memory and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from streamgroups.dlq.limits import DeadLetters, LetterLimits
from streamgroups.errors import FencedBatch, InvalidOption, LedgerConflict, RecordRejected, TooManyDeadLetters
from streamgroups.fakes import FakeLedger
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.ledgers.no_data_batch import NoDataBatch
from streamgroups.ledgers.staging import Isolated, RejectedRow
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_spark.messages.batch import BatchFacts, OutputWritten
from streamgroups_spark.sinks import base, exactly_once
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch
from streamgroups_spark.sinks.ledger_writer import LedgerStreamWriter
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, check_isolation, check_letter_mode, letter_table

P0 = TopicPartition("flights", 0)
RANGES = (OffsetRange(P0, 5, 9),)
FACTS = BatchFacts(
    end={"version": 2, "n": 1, "ranges": {}, "resting": {}},
    group_id="airline",
    member="one",
    ranges=RANGES,
    held=RANGES,
    written=(),
    group_metadata=None,
    mode=MembershipMode.EXCLUSIVE,
    joins=True,
)
READS = BatchInfo((FACTS,), 1)
NO_DATA_BATCH = NoDataBatch("5f2c", 4, 99)
NO_DATA = BatchInfo((), 4, NO_DATA_BATCH, (P0,))
ROWS = pa.record_batch({"value": ["a", "b"]})


class Sink:
    """Stages in memory. Its data belongs to the class, as the data of a real sink is in a database: a sink itself is pickled."""

    ledger: ClassVar[FakeLedger[Any]]
    begun: ClassVar[list[str]]
    discarded: ClassVar[list[str]]
    conflicts: ClassVar[int]

    def begin(self, schema: pa.Schema, token: str) -> str:
        self.begun.append(token)
        return token

    def write(self, stage: str, records: Iterator[pa.RecordBatch], attempt: int) -> list[str]:
        return [value for batch in records for value in batch.column("value").to_pylist()]

    @contextmanager
    def open(self, group_id: str) -> Iterator[FakeLedger[Any]]:
        assert group_id == "airline"
        if Sink.conflicts:
            Sink.conflicts -= 1
            raise LedgerConflict("another was faster", remedy="again")
        yield self.ledger

    def discard(self, stage: str) -> None:
        self.discarded.append(stage)


class World:
    """A query whose sink is run by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Sink.ledger, Sink.begun, Sink.discarded, Sink.conflicts = FakeLedger("airline"), [], [], 0
        self.seen = READS
        self.status({P0: 5})
        context = SimpleNamespace(taskAttemptId=lambda: 1, partitionId=lambda: 0)
        monkeypatch.setattr(base, "logged_batch", lambda _: LoggedBatch(self.seen.batch_id))
        monkeypatch.setattr(base, "batch_info", lambda *_, **__: self.seen)
        monkeypatch.setattr(base, "prepare_python_worker", lambda: None)
        monkeypatch.setattr(base, "TaskContext", SimpleNamespace(get=lambda: context))

    def status(self, positions: dict[TopicPartition, int]) -> None:
        with Sink.ledger.transaction() as transaction:
            transaction.positions(positions.keys())
            transaction.advance(positions)

    def writer(self) -> LedgerStreamWriter:
        return LedgerStreamWriter(Sink(), ROWS.schema, "checkpoint", "session", ("airline",))

    def sent(self) -> LedgerStreamWriter:
        """A writer as a task gets it."""
        sent: LedgerStreamWriter = cloudpickle.loads(cloudpickle.dumps(self.writer()))
        return sent

    def run(self, batch_id: int = 1) -> Sequence[TaskOutput]:
        reported = [self.sent().write(iter([ROWS]))]
        self.writer().commit(reported, batch_id)
        return reported


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_X2_output_and_positions_change_together_and_the_stage_goes(world: World) -> None:
    (reported,) = world.run()
    assert Sink.ledger.written == [[["a", "b"]]]
    assert Sink.ledger.positions([P0]) == {P0: 9}
    assert Sink.discarded == [reported.begun] == Sink.begun


def test_X2_a_batch_that_runs_again_writes_nothing(world: World) -> None:
    world.run()
    world.run()
    assert Sink.ledger.written == [[["a", "b"]]]


def test_X2_a_batch_that_the_source_reports_as_written_is_not_staged(world: World) -> None:
    world.seen = BatchInfo((replace(FACTS, written=RANGES),), 1)
    (reported,) = world.run()
    assert (reported.begun, reported.records, Sink.begun) == (None, 0, [])


def test_X2_a_no_data_batch_is_recorded_in_the_ledger_and_neither_staged_nor_written_again(world: World) -> None:
    world.seen = NO_DATA
    world.run(4)
    assert Sink.ledger.positions(NO_DATA_BATCH.positions) == NO_DATA_BATCH.positions
    assert len(Sink.begun) == 1
    (reported,) = world.run(4)
    assert reported.begun is None
    assert len(Sink.begun) == 1, "nothing is staged that is written already"
    assert Sink.ledger.written == [[["a", "b"]]]


def test_X3_a_no_data_batch_of_a_checkpoint_that_was_set_back_is_fenced_before_it_is_staged(world: World) -> None:
    world.seen = NO_DATA
    world.status(NoDataBatch("5f2c", 5, 1).positions)
    with pytest.raises(FencedBatch, match="batch 5"):
        world.sent()
    assert Sink.begun == []


def test_X4_a_batch_with_records_does_not_repeat_a_no_data_batch(world: World) -> None:
    world.seen = BatchInfo((replace(FACTS, query_id="5f2c", may_repeat_no_data=True),), 4)
    world.status(NO_DATA_BATCH.positions)
    with pytest.raises(FencedBatch, match="no-data batch 4"):
        world.run(4)
    assert (Sink.ledger.written, Sink.ledger.positions([P0])) == ([], {P0: 5})
    world.seen = BatchInfo((replace(FACTS, query_id="5f2c"),), 4)
    world.run(4)
    assert Sink.ledger.positions([P0]) == {P0: 9}, "a query without state has no such batches"


def test_X3_a_batch_whose_ledger_is_at_another_position_is_fenced(world: World) -> None:
    world.status({P0: 7})
    with pytest.raises(FencedBatch, match="flights-0"):
        world.run()
    assert Sink.ledger.written == []


def test_X3_a_batch_that_begins_as_another_one_is_fenced(world: World) -> None:
    """Another query with the checkpoint has logged a batch before the begin, which reads the newest one."""
    reported = [world.sent().write(iter([ROWS]))]
    with pytest.raises(FencedBatch, match="batch 2 has begun as that of batch 1"):
        world.writer().commit(reported, 2)
    assert (Sink.ledger.written, Sink.ledger.positions([P0])) == ([], {P0: 5})


def test_a_batch_without_records_moves_the_positions(world: World) -> None:
    reported = world.sent().write(iter([ROWS.slice(0, 0)]))
    world.writer().commit([reported, None], 1)
    assert (Sink.ledger.written, Sink.ledger.positions([P0])) == ([], {P0: 9})


def test_a_batch_without_tasks_moves_nothing(world: World) -> None:
    world.writer().commit([None], 1)
    assert Sink.ledger.positions([P0]) == {P0: 5}


def test_X2_a_commit_that_lost_a_race_is_repeated(world: World) -> None:
    reported = [world.sent().write(iter([ROWS]))]
    Sink.conflicts = 2
    world.writer().commit(reported, 1)
    assert Sink.ledger.positions([P0]) == {P0: 9}


def test_a_batch_that_failed_leaves_no_stage(world: World) -> None:
    reported = world.sent().write(iter([ROWS]))
    world.writer().abort([None, reported], 1)
    world.writer().abort([None], 1)
    assert Sink.discarded == [reported.begun]
    assert Sink.ledger.written == []


class IsolatingSink(Sink):
    """Its table rejects ``b``, and what another transaction writes meanwhile."""

    conninfo, isolate_violations, mode = "host=one", True, "upsert"
    rejected: ClassVar[set[str]]
    meanwhile: ClassVar[list[str]]

    @contextmanager
    def open(self, group_id: str) -> Iterator[FakeLedger[Any]]:
        yield cast("FakeLedger[Any]", _Checking(self.ledger))

    def write(self, stage: str, records: Iterator[pa.RecordBatch], attempt: int) -> list[str]:
        return [value for batch in records for value in batch.column(0).to_pylist()]

    def isolate(self, staged: Sequence[list[str]], most: int) -> Isolated:
        values = [it for task in staged for it in task]
        found = [it for it in values if it in self.rejected][: most + 1]
        kept = [it for it in values if it not in found]
        self.rejected.update(self.meanwhile[:1])
        del self.meanwhile[:1]
        error = RecordRejected("duplicate key", remedy="none")
        return Isolated([kept], len(kept), tuple(RejectedRow({"value": it}, error) for it in found))


class _Checking:
    """A ledger whose transactions reject rows."""

    def __init__(self, ledger: FakeLedger[Any]) -> None:
        self._ledger, self.positions = ledger, ledger.positions

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._ledger.transaction() as transaction:
            write = transaction.write

            def checked(output: Sequence[list[str]]) -> None:
                if IsolatingSink.rejected & {it for task in output for it in task}:
                    raise RecordRejected("duplicate key", remedy="none")
                write(output)

            transaction.write = checked  # type: ignore[method-assign]
            yield transaction


@pytest.fixture
def isolating(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    IsolatingSink.rejected, IsolatingSink.meanwhile = {"b"}, []
    monkeypatch.setattr(base, "query_of", lambda *_: "board")
    monkeypatch.setattr(base.TaskContext.get(), "getLocalProperty", lambda *_: "board", raising=False)
    monkeypatch.setattr(LedgerStreamWriter, "_report", lambda *_: None)
    dead = LetterOutput(IsolatingSink(), LetterLimits(max_per_batch=1, max_share=None), ("airline",), with_output=True)
    monkeypatch.setattr(
        world,
        "writer",
        lambda: LedgerStreamWriter(IsolatingSink(), ROWS.schema, "checkpoint", "session", ("airline",), dead),
    )
    return world


def test_P4_the_rejected_rows_of_a_transaction_become_dead_letters_in_it(isolating: World) -> None:
    isolating.run()
    (((kept, ids),),) = [Sink.ledger.written]
    assert kept == ["a"]
    assert [it.split("/")[0] for it in ids] == ["airline"]
    assert Sink.ledger.positions([P0]) == {P0: 9}


def test_P4_rows_that_are_rejected_meanwhile_are_isolated_too_and_count_for_the_limit(isolating: World) -> None:
    IsolatingSink.meanwhile = ["a"]
    with pytest.raises(TooManyDeadLetters, match=r"has 2 dead letters of 4 records \(sink: 2\), and max_per_batch"):
        isolating.run()
    assert Sink.ledger.written == []
    assert Sink.ledger.positions([P0]) == {P0: 5}


def test_P4_a_rejection_without_a_row_ends_the_query(isolating: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def isolate(_: Any, staged: Sequence[Any], most: int) -> Isolated:
        calls.append(most)
        return Isolated(staged, 2, ())

    monkeypatch.setattr(IsolatingSink, "isolate", isolate)
    with pytest.raises(RecordRejected, match="duplicate key"):
        isolating.run()
    assert calls == [1] * 5
    assert Sink.ledger.written == []


@pytest.mark.parametrize("dead", [None, SimpleNamespace(conninfo="host=another")])
def test_P4_isolation_requires_dead_letters_in_the_same_database(dead: Any) -> None:
    sink = SimpleNamespace(conninfo="host=one", isolate_violations=True, table="board")
    with pytest.raises(
        InvalidOption, match=r"'isolate_violations' of table board is set, but 'dead_letters' is .*same connection"
    ):
        check_isolation(sink, dead)
    check_isolation(sink, sink)
    check_isolation(SimpleNamespace(), dead)


def test_X2_the_statements_of_a_divided_batch_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(base, "query_id_of", lambda _: "q1")
    monkeypatch.setattr(base, "request_user", lambda _, request: reported.append(request))
    world.run()
    assert reported == [], "the figures of a usual batch cost nothing"
    world.status({P0: 5})
    monkeypatch.setattr(Sink.ledger, "statements", {"rows": 2}, raising=False)
    world.run()
    assert reported == [OutputWritten("q1", {}, {"rows": 2})]


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ({"mode": "overwrite_partitions", "partition_by": ("step",)}, "mode='overwrite_partitions'"),
        ({"mode": "upsert", "key": ("topic", "failed_at")}, r"mode='upsert', key=\('topic', 'failed_at'\)"),
        ({"mode": "upsert", "key": ("topic",)}, r"mode='upsert', key=\('topic',\)"),
        ({"mode": "upsert", "key": ("id",), "delete_marker": "gone"}, r"key=\('id',\), delete_marker='gone'"),
    ],
)
def test_X9_a_table_in_which_letters_replace_others_is_rejected(setting: dict[str, Any], given: str) -> None:
    with pytest.raises(InvalidOption, match=f"The sink of dead letters has .*{given}: a letter would replace"):
        check_letter_mode(DeltaSink(uri="/data/dead", **setting))


@pytest.mark.parametrize("setting", [{}, *({"mode": "upsert", "key": key} for key in (("id",), ("id", "failed_at")))])
def test_X9_a_table_that_keeps_each_letter_is_accepted(setting: dict[str, Any]) -> None:
    check_letter_mode(DeltaSink(uri="/data/dead", **setting))
    check_letter_mode(letter_table(PostgresSink(conninfo="postgresql://db/flights", table="dead", **setting)))


def test_X9_a_query_checks_the_table_of_its_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "check_letters", lambda _: None)
    sink = DeltaSink(uri="/data/dead", mode="overwrite_partitions", partition_by=("step",))
    for given in (sink, DeadLetters(sink=sink)):
        with pytest.raises(InvalidOption, match="a letter would replace"):
            exactly_once.checked_letters(cast(Any, SimpleNamespace(columns=[])), given)
