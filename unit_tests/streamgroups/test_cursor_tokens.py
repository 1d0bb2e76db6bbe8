"""G5: cursors are opaque, signed, versioned, and good for five minutes."""

from __future__ import annotations

import base64
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.cursors.cursor_tokens import (
    LIFETIME_MS,
    Cursor,
    GroupCursor,
    PartitionCursor,
    covers_the_same,
    decode,
    encode,
)
from streamgroups.cursors.pending_ranges import PendingRange
from streamgroups.errors import CursorExpired, InvalidCursor
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition

KEY = b"0123456789abcdef"
FIVE_MINUTES_MS = 5 * 60 * 1000
GROUP = GroupCursor("flights", "billing", "worker-1", "5f2c", (PendingRange(TopicPartition("flights", 0), 3, 100),))

NAMES = st.text(min_size=1, max_size=20)
CURSORS: st.SearchStrategy[Cursor] = st.one_of(
    st.builds(
        PartitionCursor,
        NAMES,
        st.integers(0, 9999),
        st.integers(0, 2**62),
        st.builds(TopicIdentity, st.none() | NAMES, st.none() | NAMES),
    ),
    NAMES.flatmap(
        lambda stream: st.builds(
            GroupCursor,
            st.just(stream),
            NAMES,
            NAMES,
            NAMES,
            st.lists(
                st.builds(
                    PendingRange,
                    st.builds(TopicPartition, st.just(stream), st.integers(0, 9999)),
                    st.integers(0, 2**31),
                    st.integers(0, 2**62),
                )
            ).map(tuple),
        )
    ),
)


@given(CURSORS, st.binary(max_size=70), st.integers(0, 2**42), st.integers(0, LIFETIME_MS))
def test_G5_a_cursor_is_valid_for_five_minutes(cursor: Cursor, key: bytes, now_ms: int, later_ms: int) -> None:
    token = encode(cursor, key, now_ms)
    assert decode(token, key, now_ms + later_ms) == cursor
    with pytest.raises(CursorExpired):
        decode(token, key, now_ms + LIFETIME_MS + 1 + later_ms)


def test_G5_five_minutes_are_five_minutes() -> None:
    assert LIFETIME_MS == FIVE_MINUTES_MS


def test_G5_the_error_of_an_expired_cursor_names_its_owner_and_how_to_create_a_new_one() -> None:
    with pytest.raises(CursorExpired) as rejection:
        decode(encode(GROUP, KEY, 0), KEY, FIVE_MINUTES_MS + 7_000)
    assert "'worker-1' of group 'billing' expired 7 s ago" in rejection.value.what
    assert "create_group_cursor" in rejection.value.remedy
    assert "committed offsets" in rejection.value.remedy


@given(CURSORS, st.data())
def test_G5_a_cursor_that_was_altered_is_rejected(cursor: Cursor, data: st.DataObject) -> None:
    token = encode(cursor, KEY, 0)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda c: c != token[at]))
    with pytest.raises(InvalidCursor):
        decode(token[:at] + other + token[at + 1 :], KEY, 0)


@given(st.text())
def test_G5_a_malformed_cursor_is_rejected(text: str) -> None:
    with pytest.raises(InvalidCursor):
        decode(text, KEY, 0)


@pytest.mark.parametrize("nothing", [None, "", 7, b"sgc1.a.b"])
def test_G5_nothing_is_no_cursor(nothing: Any) -> None:
    with pytest.raises(InvalidCursor, match="This is not a cursor"):
        decode(nothing, KEY, 0)


def test_G5_a_cursor_of_another_key_is_rejected() -> None:
    with pytest.raises(InvalidCursor, match="signing_key"):
        decode(encode(GROUP, KEY, 0), b"another", 0)


def test_G5_a_cursor_of_another_version_is_distinguished_from_a_damaged_one() -> None:
    with pytest.raises(InvalidCursor, match="version 'sgc2'"):
        decode(encode(GROUP, KEY, 0).replace("sgc1", "sgc2"), KEY, 0)


def test_G5_cursors_of_version_1_are_read_permanently() -> None:
    token = (
        "sgc1.eyJ4IjozMDAwMDAsInMiOiJmbGlnaHRzIiwiZyI6ImJpbGxpbmciLCJpIjoid29ya2VyLTEiLCJuIjoiNWYyYyIsImMiOltbMCwzLDEwMF1dfQ"
        ".kQmqG3sCEsTo063dAgXnswTe9GSfXKqiPH2THhzacvw"
    )
    assert decode(token, KEY, 0) == GROUP
    assert encode(GROUP, KEY, 0) == token


def test_G5_a_cursor_holds_no_key() -> None:
    _, claims, _ = encode(GROUP, KEY, 0).split(".")
    result = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert set(result) == {"x", "s", "g", "i", "n", "c"}
    assert KEY.decode() not in str(result)


@given(CURSORS, CURSORS, st.integers(0, 2**42), st.integers(0, 2**42))
def test_G5_two_tokens_cover_the_same_whenever_they_were_returned(
    one: Cursor, other: Cursor, now_ms: int, later_ms: int
) -> None:
    assert covers_the_same(encode(one, KEY, now_ms), encode(one, KEY, later_ms))
    assert covers_the_same(encode(one, KEY, now_ms), encode(other, KEY, later_ms)) == (one == other)


@given(st.text() | st.from_regex(r"sgc1\.[A-Za-z0-9_-]{0,8}\.[A-Za-z0-9_-]{0,8}", fullmatch=True))
def test_G5_a_text_that_is_no_cursor_covers_only_what_itself_covers(text: str) -> None:
    assert covers_the_same(text, text)
    assert not covers_the_same(text, encode(GROUP, KEY, 0))


def test_G5_a_deeply_nested_text_is_no_cursor() -> None:
    nested = base64.urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=")
    assert not covers_the_same(f"sgc1.{nested}.x", encode(GROUP, KEY, 0))
