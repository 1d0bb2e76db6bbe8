"""No parser of external input fails on corrupt input. ``make fuzz`` runs the same checks for hours."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.json_values import MAX_DEPTH, read_json, read_json_prefix
from streamgroups_kafka.admin.cluster import parse_subscription
from streamgroups_kafka.admin.groups import parse_assignment
from unit_tests.examples import sequences
from unit_tests.hostile_input import PARSERS, Parser, check, spoiled

each_parser = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


@each_parser
def test_valid_input_is_read(parser: Parser) -> None:
    assert all(check(parser, text) for text in parser.valid)


@each_parser
@settings(max_examples=sequences(150))
@given(seed=st.integers(0, 2**32 - 1))
def test_spoiled_input_is_read_or_rejected(parser: Parser, seed: int) -> None:
    by = random.Random(seed)
    for _ in range(4):
        check(parser, spoiled(by.choice(parser.valid), by))


@each_parser
@given(data=st.data())
def test_any_input_is_read_or_rejected(parser: Parser, data: st.DataObject) -> None:
    check(parser, data.draw(st.text() if isinstance(parser.valid[0], str) else st.binary()))


@pytest.mark.parametrize(
    "text",
    [
        "Infinity",
        "-Infinity",
        "NaN",
        "1e999",
        "[" * 100_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "9" * 5_000,
    ],
    ids=lambda text: text[:10],
)
def test_json_has_bounds(text: str) -> None:
    for read in (read_json, read_json_prefix):
        with pytest.raises(ValueError, match=r"."):
            read(text)
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_a_subscription_takes_no_more_than_its_bytes() -> None:
    """A member can send arbitrary bytes. A count of 2^31 - 1 topics took minutes and 17 GB in each driver that
    described the group.
    """
    for count, length in ((2**31 - 1, -2), (5, -2), (-1, 0), (1, 9)):
        with pytest.raises(ValueError, match=r"\d+ (topics|bytes)"):
            parse_subscription(b"\0\0" + struct.pack(">ih", count, length) + b"ab")


@pytest.mark.parametrize(
    "assignment",
    ["0000 00000001 ffff 00000001 00000000 ffffffff", "0000 ffffffff ffffffff", "0000 00000001 0001 61 ffffffff"],
)
def test_an_assignment_with_nulls_is_malformed(assignment: str) -> None:
    assert parse_assignment(bytes.fromhex(assignment)) == frozenset()
