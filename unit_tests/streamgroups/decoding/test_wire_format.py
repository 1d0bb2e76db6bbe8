"""The wire format of schema registries."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.decoding.value_errors import CannotDecode, Kind
from streamgroups.decoding.wire_format import header, joined_indexes, split_header, split_indexes


@given(st.integers(0, 2**32 - 1), st.binary())
def test_any_header_round_trips(schema_id: int, rest: bytes) -> None:
    assert split_header(header(schema_id) + rest) == (schema_id, rest)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=64), st.binary())
def test_any_indexes_round_trip(indexes: list[int], rest: bytes) -> None:
    assert split_indexes(joined_indexes(indexes) + rest) == (tuple(indexes), rest)


@given(st.binary())
def test_any_bytes_have_a_header_or_a_problem(value: bytes) -> None:
    for split in (split_header, split_indexes):
        with suppress(CannotDecode):
            assert split(value)


@pytest.mark.parametrize(
    ("value", "kind"), [(b"", Kind.EMPTY), (b"\x01\x00\x00\x00\x01", Kind.NO_MAGIC_BYTE), (b"\x00", Kind.NO_MAGIC_BYTE)]
)
def test_a_value_without_a_header(value: bytes, kind: Kind) -> None:
    with pytest.raises(CannotDecode) as error:
        split_header(value)
    assert error.value.problem.kind is kind
