"""P4, X2: each record that a broker rejects is found, and all others are written once and in order, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from streamgroups.errors import RecordRejected
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.transactions import transaction_requests as transaction_session
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.task_output import OutputSettings, RejectedRecord, Written, write_records
from streamgroups_kafka.write.compression import Compression
from streamgroups_kafka.write.record_batches import BatchSettings
from unit_tests.examples import examples
from unit_tests.scripted_brokers import ScriptedBrokers

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
LATEST_MS, MAX_BYTES = 5_000, 300


class ValidatingBrokers(ScriptedBrokers):
    """Brokers with the rules of a compacted topic: Kafka's ``LogValidator`` and ``ProducerAppendInfo``.

    Args:
        names_records: whether responses name the rejected records, as since Kafka 2.4.
        max_bytes: the maximum size of a record batch.
        is_compacted: whether each record needs a key.
    """

    def __init__(self, *, names_records: bool, max_bytes: int = MAX_BYTES, is_compacted: bool = True) -> None:
        super().__init__(out=2, other=1)
        self._names_records, self._max_bytes, self._is_compacted = names_records, max_bytes, is_compacted
        self.rows: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self.records: list[Any] = []
        self._next_sequences: defaultdict[TopicPartition, int] = defaultdict(int)

    def _Produce(self, request: Any, code: int) -> Any:
        responses = [
            SimpleNamespace(
                name=topic.name, partition_responses=[self._append(topic.name, it) for it in topic.partition_data]
            )
            for topic in request.topic_data
        ]
        return SimpleNamespace(responses=responses)

    def _append(self, topic: str, data: Any) -> Any:
        tp, raw = TopicPartition(topic, data.index), bytes(data.records)
        batch = MemoryRecords(raw).next_batch()
        records, code, errors = list(batch), 0, []
        if len(raw) > self._max_bytes:
            code = int(Code.MESSAGE_TOO_LARGE)
        for i, record in enumerate(records):
            has_no_key = self._is_compacted and record.key is None
            if code != Code.MESSAGE_TOO_LARGE and (has_no_key or record.timestamp > LATEST_MS):
                code = int(Code.INVALID_RECORD if has_no_key else Code.INVALID_TIMESTAMP)
                errors.append(SimpleNamespace(batch_index=i, batch_index_error_message=f"No.\n{i}"))
        if not code:
            assert batch.base_sequence == self._next_sequences[tp], "a sequence number is missing"
            self._next_sequences[tp] += len(records)
            self.rows[tp] += [record.value for record in records]
            self.records += records
        named = errors if self._names_records else []
        return SimpleNamespace(index=data.index, error_code=code, record_errors=named, error_message="One is invalid")


def run(
    brokers: ScriptedBrokers,
    batches: list[pa.RecordBatch],
    found: list[RejectedRecord] | None,
    topic: str | None,
    encoded: BatchSettings | None = None,
) -> Written:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_session, "AdminSession", brokers)
        with closing(Transactions(CONFIG, "board")) as transactions:
            transaction = transactions.begin()
            output = OutputSettings(topic, encoded or BatchSettings(batch_bytes=400))
            reject = None if found is None else found.append
            written = write_records(iter(batches), CONFIG, output, transaction, task=0, reject=reject)
            if written.records:
                transactions.commit(transaction)
            return written


_ROWS = st.tuples(
    st.sampled_from([None, b"k"]),
    st.sampled_from([0, 1]),
    st.sampled_from([1, LATEST_MS, LATEST_MS + 1]),
    st.sampled_from([1, 60, 400]),
)


def chunk(rows: list[tuple[bytes | None, int, int, int]], first: int) -> pa.RecordBatch:
    keys, partitions, times, sizes = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": [f"{first + i}".encode().ljust(size, b".") for i, size in enumerate(sizes)],
            "partition": pa.array(partitions, pa.int32()),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )


@pytest.mark.parametrize("names_records", [True, False])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(_ROWS, min_size=1, max_size=25), cut=st.integers(0, 25))
def test_P4_the_rejected_records_are_found_and_the_others_are_written_once(
    names_records: bool, rows: list[tuple[bytes | None, int, int, int]], cut: int
) -> None:
    brokers, found = ValidatingBrokers(names_records=names_records), list[RejectedRecord]()
    chunks = [chunk(part, first) for first, part in ((0, rows[:cut]), (cut, rows[cut:])) if part]
    written = run(brokers, chunks, found, "out")
    good = [key is not None and at <= LATEST_MS and size < 300 for key, _, at, size in rows]
    for partition in (0, 1):
        expected = [i for i, row in enumerate(rows) if good[i] and row[1] == partition]
        assert [int(value.rstrip(b".")) for value in brokers.rows[TopicPartition("out", partition)]] == expected
    numbers = sorted(int(it.row.column("value")[0].as_py().rstrip(b".")) for it in found)
    assert numbers == [i for i, is_good in enumerate(good) if not is_good]
    assert written.records == sum(good)
    for it in found:
        number = int(it.row.column("value")[0].as_py().rstrip(b"."))
        assert f"row {number + 1} of a task" in it.error.what
        assert it.is_too_large == (rows[number][3] == 400)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((None, 1, 1, 1), r"rejects row 2 of a task: Writing in the transaction .* to out-1.*\(No. 0\)"),
        ((b"k", 1, LATEST_MS + 1, 1), "INVALID_TIMESTAMP|rejects a record"),
        ((b"k", 1, 1, 400), "rejects row 2 of a task"),
    ],
)
def test_P4_without_dead_letters_the_error_names_the_record(row: tuple[bytes | None, int, int, int], why: str) -> None:
    with pytest.raises(RecordRejected, match=why) as rejected:
        run(ValidatingBrokers(names_records=True), [chunk([(b"k", 0, 1, 1), row], 0)], None, "out")
    assert "max.message.bytes" in rejected.value.remedy


def test_P4_rows_of_several_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = chunk([(b"k", 0, 1, 1), (None, 0, 1, 1), (None, 0, 1, 1), (b"k", 0, 1, 1)], 0)
    brokers, found = ValidatingBrokers(names_records=True), list[RejectedRecord]()
    run(brokers, [rows.append_column("topic", pa.array(["other", "out", "other", "out"]))], found, None)
    assert sorted(it.error.what.partition(" of a task")[0] for it in found) == [
        "The broker rejects row 2",
        "The broker rejects row 3",
    ]
    assert {str(tp): values for tp, values in brokers.rows.items()} == {"other-0": [b"0"], "out-0": [b"3"]}
    assert [(it.topic, it.row["value"][0].as_py()) for it in found] == [("other", b"2"), ("out", b"1")]


@pytest.mark.parametrize("size", [1, 2_000])
def test_P4_a_rejected_record_has_the_partition_that_the_user_has_set(size: int) -> None:
    """The task selects the partition of the others, and a replay can select another one."""
    brokers, found = ValidatingBrokers(names_records=True), list[RejectedRecord]()
    rows = rows_of(Random(7).randbytes(size), Random(8).randbytes(size))
    rows = rows.set_column(0, "key", pa.array([None, None], pa.binary()))
    run(brokers, [rows.set_column(2, "partition", pa.array([0, None], pa.int32()))], found, "out", COMPRESSED)
    assert [it.row["partition"].to_pylist() for it in found] == [[0], [None]]
    brokers, found = ValidatingBrokers(names_records=True), list[RejectedRecord]()
    run(brokers, [rows.drop_columns(["partition"])], found, "out", COMPRESSED)
    assert [it.row.schema.names for it in found] == [["key", "value", "timestamp"]] * 2


COMPRESSED = BatchSettings(batch_bytes=MAX_BYTES, max_message_bytes=MAX_BYTES, compression=Compression("zstd"))


def rows_of(*values: bytes) -> pa.RecordBatch:
    n = len(values)
    times = pa.array([1] * n, pa.timestamp("ms", "UTC"))
    return pa.record_batch(
        {"key": [b"k"] * n, "value": list(values), "partition": pa.array([0] * n, pa.int32()), "timestamp": times}
    )


def test_P4_records_that_are_too_large_after_compression_are_found() -> None:
    random = Random(7)
    large = [random.randbytes(2_000) for _ in range(3)]
    brokers, found = ValidatingBrokers(names_records=True), list[RejectedRecord]()
    rows = [rows_of(b"first", large[0], b"x" * 2_000), rows_of(large[1], large[2], b"last")]
    written = run(brokers, rows, found, "out", COMPRESSED)
    assert brokers.rows[TopicPartition("out", 0)] == [b"first", b"x" * 2_000, b"last"]
    assert [it.row["value"][0].as_py() for it in found] == large
    assert {it.is_too_large for it in found} == {True}
    assert "compressed with zstd; the maximum is 300 bytes" in found[0].error.what
    assert written.records == 3


def test_P4_a_task_whose_records_are_all_too_large_writes_nothing() -> None:
    brokers, found = ValidatingBrokers(names_records=True), list[RejectedRecord]()
    written = run(brokers, [rows_of(Random(7).randbytes(2_000))], found, "out", COMPRESSED)
    assert (written.records, len(found), dict(brokers.rows)) == (0, 1, {})


def test_X2_without_dead_letters_such_a_record_is_an_error() -> None:
    brokers = ValidatingBrokers(names_records=True)
    with pytest.raises(RecordRejected, match="Row 1, for out-0, makes a record batch of"):
        run(brokers, [rows_of(b"first", Random(7).randbytes(2_000))], None, "out", COMPRESSED)
    assert not brokers.rows
