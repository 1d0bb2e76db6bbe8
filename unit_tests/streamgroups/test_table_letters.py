"""P4, P5: the rows of a table of dead letters, and which of them a purge deletes."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.dlq.completion import as_row
from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.dlq.redrive import State, plan_redrive
from streamgroups.dlq.stored_letters import TableLetter
from streamgroups.dlq.table_letters import ForeignRow, TablePurge, letter_of, plan_table_purge, queue_name
from streamgroups.partitions import TopicPartition
from unit_tests.letters import LETTER

TABLE = "public.letters"


def row_of(letter: DeadLetter) -> dict[str, Any]:
    """The row of a letter, as a table of PostgreSQL returns it."""
    row = as_row(letter)
    headers = [
        {"key": it["key"], "value": None if it["value"] is None else b64encode(it["value"]).decode()}
        for it in row["headers"]
    ]
    times = {"failed_at_ms": row.pop("failed_at"), "timestamp_ms": row.pop("timestamp")}
    return row | times | {"details": json.dumps(dict(row["details"])), "headers": json.dumps(headers)}


@given(
    st.builds(
        replace,
        st.just(LETTER),
        key=st.none() | st.binary(),
        value=st.none() | st.binary(),
        headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3).map(tuple),
        details=st.dictionaries(st.text(), st.text(), max_size=3),
        origin=st.sampled_from([None, LETTER.origin, Origin(TopicPartition("orders", 0), 0)]),
    )
)
def test_P4_a_row_contains_the_letter(letter: DeadLetter) -> None:
    assert letter_of(row_of(letter), TABLE) == TableLetter(TABLE, letter)


def test_P4_null_details_and_headers_are_empty() -> None:
    found = letter_of(row_of(LETTER) | {"details": None, "headers": None}, TABLE)
    assert found == TableLetter(TABLE, replace(LETTER, details={}, headers=()))


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("id", None, "column 'id' is null"),
        ("step", 1, "column 'step' has a value of type int"),
        ("value", "text", "column 'value' has a value of type str"),
        ("details", "[1]", "The details are no map of texts"),
        ("details", "{", "Expecting"),
        ("headers", "{}", "column 'headers' is no array"),
        ("headers", "[1]", "without a key"),
        ("headers", '[{"key": "a", "value": 1}]', "a value that is no text"),
        ("headers", '[{"key": "a", "value": "?"}]', ""),
    ],
)
def test_P4_a_row_with_an_invalid_column_is_foreign(column: str, value: Any, problem: str) -> None:
    found = letter_of(row_of(LETTER) | {column: value}, TABLE)
    assert isinstance(found, ForeignRow)
    assert problem in found.problem
    assert found.place == "a row of table public.letters"


@pytest.mark.parametrize(
    ("column", "number"), [("attempt", -1), ("attempt", 2**31 - 1), ("offset", -1), ("partition", -1)]
)
def test_P4_a_number_that_is_out_of_range_hides_no_letter(column: str, number: int) -> None:
    found = letter_of(row_of(LETTER) | {column: number}, TABLE)
    assert isinstance(found, TableLetter)
    assert found.letter.attempt in (0, LETTER.attempt)
    assert (found.letter.origin is None) == (column != "attempt")


def test_P5_tables_with_different_names_are_different_queues() -> None:
    tables = [
        ("a", "b", "c"),
        ("a.b", "c", "c"),
        ("a", "b.c", "c"),
        ("a", "b c", "c"),
        ("a", "b_c", "c"),
        ("a", "b", "ü"),
    ]
    names = [queue_name(*it) for it in tables]
    assert len(set(names)) == len(names)
    long = queue_name("d" * 63, "s" * 63, "t" * 63)
    longer = queue_name("d" * 63, "s" * 63, "ü" * 63 + "t" * 63)
    for name in [*names, long, longer]:
        assert len(f"{name}.redriven") <= 249
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")


def test_P5_a_letter_of_a_table_is_sent_as_one_of_a_topic() -> None:
    [planned] = plan_redrive([TableLetter(TABLE, LETTER)], ())
    assert (planned.record.topic, planned.record.value) == ("orders", LETTER.value)


def test_P5_a_purge_of_a_table_deletes_selected_letters_only() -> None:
    letters = [
        (replace(LETTER, id="a", failed_at_ms=1), State.REDRIVEN),
        (replace(LETTER, id="b", failed_at_ms=2), State.WAITING),
        (replace(LETTER, id="c", failed_at_ms=3), State.REDRIVEN),
    ]
    assert plan_table_purge(letters) == TablePurge([("a", 1), ("c", 3)], {State.REDRIVEN: 2})
    assert plan_table_purge(letters, before_ms=3, include_waiting=True) == TablePurge(
        [("a", 1), ("b", 2)], {State.REDRIVEN: 1, State.WAITING: 1}
    )
