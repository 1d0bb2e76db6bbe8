"""P4: the last resort of a record accepts it, whatever its producer has sent."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from streamgroups.dlq.completion import BatchOfLetters, as_row, complete
from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.record_headers import to_headers
from streamgroups.dlq.reduction import REJECTED, fitting, reductions, size_bytes
from streamgroups.dlq.stored_letters import StoredLetter, stored
from streamgroups.message import MAX_HEADERS, Message
from unit_tests.extreme_times import EXTREME_TIMES_MS

BATCH = BatchOfLetters("board", 1_000, "billing")
#: Also NUL, control characters, and half of a surrogate pair, which UTF-8 cannot encode.
TEXTS = st.text(st.characters(codec=None) | st.sampled_from("\0\x1b\ud800\udfff\x7f"), max_size=20)
BYTES = st.none() | st.binary(max_size=20)
NAMES = st.sampled_from(["attempt", "id", "offset", "details", "failed_at_ms"]).map("streamgroups.dlq.".__add__)
NUMBERS = st.sampled_from([b"9" * 4_301, b"2147483647", b"99999999999", b"-1", b"1000", b"1001", b"\xff", b"", b"7"])
HEADERS = st.lists(
    st.none() | st.fixed_dictionaries({"key": st.none() | st.text(max_size=5) | NAMES, "value": BYTES | NUMBERS}),
    max_size=4,
)
FAILURES = st.fixed_dictionaries(
    {
        "step": st.none() | TEXTS,
        "error_class": st.none() | TEXTS,
        "error": st.none() | TEXTS,
        "details": st.none() | st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3),
        "topic": st.none() | TEXTS,
        "partition": st.none() | st.integers(-(2**31), 2**31 - 1),
        "offset": st.none() | st.integers(-(2**63), 2**63 - 1),
        "timestamp": st.sampled_from(list(EXTREME_TIMES_MS.values())),
        "key": BYTES,
        "value": BYTES,
        "headers": st.none() | HEADERS,
    }
)


def letter_of(failure: dict[str, Any]) -> DeadLetter:
    (letter,) = complete([failure], BATCH)
    return letter


@settings(max_examples=300)
@given(FAILURES)
def test_P4_any_failure_is_a_letter_that_a_queue_shows(failure: dict[str, Any]) -> None:
    letter = letter_of(failure)
    texts = [letter.id, letter.step, letter.error_class, letter.error, letter.query, *letter.details]
    assert all(text.isprintable() for text in [*texts, *letter.details.values()])
    assert 1 <= letter.attempt <= 1_000
    headers = to_headers(letter)
    found = stored(Message("dlq", 0, 7, 1_000, letter.key, letter.value, headers))
    assert isinstance(found, StoredLetter)
    assert found.letter == letter
    time_ms = as_row(letter)["timestamp"]
    assert time_ms is None or abs(1_000 * time_ms) < 2**63


@pytest.mark.parametrize("part", ["value", "key", "headers", "details", "error", "error_class", "all"])
@pytest.mark.parametrize("max_bytes", [1_000, 20_000, 1_048_000])
def test_P4_a_letter_of_any_size_fits_its_topic(part: str, max_bytes: int) -> None:
    large = "ü" * 600_000
    fields: dict[str, Any] = {
        "value": large.encode(),
        "key": large.encode(),
        "headers": [{"key": large, "value": large.encode()}],
        "details": [(str(n), large) for n in range(9)] + [(large, "")],
        "error": large,
        "error_class": large,
    }
    chosen = fields if part == "all" else {part: fields[part]}
    given_failure = {"step": "decode", "error": "no", "topic": "t", "partition": 0, "offset": 7, **chosen}
    letter = letter_of(given_failure)
    fit = fitting(letter, max_bytes)
    assert size_bytes(fit) <= max_bytes
    assert (fit.id, fit.origin, fit.attempt) == (letter.id, letter.origin, letter.attempt)
    for name in ("value", "key", "headers"):
        if not getattr(fit, name) and getattr(letter, name):
            assert int(fit.details[f"{name}_bytes"]) >= 1_200_000
    assert fitting(fit, max_bytes) == fit


def test_P4_a_letter_with_too_many_headers_has_only_its_own() -> None:
    fields = {"step": "sink", "error": "no", "headers": [{"key": "h", "value": b""}] * MAX_HEADERS}
    fit = fitting(letter_of(fields), 10_000_000)
    assert (fit.headers, fit.details) == ((), {"headers_bytes": str(MAX_HEADERS)})


def test_P4_the_known_size_of_a_value_stays() -> None:
    fields = {"step": "sink", "error": "too large", "key": b"k" * 2_000, "details": [("value_bytes", "7000000")]}
    assert fitting(letter_of(fields), 1_000).details == {"value_bytes": "7000000", "key_bytes": "2000"}


@given(FAILURES, st.sets(st.sampled_from(["value", "headers", "key", "timestamp", "details", "error", "error_class"])))
def test_P4_a_letter_loses_a_field_that_its_sink_rejects(failure: dict[str, Any], rejected: set[str]) -> None:
    letter = letter_of(failure)

    def accepts(it: DeadLetter) -> bool:
        has = {
            "timestamp": it.origin is not None and it.origin.timestamp_ms is not None,
            # A sink that rejects all details would lose the reason, too.
            "details": any(name in letter.details for name in it.details),
        }
        return not any(has.get(name, getattr(it, name, None)) for name in rejected)

    if accepts(letter):
        return
    found = next(it for it in reductions(letter, "no") if accepts(it))
    assert (found.id, found.step, found.attempt) == (letter.id, letter.step, letter.attempt)
    lost = found.details[REJECTED].partition(":")[0].split(", ")
    if len(rejected) == 1:
        assert lost == list(rejected)
    for name in ("value", "headers", "key"):
        assert name in lost or getattr(found, name) == getattr(letter, name)
