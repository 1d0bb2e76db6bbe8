"""S10: segments are merged within a limit of bytes, and rows that are replaced leave the state all the same."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest

from streamgroups_operators import merging
from streamgroups_operators.function_operator import FunctionOperator
from streamgroups_operators.keys import newest_rows
from streamgroups_operators.merging import first_within_limit
from streamgroups_operators.operator import BatchTime, PartReader, State, first_to_merge
from unit_tests.streamgroups_operators.test_function_operator import ALL_KEYS, Query, Record, fold, states_of


def test_the_newest_rows_of_more_than_two_gib_are_found() -> None:
    # The chunks share their bytes, so 2.2 GB need 1 MB only.
    doc = pa.array([b"x" * 1_000_000])
    rows = pa.table({"key": ["a", "b"] * 1_100, "doc": pa.chunked_array([doc] * 2_200), "n": range(2_200)})
    assert newest_rows(rows, ["key"])["n"].to_pylist() == [2_198, 2_199]


@pytest.mark.parametrize("max_bytes", [8, 100, 1_000])
def test_a_merge_is_within_the_limit_and_leaves_few_segments(max_bytes: int) -> None:
    part: list[pa.Table] = []
    written = 0
    with patch.object(merging, "MAX_MERGE_BYTES", max_bytes):
        for _ in range(500):
            part.append(pa.table({"n": [1]}))
            first = first_within_limit(part)
            if first < len(part) - 1:
                part = [*part[:first], pa.concat_tables(part[first:])]
                written += part[-1].num_rows
                assert part[-1].nbytes <= max_bytes
    assert sum(it.num_rows for it in part) == 500
    assert all(first_to_merge([*it]) == 1 or sum(t.nbytes for t in it) > max_bytes for it in pairwise(part))
    # Two neighbours have more bytes than the limit, except the last ones. Each of those has half of the rows.
    assert len(part) <= 2 * 500 * 8 // max_bytes + 8
    assert written <= 500 * 7


@pytest.mark.parametrize("max_bytes", [1, 2_000])
def test_S10_replaced_and_removed_rows_leave_a_state_above_the_limit(max_bytes: int) -> None:
    random, query = Random(5), Query()
    records: list[Record] = []
    state: dict[tuple[str | None, int | None], list[int]] = {}
    most = 0
    with patch.object(merging, "MAX_MERGE_BYTES", max_bytes):
        for i in range(150):
            # A third of the 100 keys has a value. Each record replaces or removes one.
            new = [Record(str(random.randrange(100)), 1, random.choice([1, None, None])) for _ in range(20)]
            query.advance([*records, *new], len(records), len(records) + 20)
            fold(state, list(enumerate(new, len(records))))
            records += new
            manifest, _ = query.run(records, len(records), len(records))
            rows = sum(segment.rows for part in manifest.states[0].parts.values() for segment in part)
            most = max(most, rows) if i > 30 else most
    assert most < 300, "3,000 records have been read"
    assert states_of(query.stored([*ALL_KEYS, *((str(i), 1) for i in range(100))])) == state


def test_S10_replaced_large_rows_among_small_ones_leave_a_state_above_the_limit() -> None:
    """Small rows of new keys outnumber the large rows of a few keys that each batch replaces."""

    def last(_state: pa.Table, records: pa.Table, _time: object) -> tuple[pa.Table, pa.Table]:
        return records.select(["k", "doc"]), records.select(["k"]).slice(0, 0)

    rows = pa.schema([("k", pa.string()), ("doc", pa.binary())])
    operator = FunctionOperator("last", last, ("k",), rows, pa.schema([("k", pa.string())]))
    random, state, n_bytes = Random(1), State(), []
    with patch.object(merging, "MAX_MERGE_BYTES", 100_000):
        for i in range(300):
            hot, new = random.sample([f"hot-{n}" for n in range(65)], 8), [f"{i}-{n}" for n in range(12)]
            docs = [b"x" * 1_000] * 8 + [b"y"] * 12
            records = pa.table({"k": hot + new, "doc": docs, "offset": range(20), "partition": [0] * 20})
            run = operator.begin(state, PartReader(operator.schema), BatchTime(i))
            run.add(records)
            state, _ = run.finish()
            state = State({name: [it.combine_chunks() for it in part] for name, part in state.parts.items()})
            n_bytes.append(sum(it.nbytes for it in state.parts["rows"]))
    live = 65 * 1_000 + 12 * 300 * 20
    assert max(n_bytes) < 4 * live, "2.4 MB of large rows have been replaced"
