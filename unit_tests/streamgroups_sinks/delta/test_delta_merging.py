"""Of rows with the same key the last one counts."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamgroups_sinks.delta.merging import last_per_key

_PART = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=6)


@given(st.lists(_PART, min_size=1, max_size=3))
def test_the_last_row_of_each_key_is_left_in_its_order(parts: list[list[tuple[int, str]]]) -> None:
    number, tables, required = 0, [], dict[tuple[int, str], int]()
    for part in parts:
        numbers = range(number, number + len(part))
        number += len(part)
        tables.append(
            pa.table(
                {
                    "id": pa.array([row[0] for row in part], pa.int64()),
                    "name": pa.array([row[1] for row in part], pa.string()),
                    "n": pa.array(numbers, pa.int64()),
                }
            )
        )
        required |= dict(zip(part, numbers, strict=True))
    found = last_per_key(tables, ["id", "name"]).to_pylist()
    assert {(row["id"], row["name"]): row["n"] for row in found} == required
    assert [row["n"] for row in found] == sorted(required.values())
