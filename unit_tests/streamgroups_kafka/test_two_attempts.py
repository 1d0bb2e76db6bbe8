"""X1, X2: two attempts of one task that write in one transaction at the same time never mix their batches.

Spark repeats a stage with attempt number 0 while tasks of the old stage still run, and the shuffle delivers its blocks to
them in another order. The brokers check sequence numbers as Kafka does. Each request is one step; hypothesis chooses
the order of the steps of both attempts.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.errors import StreamGroupsError, TransactionFailed
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.transactions import task_output, transaction_requests
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.task_output import OutputSettings, write_records
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.write import first_cut
from streamgroups_kafka.write.record_batches import BatchSettings
from unit_tests.examples import sequences
from unit_tests.records import kafka_batches
from unit_tests.scripted_brokers import ScriptedBrokers

CONFIG = ClientConfig.from_options({"bootstrap.servers": "none:1"})
SETTINGS = OutputSettings("out", BatchSettings(batch_bytes=400))
DEADLINE_S = 30
Row = tuple[int, str]


class SequencedBrokers(ScriptedBrokers):
    """Appends a batch if it is the next one, and acknowledges it again if it is one of the last five."""

    def __init__(self, **topics: int) -> None:
        super().__init__(**topics)
        self.batches: dict[TopicPartition, list[tuple[int, int]]] = {}

    def _Produce(self, request: Any, code: int) -> Any:
        answers = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                tp, raw = TopicPartition(topic.name, data.index), bytes(data.records)
                answers.append(SimpleNamespace(index=data.index, error_code=self._append(tp, raw)))
        return SimpleNamespace(responses=[SimpleNamespace(name="out", partition_responses=answers)])

    def _append(self, tp: TopicPartition, raw: bytes) -> int:
        sequence, count = struct.unpack_from(">ii", raw, 53)
        appended = self.batches.setdefault(tp, [])
        if (sequence, count) in appended[-5:]:
            return 0
        if sequence != sum(n for _, n in appended):
            return int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        appended.append((sequence, count))
        self.log[tp].append(raw)
        return 0

    @property
    def rows(self) -> Counter[Row]:
        return Counter(
            (tp.partition, record.value.decode())
            for tp, raws in self.log.items()
            for raw in raws
            for batch in kafka_batches(raw)
            for record in batch
        )


class Turns:
    """Lets one of two threads run at a time, from request to request.

    Args:
        order: the numbers of the threads, in the order of their steps.
    """

    def __init__(self, order: Iterator[int]) -> None:
        self._order, self._current, self._done = order, next(order), {0: False, 1: False}
        self._changed = threading.Condition()
        self._me = threading.local()

    def run(self, me: int, attempt: Callable[[], object]) -> StreamGroupsError | None:
        """Returns the error of the attempt."""
        self._me.number = me
        with self._changed:
            self._wait_for(me)
        try:
            attempt()
        except StreamGroupsError as e:
            return e
        finally:
            with self._changed:
                self._done[me] = True
                self._changed.notify_all()
        return None

    def step(self) -> None:
        """Gives the next step to a thread, and waits until it is the turn of the calling thread."""
        me = getattr(self._me, "number", None)
        if me is not None:
            with self._changed:
                self._current = next(self._order, me)
                self._changed.notify_all()
                self._wait_for(me)

    def _wait_for(self, me: int) -> None:
        assert self._changed.wait_for(lambda: self._current == me or self._done[1 - me], DEADLINE_S)


def records(rows: Sequence[Row], of_batch: int) -> Iterator[pa.RecordBatch]:
    """The rows of an attempt, in batches of Spark."""
    for at in range(0, len(rows), of_batch):
        partitions, values = zip(*rows[at : at + of_batch], strict=True)
        yield pa.record_batch({"partition": pa.array(partitions, pa.int32()), "value": values})


def both(
    rows: Sequence[Row], other: Sequence[Row], of_batch: int, order: Iterator[int]
) -> tuple[list[StreamGroupsError | None], SequencedBrokers]:
    """Runs two attempts of a task with these rows; returns their errors and the brokers."""
    brokers = SequencedBrokers(out=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_requests, "AdminSession", brokers)
        begun: OpenTransaction = Transactions(CONFIG, "streamgroups-board").begin()
        turns = Turns(order)
        brokers.before_each = turns.step

        def attempt(me: int) -> StreamGroupsError | None:
            mine = records((rows, other)[me], of_batch)
            return turns.run(me, lambda: write_records(mine, CONFIG, SETTINGS, begun, task=0))

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(attempt, (0, 1))), brokers


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_cut, "MIN_RECORDS", 8)


def distinct_numbers(patch: pytest.MonkeyPatch, numbers: Sequence[int]) -> None:
    """The random numbers of the attempts. Their cuts differ, because first batches have more records than 8."""
    patch.setattr(task_output, "random_number", iter(numbers).__next__)


@pytest.mark.parametrize("of_batch", [40, 10])
def test_X2_the_second_of_two_attempts_that_meet_is_rejected(of_batch: int) -> None:
    """Both see no other writer. The second has written a half when the first continues.

    The records are in one chunk of two batches, or in four chunks of one batch each.
    """
    rows = [(0, f"record {i:02}") for i in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_output, "_CHUNK_BYTES", 1)
        distinct_numbers(patch, (3, 5))
        order = [0] * 4 + [1] * 6 + [0] * 4 + [1] * 9
        (first, second), brokers = both(rows, rows[20:] + rows[:20], of_batch, iter(order))
    assert sorted([first is None, second is None]) == [False, True]
    error = first or second
    assert isinstance(error, TransactionFailed)
    assert brokers.rows == Counter(rows), "the attempt that was not rejected is complete"


@given(
    counts=st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 9)),
    of_batch=st.sampled_from([1_000, 40, 25, 10]),
    seed=st.randoms(use_true_random=False),
    numbers=st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True),
)
@settings(max_examples=sequences(60), deadline=None)
def test_X2_no_order_of_steps_mixes_two_attempts(
    counts: tuple[int, int, int], of_batch: int, seed: Any, numbers: list[int]
) -> None:
    rows = [(p, f"{p}:{i:03}") for p, count in enumerate(counts) for i in range(count)]
    other = list(rows)
    seed.shuffle(other)
    order = (me for _ in range(100) for me in [seed.randrange(2)] * seed.randrange(1, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_output, "_CHUNK_BYTES", 600)
        distinct_numbers(patch, numbers)
        errors, brokers = both(rows, other, of_batch, order)
    assert all(e is None or isinstance(e, TransactionFailed) for e in errors)
    if None in errors:
        assert brokers.rows == Counter(rows), "an attempt that succeeded is complete, and alone"


def test_an_attempt_without_another_writes_all_its_records_in_order() -> None:
    rows = [(i % 3, f"record {i:03}") for i in range(200)]
    brokers = SequencedBrokers(out=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_requests, "AdminSession", brokers)
        patch.setattr(task_output, "_CHUNK_BYTES", 600)
        begun = Transactions(CONFIG, "streamgroups-board").begin()
        written = write_records(records(rows, 10), CONFIG, SETTINGS, begun, task=0)
    assert written.records == 200
    found = {
        tp.partition: [r.value.decode() for raw in raws for batch in kafka_batches(raw) for r in batch]
        for tp, raws in brokers.log.items()
    }
    assert found == {p: [value for partition, value in rows if partition == p] for p in range(3)}


@pytest.mark.parametrize("transactional", [True, False])
def test_a_single_batch_is_not_cut(transactional: bool) -> None:
    brokers = SequencedBrokers(out=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_requests, "AdminSession", brokers)
        begun = Transactions(CONFIG, "streamgroups-board").begin() if transactional else None
        write_records(records([(0, "a"), (0, "b"), (1, "c")], 10), CONFIG, SETTINGS, begun, task=0)
    assert [len(raws) for raws in brokers.log.values()] == [1, 1]


def test_few_records_wait_for_more_before_the_first_batch_of_their_partition() -> None:
    """Two attempts whose first batch has one record cannot differ."""
    rows = [(0, "rare 1"), *((1, f"{i:03}") for i in range(200)), (0, "rare 2"), *((1, f"{i:03}") for i in range(50))]
    brokers = SequencedBrokers(out=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_requests, "AdminSession", brokers)
        patch.setattr(task_output, "_CHUNK_BYTES", 600)
        begun = Transactions(CONFIG, "streamgroups-board").begin()
        write_records(records(rows, 10), CONFIG, SETTINGS, begun, task=0)
    assert brokers.batches[TopicPartition("out", 0)] == [(0, 2)]
    assert brokers.rows == Counter(rows)
