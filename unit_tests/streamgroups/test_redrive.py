"""P5: which letters are redriven and purged; each is sent once, also if runs are killed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.dlq.letter import DeadLetter, Origin, letter_id
from streamgroups.dlq.letter_files import document_of, parse_lines
from streamgroups.dlq.record_headers import attempt_of, parse_headers, to_headers
from streamgroups.dlq.redrive import (
    Planned,
    Repaired,
    State,
    is_reserved,
    plan_purge,
    plan_redrive,
    redriven_topic,
    state_of,
    transactions,
)
from streamgroups.dlq.reduction import fitting, reductions
from streamgroups.dlq.stored_letters import Foreign, Selection, StoredLetter, stored
from streamgroups.errors import InvalidOption
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from unit_tests.work import work_of

DLQ = TopicPartition("orders.dlq", 0)


def letter(offset: int, *, attempt: int = 1, error_class: str = "ValueError", failed_at_ms: int = 0) -> DeadLetter:
    origin = Origin(TopicPartition("orders", offset % 2), offset, 1_000 + offset)
    return DeadLetter(
        id=letter_id("board", "decode", origin),
        group_id="board",
        query="prices",
        failed_at_ms=failed_at_ms,
        attempt=attempt,
        step="decode",
        error_class=error_class,
        error="no JSON",
        origin=origin,
        key=b"k",
        value=b"{",
        headers=(("trace", b"1"), ("empty", None)),
    )


def stored_letter(letter: DeadLetter, offset: int = 0, tp: TopicPartition = DLQ) -> StoredLetter:
    return StoredLetter(tp, offset, letter.failed_at_ms, letter)


def test_P5_a_redriven_record_is_the_original_one_and_counts_its_failures() -> None:
    [planned] = plan_redrive([stored_letter(letter(7, attempt=2))], ())
    record = planned.record
    assert (record.topic, record.key, record.value, record.timestamp_ms) == ("orders", b"k", b"{", 1_007)
    assert record.headers[:2] == (("trace", b"1"), ("empty", None))
    assert dict(record.headers)["streamgroups.dlq.redriven_from"] == b"board/orders/1/7/decode"
    assert attempt_of(record.headers) == 2
    # It is no letter, and the headers of its next letter replace these.
    assert parse_headers(record.headers, key=None, value=None) is None
    again = replace(letter(9, attempt=3), headers=record.headers)
    assert Counter(name for name, _ in to_headers(again)) == Counter(name for name, _ in to_headers(letter(9)))


def test_P5_a_queue_with_the_longest_name_has_a_topic_of_redriven_ids() -> None:
    assert redriven_topic("x" * 240) == "x" * 240 + ".redriven"
    for length in range(241, 250):
        assert len(redriven_topic("x" * length)) == 249
    assert redriven_topic("x" * 249) != redriven_topic("x" * 248 + "y")
    assert is_reserved(redriven_topic("x" * 249), "x" * 249)


def test_P5_redriven_parked_and_repeated_letters_are_left_out() -> None:
    letters = [letter(1), letter(2), letter(3, attempt=5), letter(1)]
    plan = plan_redrive(map(stored_letter, letters), {letter(2).id})
    assert [it.state for it in plan] == [State.WAITING, State.REDRIVEN, State.PARKED]
    assert [it.topic for it in plan] == ["orders", None, None]
    plan = plan_redrive(map(stored_letter, letters), {letter(2).id}, include_parked=True, to="orders.retry")
    assert [it.topic for it in plan] == ["orders.retry", None, "orders.retry"]
    assert state_of(letter(3, attempt=5), (), max_attempts=6) is State.WAITING


@pytest.mark.parametrize("timestamp_ms", [0, -1])
def test_P5_a_record_that_would_be_written_differently_is_not_sent(timestamp_ms: int) -> None:
    """librdkafka writes the current time for timestamp 0."""
    given = letter(1)
    assert given.origin is not None
    early = replace(given, origin=replace(given.origin, timestamp_ms=timestamp_ms))
    named = replace(letter(2), headers=(("a\0b", b"1"),))
    plan = plan_redrive(map(stored_letter, [early, named, letter(3)]), (), to="orders")
    assert [(it.state, it.topic, it.is_unwritable) for it in plan] == [
        (State.WAITING, None, True),
        (State.WAITING, None, True),
        (State.WAITING, "orders", False),
    ]
    assert [it.letter_id for sent in transactions(plan, ()) for it in sent] == [letter(3).id]


MISSING_VALUE = [{"missing": "value"}, {"value_bytes": "9"}]
MISSING = [*MISSING_VALUE, {"missing": "key"}, {"missing": "key, value"}, {"key_bytes": "9"}]


def without(details: dict[str, str]) -> DeadLetter:
    """A letter without the parts that its details name."""
    given, names = letter(1), str(details)
    key, value = None if "key" in names else given.key, None if "value" in names else given.value
    return replace(given, details=details, key=key, value=value)


def planned(letter: DeadLetter, **fields: object) -> list[tuple[State, str | None]]:
    """The plan of a file with one line."""
    repaired = parse_lines([json.dumps({"id": letter.id, **fields})], {letter.id: letter}, file="f")
    return [(it.state, it.topic) for it in plan_redrive([stored_letter(letter)], (), repaired=repaired)]


@pytest.mark.parametrize("details", MISSING_VALUE)
def test_P5_a_missing_value_is_not_sent_as_a_tombstone(details: dict[str, str]) -> None:
    tombstone = replace(letter(1), value=None, details={"at": "prices.py:7"})
    assert [it.topic for it in plan_redrive([stored_letter(tombstone)], ())] == ["orders"]
    missing = without(details)
    assert [(it.state, it.topic) for it in plan_redrive([stored_letter(missing)], ())] == [(State.NO_RECORD, None)]
    repaired = {missing.id: Repaired(b"k", b"{}")}
    assert [it.topic for it in plan_redrive([stored_letter(missing)], (), repaired=repaired)] == ["orders"]


@pytest.mark.parametrize("details", MISSING)
def test_P5_an_exported_letter_without_a_part_is_not_sent_unless_the_part_is_added(details: dict[str, str]) -> None:
    given = without(details)
    document = document_of(given)
    assert given.missing_parts == {name for name in ("key", "value") if name not in document}
    assert planned(given, **document) == [(State.NO_RECORD, None)]
    assert planned(given) == [(State.NO_RECORD, None)]
    # Null is a value that the user has chosen: no document of a letter contains it for a missing part.
    added: dict[str, object] = dict.fromkeys(given.missing_parts)
    assert planned(given, **added) == [(State.WAITING, "orders")]
    if len(added) > 1:
        assert planned(given, value="{}") == [(State.NO_RECORD, None)]


def test_P5_an_exported_letter_without_headers_is_not_sent_unless_it_is_repaired() -> None:
    given = replace(letter(1), headers=(), details={"headers_bytes": "9"})
    assert planned(given, **document_of(given)) == [(State.NO_RECORD, None)]
    assert planned(given, value="{}") == [(State.WAITING, "orders")]


def test_P5_a_document_contains_a_tombstone_and_a_null_key() -> None:
    given = replace(letter(1), key=None, value=None)
    document = document_of(given)
    assert (document["key"], document["value"]) == (None, None)
    assert planned(given, **document) == [(State.WAITING, "orders")]
    no_origin = replace(given, origin=None, details={})
    assert no_origin.missing_parts == {"value"}


def test_P5_a_reduced_letter_names_its_missing_parts() -> None:
    given = replace(without({"missing": "key, value"}), details={"missing": "key, value", "record": "x" * 5_000})
    reduced = [*reductions(given, "no"), fitting(given, 400)]
    assert reduced[-1].details.keys() == {"missing", "headers_bytes"}
    assert all({"key", "value"} <= it.missing_parts for it in reduced)


def test_P5_a_letter_without_a_source_record_needs_a_topic_and_content() -> None:
    row = replace(letter(1), origin=None, key=None, value=None)
    for_sale = replace(row, value=b"{}")
    assert [it.state for it in plan_redrive([stored_letter(row)], (), to="orders")] == [State.NO_RECORD]
    assert [it.state for it in plan_redrive([stored_letter(for_sale)], ())] == [State.NO_RECORD]
    [planned] = plan_redrive([stored_letter(for_sale)], (), to="orders")
    assert (planned.topic, planned.record.timestamp_ms) == ("orders", None)
    repaired = {row.id: Repaired(None, b"{}")}
    [planned] = plan_redrive([stored_letter(row)], (), to="orders", repaired=repaired)
    assert (planned.state, planned.record.value) == (State.WAITING, b"{}")
    with pytest.raises(ValueError, match="is not sent"):
        _ = Planned(stored_letter(row), State.NO_RECORD).record


@given(
    st.integers(0, 30),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=8),
    st.sets(st.integers(0, 30)),
)
def test_P5_each_letter_is_sent_once_whenever_runs_are_killed(
    count: int, most: int, kills: list[tuple[int, bool]], before: set[int]
) -> None:
    letters = [stored_letter(letter(it), it) for it in range(count)]
    redriven = {letter(it).id for it in before}
    sent: list[str] = []

    def run(killed_in: int | None, after_commit: bool) -> None:
        # The plan was printed before the redrive has started, so its ids can be old.
        for number, records in enumerate(transactions(plan_redrive(letters, ()), frozenset(redriven), most=most)):
            assert 0 < len(records) <= most
            if number == killed_in and not after_commit:
                return
            sent.extend(it.letter_id for it in records)
            redriven.update(it.letter_id for it in records)
            if number == killed_in:
                return

    for killed_in, after_commit in kills:
        run(killed_in, after_commit)
    run(None, False)
    assert sorted(sent) == sorted(letter(it).id for it in range(count) if it not in before)


def test_P5_a_transaction_has_a_limited_size() -> None:
    letters = [stored_letter(replace(letter(it), value=b"x" * (3 << 20))) for it in range(3)]
    assert [len(it) for it in transactions(plan_redrive(letters, ()), ())] == [1, 1, 1]


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(BYTES, BYTES)
def test_P5_an_exported_letter_contains_its_bytes(key: bytes | None, value: bytes | None) -> None:
    given = replace(letter(1), key=key, value=value)
    line = json.dumps(document_of(given))
    assert parse_lines([line, "", "\n"], {given.id: given}, file="f") == {given.id: Repaired(key, value)}


def test_P5_a_repaired_value_can_be_json_and_a_missing_one_is_unchanged() -> None:
    given = letter(1)

    def repaired(**fields: object) -> Repaired:
        return parse_lines([json.dumps({"id": given.id, **fields})], {given.id: given}, file="f")[given.id]

    assert repaired() == Repaired(b"k", b"{", frozenset())
    assert repaired(value={"price": 1}) == Repaired(b"k", b'{"price":1}', frozenset({"value"}))
    line = f'{{"id": "{given.id}", "value": {{"price": 100.10, "id": 0.12345678901234567890}}}}'
    assert parse_lines([line], {given.id: given}, file="f")[given.id].value == (
        b'{"price":100.10,"id":0.12345678901234567890}'
    )
    assert repaired(value=None, key="n") == Repaired(b"n", None)
    assert repaired(value_base64="/w==") == Repaired(b"k", b"\xff", frozenset({"value"}))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["{"], "f, line 1 is malformed"),
        (["[]"], "no JSON object with an id"),
        (['{"id": 1}'], "no JSON object with an id"),
        (['{"id": "x"}'], "contains no letter 'x'"),
        (['{"id": "a"}', '{"id": "a"}'], "line 2: the letter 'a' is in an earlier line"),
        (['{"id": "a", "value": "1", "value_base64": "MQ=="}'], "contains value and value_base64"),
        (['{"id": "a", "value_base64": "?"}'], "is no base64"),
        (['{"id": "a", "key_base64": 1}'], "is no text"),
        (['{"id": "a", "value": NaN}'], "NaN"),
        (['{"id": "a", "value": {"price": 1, "price": 2}}'], "the name 'price' is repeated"),
    ],
)
def test_P5_a_malformed_line_is_rejected(lines: list[str], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        parse_lines(lines, {"a": letter(1)}, file="f")


def test_P4_letters_are_selected_by_all_conditions() -> None:
    given = letter(3, error_class="KeyError", failed_at_ms=500)
    for matching in (
        Selection(),
        Selection(ids=[given.id], errors=["KeyError", "ValueError"], steps=["decode"], queries=["prices"]),
        Selection(groups=["board"], sources={"orders": frozenset({1})}, since_ms=500, until_ms=501),
        Selection(sources={"orders": None}),
    ):
        assert matching.matches(given)
    for other in (
        Selection(ids=["x"]),
        Selection(errors=["ValueError"]),
        Selection(steps=["sink"]),
        Selection(queries=["other"]),
        Selection(groups=["other"]),
        Selection(sources={"orders": frozenset({0})}),
        Selection(sources={"flights": None}),
        Selection(since_ms=501),
        Selection(until_ms=500),
    ):
        assert not other.matches(given)
    assert not Selection(sources={"orders": None}).matches(replace(given, origin=None))


def test_P4_a_record_of_the_queue_is_a_letter_or_foreign() -> None:
    headers = to_headers(letter(1))
    record = Message("orders.dlq", 0, 5, 9, b"k", b"{", headers)
    assert stored(record) == StoredLetter(DLQ, 5, 9, letter(1))
    broken = tuple(it for it in headers if not it[0].endswith(".step"))
    assert stored(replace(record, headers=broken)) == Foreign(DLQ, 5, "The header streamgroups.dlq.step is missing.")
    assert stored(replace(record, headers=())) == Foreign(DLQ, 5)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("details", b"[1]"),
        ("details", b'{"at": 1}'),
        ("details", b"[" * 100_000),
        ("error", b"\xff"),
    ],
)
def test_P4_a_letter_with_invalid_facts_is_foreign(header: str, value: bytes) -> None:
    headers = dict(to_headers(replace(letter(1), details={"at": "prices.py:7"})))
    assert f"streamgroups.dlq.{header}" in headers
    headers[f"streamgroups.dlq.{header}"] = value
    record = Message("orders.dlq", 0, 5, 9, b"k", b"{", tuple(headers.items()))
    assert isinstance(stored(record), Foreign)


@pytest.mark.parametrize("number", [b"9" * 30, b"9" * 5_000, b"-1", b"", b"x", b"\xd9\xa3", b"1e9", b"9" * 12])
@pytest.mark.parametrize("header", ["failed_at_ms", "attempt", "partition", "offset", "timestamp_ms"])
def test_P4_a_number_that_is_out_of_range_hides_no_letter(header: str, number: bytes) -> None:
    headers = dict(to_headers(letter(1)))
    headers[f"streamgroups.dlq.{header}"] = number
    found = stored(Message("orders.dlq", 0, 5, 9, b"k", b"{", tuple(headers.items())))
    assert isinstance(found, StoredLetter)
    assert 0 <= found.letter.attempt <= 1_000
    assert abs(found.letter.failed_at_ms) < 2**63
    assert document_of(found.letter)["id"] == letter(1).id
    origin = found.letter.origin
    assert origin is None or (0 <= origin.topic_partition.partition < 2**31 and 0 <= origin.offset < 2**63)
    [planned] = plan_redrive([found], frozenset(), to="orders")
    is_early = (header, number) == ("timestamp_ms", b"-1")
    assert (planned.topic, planned.is_unwritable) == ((None, True) if is_early else ("orders", False))


@pytest.mark.parametrize("part", ["key_bytes", "headers_bytes", "value_bytes"])
def test_P5_a_letter_without_a_part_of_its_record_is_not_sent_unless_it_is_repaired(part: str) -> None:
    key = None if part == "key_bytes" else b"k"
    reduced = stored_letter(replace(letter(1), key=key, value=None, details={part: "1048400"}), 1)
    assert [it.state for it in plan_redrive([reduced], frozenset())] == [State.NO_RECORD]
    repaired = {reduced.letter.id: Repaired(b"k", b"{}")}
    assert [it.topic for it in plan_redrive([reduced], frozenset(), repaired=repaired)] == ["orders"]


def test_P5_a_purge_ends_at_the_first_letter_that_must_remain() -> None:
    other = TopicPartition("orders.dlq", 1)
    letters = [
        (stored_letter(letter(0), 0), State.REDRIVEN),
        (stored_letter(letter(1), 1), State.REDRIVEN),
        (stored_letter(letter(2, failed_at_ms=9), 2), State.WAITING),
        (stored_letter(letter(3), 3), State.REDRIVEN),
        (stored_letter(letter(4), 0, other), State.REDRIVEN),
    ]
    ends = {DLQ: 10, other: 5}
    [first, second] = plan_purge(letters, ends, {})
    assert (first.next_offset, first.deleted, first.kept) == (2, {State.REDRIVEN: 2}, 1)
    assert (second.next_offset, second.deleted, second.kept) == (5, {State.REDRIVEN: 1}, 0)
    [first, _] = plan_purge(letters, ends, {}, include_waiting=True)
    assert (first.next_offset, first.deleted) == (10, {State.WAITING: 1, State.REDRIVEN: 3})
    [first, _] = plan_purge(letters, ends, {}, include_waiting=True, before_ms=9)
    assert (first.next_offset, first.deleted, first.kept) == (2, {State.REDRIVEN: 2}, 1)
    [first, _] = plan_purge(letters, ends, {DLQ: 1}, include_waiting=True)
    assert (first.next_offset, first.deleted, first.kept) == (1, {State.REDRIVEN: 1}, 3)


def test_P5_the_plan_of_a_purge_is_linear_in_the_partitions_and_letters() -> None:
    def work(n: int) -> int:
        partitions = [TopicPartition("orders.dlq", p) for p in range(n)]
        letters = [(stored_letter(letter(0), 0, tp), State.REDRIVEN) for tp in partitions]
        return work_of(lambda: plan_purge(letters, dict.fromkeys(partitions, 1), {}))

    assert work(200) < 2.5 * work(100)
