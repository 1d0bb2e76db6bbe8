"""P4, X9: the broker decides the maximum size of a dead letter. One that it rejects is written without some of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.letter_chunks import in_chunks
from streamgroups.dlq.record_headers import parse_headers
from streamgroups.dlq.reduction import REJECTED
from streamgroups.errors import RecordRejected
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions import transaction_requests
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_spark.sinks.letters import of_batch
from streamgroups_spark.sinks.letters.of_batch import write_to_topic
from streamgroups_spark.sinks.sink_options import parse_sink
from unit_tests.streamgroups_kafka.test_broker_rejections import LATEST_MS, ValidatingBrokers

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
DEAD = parse_sink({"kafka.bootstrap.servers": "broker:9092", "topic": "out", "checkpointLocation": "/checkpoint"})
#: Less than the limit of the sink, which is 1,048,588.
MAX_BYTES = 200_000
SMALL = DeadLetter(
    id="billing/flights/0/7/decode",
    group_id="billing",
    query="departures",
    failed_at_ms=2_000,
    attempt=1,
    step="decode",
    error_class="ValueError",
    error="no JSON",
    key=b"k",
    value=b"{",
)


def letter(number: int, **fields: object) -> DeadLetter:
    return replace(SMALL, id=f"billing/flights/0/{number}/decode", **fields)  # type: ignore[arg-type]


def written(letters: Sequence[DeadLetter], brokers: ValidatingBrokers) -> dict[str, DeadLetter]:
    """Writes letters in a transaction, and returns those of the topic by their ids."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_requests, "AdminSession", brokers)
        with closing(Transactions(CONFIG, "letters")) as transactions:
            transaction = transactions.begin()
            write_to_topic(letters, CONFIG, DEAD, transaction)
            transactions.commit(transaction)
    found = [parse_headers(it.headers, key=it.key, value=it.value) for it in brokers.records]
    by_id = {it.id: it for it in found if it is not None}
    assert len(by_id) == len(brokers.records), "each letter is written once"
    return by_id


@pytest.mark.parametrize("names_records", [True, False])
def test_P4_a_letter_that_the_broker_rejects_is_written_without_its_value(names_records: bool) -> None:
    letters = [letter(n, value=b"v" * (500_000 if n % 3 == 1 else 10)) for n in range(7)]
    brokers = ValidatingBrokers(names_records=names_records, max_bytes=MAX_BYTES, is_compacted=False)
    found = written(letters, brokers)
    assert found.keys() == {it.id for it in letters}
    for it in letters:
        if len(it.value or b"") == 10:
            assert found[it.id] == it
            continue
        (size, why) = (found[it.id].details[name] for name in ("value_bytes", REJECTED))
        assert (found[it.id].value, found[it.id].key, size) == (None, b"k", "500000")
        assert why.startswith("value: The broker rejects row")


def test_P4_a_letter_is_written_without_all_fields_that_are_too_large() -> None:
    large = letter(1, key=b"k" * 300_000, value=b"v" * 300_000, headers=(("trace", b"t" * 300_000),))
    brokers = ValidatingBrokers(names_records=True, max_bytes=MAX_BYTES, is_compacted=False)
    found = written([large, SMALL], brokers)
    assert found[SMALL.id] == SMALL
    reduced = found[large.id]
    assert (reduced.key, reduced.value, reduced.headers, reduced.error) == (None, None, (), "no JSON")
    sizes = {name: reduced.details[name] for name in ("key_bytes", "value_bytes", "headers_bytes")}
    assert sizes == {"key_bytes": "300000", "value_bytes": "300000", "headers_bytes": "300005"}


def chunks_of(max_bytes: int, sizes: list[int]) -> Callable[..., Iterator[list[DeadLetter]]]:
    """Divides letters into smaller chunks, and stores the sizes of their values."""

    def in_small_chunks(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
        for chunk in in_chunks(letters, max_bytes):
            sizes.append(sum(len(it.value or b"") for it in chunk))
            yield chunk

    return in_small_chunks


def test_P4_letters_are_written_in_chunks_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """One array of Arrow contains at most 2 GiB. Letters that the broker rejects are written in chunks too."""
    sizes: list[int] = []
    monkeypatch.setattr(of_batch, "in_chunks", chunks_of(100_000, sizes))
    letters = [letter(n, value=b"v" * (500_000 if n % 3 == 1 else 40_000)) for n in range(40)]
    brokers = ValidatingBrokers(names_records=True, max_bytes=MAX_BYTES, is_compacted=False)
    found = written(letters, brokers)
    assert {it.id: it.value for it in letters if len(it.value or b"") == 40_000} == {
        id_: it.value for id_, it in found.items() if it.value is not None
    }
    assert found.keys() == {it.id for it in letters}
    assert len(sizes) > 20
    assert set(sizes) <= {0, 40_000, 80_000, 500_000}


def test_P4_a_letter_that_the_broker_never_accepts_is_named() -> None:
    late = letter(1, failed_at_ms=LATEST_MS + 1)
    brokers = ValidatingBrokers(names_records=True, max_bytes=MAX_BYTES, is_compacted=False)
    why = (
        r"Topic 'out' of the dead letters rejects the dead letter billing/flights/0/1/decode, also without its content"
    )
    with pytest.raises(RecordRejected, match=why):
        written([late, SMALL], brokers)
