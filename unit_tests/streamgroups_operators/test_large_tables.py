"""S10, W4: rows of more than 2 GiB, which Arrow's ``take`` and ``group_by`` reject. The tests lower the limit instead."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import AggregateOverflow
from streamgroups.event_time.aggregates import parse_aggregate, python_aggregate
from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.windows import Hopping, Windowing
from streamgroups.partitions import TopicPartition
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups_operators import aggregates, large_tables, merging, store
from streamgroups_operators.aggregates import add_up
from streamgroups_operators.joins.join_definition import How, JoinOperator
from streamgroups_operators.joins.run import Input, JoinRun
from streamgroups_operators.large_tables import row_bytes, slices, taken, taken_slice
from streamgroups_operators.operator import BatchTime, PartReader, State, row_count
from streamgroups_operators.results import positioned
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows import fresh_rows, panes
from streamgroups_operators.windows.window_definition import state_schema

_NESTED = pa.struct(
    [
        ("text", pa.string()),
        ("map", pa.map_(pa.string(), pa.binary())),
        ("list", pa.list_(pa.struct([("n", pa.int64()), ("text", pa.string())]))),
        ("flag", pa.bool_()),
    ]
)
_TEXT = st.one_of(st.none(), st.text("xyz", max_size=9))
_VALUES = st.fixed_dictionaries(
    {
        "text": _TEXT,
        "map": st.lists(st.tuples(st.text("k", min_size=1), st.binary(max_size=5)), max_size=3),
        "list": st.lists(st.fixed_dictionaries({"n": st.just(1), "text": _TEXT}), max_size=3),
        "flag": st.booleans(),
    }
)


@given(
    st.lists(st.lists(st.one_of(st.none(), _VALUES), min_size=3, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 1_000), max_size=20),
    st.sampled_from([1, 50, 500]),
)
def test_rows_are_those_of_take(chunks: list[list[object]], numbers: list[int], limit: int) -> None:
    rows = pa.table({"nested": pa.chunked_array([pa.array(it, _NESTED).slice(1) for it in chunks])})
    rows = rows.append_column("n", pa.array(range(rows.num_rows)))
    chosen = np.array(numbers, np.int64) % rows.num_rows
    expected = rows.take(pa.array(chosen))
    with patch.object(large_tables, "MAX_BYTES", limit):
        found = taken(rows, chosen)
        found.validate(full=True)
        assert found.to_pylist() == expected.to_pylist()
        for it in slices((rows, chosen)):
            assert row_bytes(rows)[chosen[it]][:-1].sum() < limit


def test_a_few_rows_of_a_table_above_the_limit_of_one_array_are_found() -> None:
    # The chunks share their bytes, so 2.2 GB need 1 MB only.
    chunk = pa.array([b"x" * 1_000_000])
    rows = pa.table({"value": pa.chunked_array([chunk] * 2_200), "n": range(2_200)})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        rows.take(pa.array([2_100, 3]))
    found = taken(rows, np.array([2_100, 3]))
    assert found["n"].to_pylist() == [2_100, 3]
    assert found["value"].nbytes < 3_000_000


# ---- windows ---------------------------------------------------------------------------------------------------------


def _windows(shape: Hopping, key: pa.DataType) -> WindowOperator:
    count = (parse_aggregate("n", "count(*)"),)
    schema = state_schema(shape, pa.schema([("k0", key)]), count)
    return WindowOperator("windows", Windowing(shape), 0, 1, count, schema, pa.schema([("r0", pa.int64())]))


def test_W7_records_for_dead_letters_are_not_copied_for_each_window() -> None:
    operator = _windows(Hopping(3_600_000, 60_000), pa.string())
    n, record = 200, pa.StructArray.from_arrays([pa.array([b"x" * 5_000] * 200)], ["value"])
    records = pa.table({"time": [1_700_000_000_000] * n, "k0": ["a"] * n, "record": record})
    with patch.object(panes, "taken_slice", wraps=taken_slice) as copied:
        run = operator.begin(State(), PartReader(operator.schema), BatchTime(0))
        run.add(records)
        state, _ = run.finish()
    assert len(state.parts) == 60
    [call] = copied.call_args_list
    assert call.args[0].column_names == ["time", "k0"]
    assert len(call.args[1]) == 60 * n


def test_W4_large_keys_are_grouped_in_parts_and_merged_by_their_bytes() -> None:
    operator = _windows(Hopping(10, 10), pa.binary())
    keys = [b"%02d" % i + b"x" * 1_000 for i in range(50)]
    divided, sizes = aggregates.divided, []

    def parts(rows: pa.Table, by: list[str]) -> Iterator[pa.Table]:
        for it in divided(rows, by):
            sizes.append(it.nbytes)
            yield it

    with (
        patch.object(large_tables, "MAX_BYTES", 5_000),
        patch.object(fresh_rows, "_MERGE_BYTES", 20_000),
        patch.object(aggregates, "divided", parts),
    ):
        run = operator.begin(State(), PartReader(operator.schema), BatchTime(0))
        for _ in range(2):
            for key in keys:
                run.add(pa.table({"time": [5, 5], "k0": pa.array([key, key])}))
        run.add(pa.table({"time": [10], "k0": pa.array([b"z"])}))
        _, [rows] = run.finish()
    assert sorted(zip(rows["k0"].to_pylist(), rows["r0"].to_pylist(), strict=True)) == [(key, 4) for key in keys]
    # The last key of a part can exceed the limit.
    assert max(sizes) < 5_000 + 5 * 1_100


def test_W4_values_of_a_python_aggregate_above_the_limit_of_arrow_are_an_error() -> None:
    # The chunks share their bytes, so 2.2 GB need 1 MB only.
    values = pa.array([[b"x" * 1_000_000]])
    rows = pa.table({"k0": ["a"] * 2_200, "p0": pa.chunked_array([values] * 2_200)})
    with pytest.raises(AggregateOverflow, match=r"have 2,200,\d+,\d+ bytes, and Arrow stores at most 2 GiB"):
        add_up([python_aggregate(len, "value", returns="bigint")], rows, ["k0"], [])


def test_W13_results_above_the_limit_are_sorted() -> None:
    rows = pa.table({"start": [5, 0, 2], "end": [15, 10, 12], "k0": ["x" * 50] * 3, "pane": ["on time"] * 3})
    schema = pa.schema([("k0", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    with patch.object(large_tables, "MAX_BYTES", 100):
        [found] = positioned([rows], schema, TopicPartition("flights", 3), 41)
    assert found["start"].to_pylist() == [0, 2, 5]


# ---- joins -----------------------------------------------------------------------------------------------------------


def test_W18_a_pair_is_found_among_records_of_more_than_two_gib() -> None:
    record = pa.struct([("value", pa.binary())])
    operator = JoinOperator("paid", JoinedTopics("l", "r"), How.INNER, 10, 0, (pa.string(),), record)
    value = pa.StructArray.from_arrays([pa.array([b"x" * 1_000_000])], fields=list(record))
    columns = {"offset": range(2_200), "time": range(2_200), "k0": [f"{i}" for i in range(2_200)]}
    # The chunks share their bytes, so 2.2 GB need 1 MB only.
    left = pa.table(columns | {"record": pa.chunked_array([value] * 2_200)})
    read = PartReader(operator.schema)
    run = JoinRun(operator, (State(), State()), (read, read))
    (state, _), [pairs] = run.finish((Input([left]), Input([left.slice(7, 1)])))
    assert pairs["k0"].to_pylist() == ["7"]
    [part] = state.parts.values()
    assert row_count(part) == 2_200


def test_W18_matches_are_emitted_in_slices() -> None:
    record = pa.struct([("value", pa.binary())])
    operator = JoinOperator("paid", JoinedTopics("l", "r"), How.INNER, 10, 0, (pa.string(),), record)

    def side(n: int, n_bytes: int) -> pa.Table:
        value = pa.StructArray.from_arrays([pa.array([b"x" * n_bytes] * n)], fields=list(record))
        return pa.table({"offset": range(n), "time": [0] * n, "k0": ["a"] * n, "record": value})

    read = PartReader(operator.schema)
    with patch.object(large_tables, "MAX_BYTES", 10_000):
        run = JoinRun(operator, (State(), State()), (read, read))
        _, output = run.finish((Input([side(1, 1_000)]), Input([side(95, 8)])))
    assert sum(it.num_rows for it in output) == 95
    assert len(output) == 10
    assert max(it.nbytes for it in output) < 12_000


def test_W7_a_large_key_is_grouped_apart_from_others() -> None:
    """Otherwise its values fail together with those of keys before it."""
    rows = pa.table({"key": ["a"] * 3 + ["b"] * 5 + ["c"], "value": [b"x" * 100] * 9})
    with patch.object(large_tables, "MAX_BYTES", 400):
        assert [it["key"].unique().to_pylist() for it in aggregates.divided(rows, ["key"])] == [["a"], ["b"], ["c"]]


class _Uncombined:
    """A table with more than 2 GiB in a struct."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def combine_chunks(self) -> pa.Table:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)


def test_rows_that_cannot_be_combined_have_few_chunks() -> None:
    rows = pa.table({"value": pa.chunked_array([["x" * 100]] * 9)})
    with patch.object(large_tables, "MAX_BYTES", 400):
        found = store._combined(_Uncombined(rows))
    assert found == rows
    assert [len(it) for it in found["value"].chunks] == [4, 4, 1]


def test_W19_rows_of_intervals_that_are_added_up_leave_a_state_above_the_limit() -> None:
    hour_ms = 3_600_000
    shape, aggregate = Hopping(hour_ms, hour_ms), (parse_aggregate("s", "max(doc)"),)
    columns = pa.schema([("k0", pa.string()), ("a0", pa.string())])
    schema = state_schema(shape, columns, aggregate, EventShape.INTERVAL)
    results = pa.schema([("r0", pa.string())])
    windowing = Windowing(shape)
    operator = WindowOperator("w", windowing, 0, 1, aggregate, schema, results, event_shape=EventShape.INTERVAL)
    random, state, n_bytes = Random(1), State(), []
    with patch.object(merging, "MAX_MERGE_BYTES", 100_000):
        for i in range(200):
            keys = [str(it) for it in random.sample(range(85), 8)]
            times = {"time": [i] * 8, "until": [24 * hour_ms] * 8}
            run = operator.begin(state, PartReader(operator.schema), BatchTime(0))
            run.add(pa.table({**times, "k0": keys, "a0": ["x" * 1_000] * 8, "offset": range(i * 8, i * 8 + 8)}))
            state, _ = run.finish()
            n_bytes.append(sum(it.nbytes for it in state.parts["intervals"]))
    assert max(n_bytes) < 4 * 85_000, "1.6 MB have been added up"
