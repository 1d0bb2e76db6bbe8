"""P4, X9: letters are completed, limited, and written once, wherever a run is killed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.dlq.completion import BatchOfLetters, as_row, complete
from streamgroups.dlq.letter import LETTER, DeadLetter, Origin, letter_id
from streamgroups.dlq.limits import LetterCounts, LetterLimits, check_limits, count_letters
from streamgroups.dlq.record_headers import parse_headers, to_headers
from streamgroups.dlq.written_letters import missing_letters, with_letters, with_output
from streamgroups.errors import InvalidOption, TooManyDeadLetters
from streamgroups.partitions import OffsetRange, TopicPartition

P = [TopicPartition("flights", n) for n in range(2)]
BATCH = BatchOfLetters("board", 1_000, "billing", {"flights": "billing", "orders": "sales"})


def letter(tp: TopicPartition, offset: int) -> DeadLetter:
    return DeadLetter(
        id=f"{tp}-{offset}", group_id="g", query="q", failed_at_ms=0, attempt=1, step="s", error_class="E", error="no",
        origin=Origin(tp, offset),
    )  # fmt: skip


def failure(**fields: Any) -> dict[str, Any]:
    return {"step": "decode", "error_class": "ValueError", "error": "no", "topic": None, **fields}


# ---- written once ----------------------------------------------------------------------------------------------------


@given(
    bad=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 11))),
    runs=st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), min_size=2, max_size=2),
            st.sampled_from(["none", "before letters", "after letters", "before finish"]),
        ),
        max_size=12,
    ),
)
def test_X9_each_letter_is_written_once_wherever_a_run_is_killed(
    bad: set[tuple[int, int]], runs: list[tuple[list[int], str]]
) -> None:
    """A replay has other ranges and other partitions: the batch is smaller, or another member reads a partition."""
    position, ledger, written = [0, 0], {}, Counter[str]()
    for lengths, killed in [*runs, ([12, 12], "none")]:
        ends = [min(12, position[i] + n) for i, n in enumerate(lengths)]
        batch = [OffsetRange(P[i], position[i], ends[i]) for i in range(2) if ends[i] > position[i]]
        letters = [letter(P[i], o) for i, o in sorted(bad) if position[i] <= o < ends[i]]
        if killed == "before letters":
            continue
        after = with_letters(batch, ledger)
        missing = missing_letters(letters, batch, ledger)
        if missing:
            written.update(it.id for it in missing)
            ledger = {**ledger, **after}
        if killed == "after letters":
            continue
        position = ends
        if letters and killed != "before finish":
            ledger = {**ledger, **with_output(batch, after)}
    assert position == [12, 12]
    assert written == Counter(f"{P[i]}-{o}" for i, o in bad)


def test_X9_a_reset_writes_letters_again() -> None:
    batch = [OffsetRange(P[0], 0, 10)]
    ledger = with_output(batch, with_letters(batch, {}))
    again = [OffsetRange(P[0], 3, 10)]
    assert len(missing_letters([letter(P[0], 5)], again, ledger)) == 1


def test_X9_letters_without_origin_are_written_unless_the_whole_batch_is() -> None:
    (of_aggregate,) = complete([failure()], BATCH)
    batch = [OffsetRange(P[0], 0, 10), OffsetRange(P[1], 0, 10)]
    ledger = with_letters(batch, {})
    assert missing_letters([of_aggregate], batch, ledger) == []
    assert missing_letters([of_aggregate], [OffsetRange(P[0], 0, 11)], ledger) == [of_aggregate]
    assert missing_letters([of_aggregate], [], ledger) == [of_aggregate], "a no-data batch"


# ---- completion ------------------------------------------------------------------------------------------------------


def test_P4_a_letter_has_all_columns_and_survives_kafka() -> None:
    given_headers = [{"key": "trace", "value": b"1"}, {"key": "streamgroups.dlq.attempt", "value": b"4"}]
    source = {"topic": "orders", "partition": 1, "offset": 7, "timestamp": 99, "key": b"k", "value": b"\xff"}
    (found,) = complete(
        [failure(**source, headers=given_headers, details=[("why", "late"), ("nothing", None)])],
        BATCH,
        lambda text: text.replace("no", "***"),
    )
    assert (found.id, found.group_id, found.attempt) == ("sales/orders/1/7/decode", "sales", 5)
    assert (found.error, found.details, found.headers) == ("***", {"why": "late", "nothing": ""}, (("trace", b"1"),))
    assert as_row(found).keys() == LETTER.keys()
    assert parse_headers(to_headers(found), key=b"k", value=b"\xff") == found


def test_P4_a_header_that_is_nested_too_deeply_is_malformed() -> None:
    [letter] = complete([failure(topic="orders", partition=1, offset=7)], BATCH, str)
    headers = [*to_headers(letter), ("streamgroups.dlq.details", b"[" * 100_000)]
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_headers(headers, key=None, value=None)


ORIGINS = st.sampled_from(
    [{}, {"topic": "orders", "partition": 1, "offset": 7}, {"topic": "orders", "partition": 1, "offset": 8}]
)
STEPS = st.sampled_from(["decode", "decode/2", "decode/2/2"])


@given(
    st.lists(
        st.builds(
            lambda origin, step, value, error: failure(**origin, step=step, value=value, error=error),
            ORIGINS,
            STEPS,
            st.sampled_from([b"a", b"b", None]),
            st.sampled_from(["no price", "no sku"]),
        )
    )
)
def test_P4_rows_of_one_record_are_one_letter_if_their_content_is_equal(failures: list[dict[str, Any]]) -> None:
    """Several rows of one record can fail in one step, such as the lines of an order."""
    letters = list(complete(failures, BATCH))
    assert len({it.id for it in letters}) == len(letters)
    assert letters == list(complete(failures, BATCH)), "a replay has the same letters"
    with_origin = Counter((it["offset"], it["step"], it["value"]) for it in failures if it["topic"])
    assert (
        Counter(
            {
                (it.origin.offset, it.step, it.value): int(it.details.get("failed_rows", 1))
                for it in letters
                if it.origin
            }
        )
        == with_origin
    )
    assert sum(it.origin is None for it in letters) == sum(it["topic"] is None for it in failures)
    for it in failures:
        assert any(it["error"] in (found.error, *found.details.values()) for found in letters)


def test_P4_equal_rows_of_different_batches_are_different_letters() -> None:
    first, second = (next(iter(complete([failure()], replace(BATCH, failed_at_ms=at_ms)))).id for at_ms in (1, 2))
    assert first != second


def test_P4_names_with_a_slash_are_not_mistaken_for_topics_and_offsets() -> None:
    first = letter_id("a", "0/7/decode", Origin(TopicPartition("b", 0), 42))
    second = letter_id("a/b/0", "decode", Origin(TopicPartition("42", 0), 7))
    assert first == "a/b/0/42/0%2F7%2Fdecode"
    assert first != second
    assert letter_id("a/b", "x", None) != letter_id("a%2Fb", "x", None)


def test_P4_letters_of_a_recreated_topic_have_other_ids() -> None:
    record = failure(topic="orders", partition=1, offset=7)
    batches = [replace(BATCH, topic_ids=ids) for ids in ({}, {"orders": "AbCdEfGhIjKlMnOpQrStUv"}, {"orders": "Zb3"})]
    assert [it.id for batch in batches for it in complete([record], batch)] == [
        "sales/orders/1/7/decode",
        "sales/orders@AbCdEfGh/1/7/decode",
        "sales/orders@Zb3/1/7/decode",
    ]


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "letters", "records", "exceeded"),
    [
        (LetterLimits(), 50, 100, None),
        (LetterLimits(), 51, 100, "max_share is 0.5"),
        (LetterLimits(), 99, 99, None),
        (LetterLimits(max_share=None), 100, 100, None),
        (LetterLimits(max_share=0), 1, 100, "max_share is 0"),
        (LetterLimits(max_per_batch=0, max_share=None), 1, 1, "max_per_batch is 0"),
        (LetterLimits(max_per_batch=10), 11, 11, "max_per_batch is 10"),
        (LetterLimits(max_per_batch=10, share_from_records=1), 11, 11, "max_per_batch is 10 and max_share is 0.5"),
    ],
)
def test_P4_limits_count_the_letters_of_a_batch(
    limits: LetterLimits, letters: int, records: int, exceeded: str | None
) -> None:
    counts = LetterCounts({"decode": letters})
    if exceeded is None:
        return check_limits(limits, counts, records, 3)
    with pytest.raises(TooManyDeadLetters, match=f"{exceeded}. Nothing of it was written"):
        check_limits(limits, counts, records, 3)
    return None


def test_P4_the_error_of_a_limit_contains_the_first_errors() -> None:
    counts = count_letters([letter(P[0], n) for n in range(5)])
    assert counts.by_step == {"s": 5}
    assert counts.first_errors == tuple(f"E: no at flights-0, offset {n}" for n in range(3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_per_batch": -1},
        {"max_per_batch": 1.5},
        {"max_share": 2},
        {"max_share": "half"},
        {"share_from_records": 0},
    ],
)
def test_P4_limits_out_of_range_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"Option '{next(iter(wrong))}' is"):
        LetterLimits(**wrong)


def test_P4_X9_equal_rows_of_two_members_in_batches_of_one_moment_are_two_letters() -> None:
    """Members of a group read different partitions, and their triggers are aligned. Their queries can have one name."""
    reads = [{"billing": [OffsetRange(tp, 0, 10)]} for tp in P]
    batches = [replace(BATCH, ranges=it) for it in reads]
    batches += [replace(BATCH, ranges=it, topic_ids={"flights": "another"}) for it in reads]
    batches += [replace(BATCH, query_id=it) for it in ("5f2c", "a1")]
    ids = [it.id for batch in batches for it in complete([failure()], batch)]
    assert len(set(ids)) == len(batches)
    assert ids == [it.id for batch in batches for it in complete([failure()], batch)], "a replay has the same ids"
    both = replace(BATCH, ranges={"sales": [OffsetRange(P[1], 0, 1), OffsetRange(P[0], 0, 1)], **reads[0]})
    reordered = replace(BATCH, ranges={**reads[0], "sales": [OffsetRange(P[0], 0, 1), OffsetRange(P[1], 0, 1)]})
    assert both.input == reordered.input


def test_P4_X9_a_replay_with_other_ranges_has_the_same_ids() -> None:
    """Another member owns a partition after the restart, so the replay reads only the other one."""
    first, other = (OffsetRange(tp, 0, 10) for tp in P[:2])
    batches = [
        replace(BATCH, query_id=query_id, ranges={"billing": ranges})
        for query_id in ("5f2c", "a1")
        for ranges in ([first, other], [first])
    ]
    ids = [it.id for batch in batches for it in complete([failure()], batch)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
