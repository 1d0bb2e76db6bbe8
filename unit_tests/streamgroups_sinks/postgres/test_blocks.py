"""X2: blocks contain exactly the rows of a task, and only rows that the table can store."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import RecordRejected
from streamgroups_sinks.postgres.blocks import are_storable, encode_blocks
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn
from streamgroups_sinks.postgres.copy_binary import copy_binary
from streamgroups_sinks.postgres.stages import StageColumn

DATA = StageColumn(RecordColumn("data", Kind.BINARY, "bytea"), "bytea", False, "bytea")
NAME = StageColumn(RecordColumn("name", Kind.STRING, "text"), "text", False, "text")


def decoded(stored: bytes, attempt: int) -> list[bytes]:
    """The blocks of a COPY to the stage."""
    blocks, at = [], 0
    while at < len(stored):
        n_fields, size, number, length = struct.unpack_from(">hiqi", stored, at)
        assert (n_fields, size, number) == (2, 8, attempt)
        at += 18 + length
        blocks.append(stored[at - length : at])
    return blocks


@given(st.lists(st.none() | st.integers(0, 20_000), max_size=30).filter(bool), st.integers(0, 2))
def test_blocks_contain_the_rows_in_order_and_fit_a_page(sizes: list[int | None], n_before: int) -> None:
    values = [None if size is None else bytes([i]) * size for i, size in enumerate(sizes)]
    # A slice, as a task has them.
    records = pa.record_batch({"data": pa.array([b"before"] * n_before + values)}).slice(n_before)
    blocks = decoded(encode_blocks(records, [DATA], before=[7], first_row=0).to_pybytes(), 7)
    rows = [
        copy_binary(records.slice(i, 1), [(DATA.record, "bytea")], before=[], first_row=0) for i in range(len(sizes))
    ]
    assert b"".join(blocks) == b"".join(row.to_pybytes() for row in rows)
    starts = {sum(map(len, rows[:i])) for i in range(len(rows))}
    assert {sum(map(len, blocks[:i])) for i in range(len(blocks))} <= starts
    assert all(len(block) <= 8_000 or block in [row.to_pybytes() for row in rows] for block in blocks)
    assert all(len(a) + len(b) > 8_000 for a, b in itertools.pairwise(blocks)), "no page is half empty"


@pytest.mark.parametrize("values", [pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()])
def test_null_is_rejected_with_column_and_row(values: pa.Array) -> None:
    with pytest.raises(RecordRejected, match=r"column 'name' in row 12 of a task .*NOT NULL"):
        encode_blocks(pa.record_batch({"name": values}), [replace(NAME, not_null=True)], before=[7], first_row=10)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({}, True),
        ({"type": 'text COLLATE pg_catalog."C"'}, True),
        ({"type": "character varying", "type_name": "varchar"}, True),
        ({"type": "character varying(3)", "type_name": "varchar"}, False),
        # A domain can have constraints.
        ({"type": "gate"}, False),
        ({"type": "jsonb", "type_name": "jsonb"}, False),
    ],
)
def test_only_types_that_store_every_value_are_in_blocks(column: dict[str, Any], expected: bool) -> None:
    assert are_storable([DATA, replace(NAME, **column)]) is expected
