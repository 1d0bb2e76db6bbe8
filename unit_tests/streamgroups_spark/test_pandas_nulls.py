"""P4: a null of a record does not change what pandas has for other records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups_spark.dlq.user_functions import FUNCTIONS

BIG = 2**53 + 1


def by_pandas(function: Callable[[Any], Any], given: dict[str, pa.Array], output: pa.Schema) -> dict[str, list[Any]]:
    result = FUNCTIONS["pandas"](function, "f", output, ())(pa.table(given))
    assert (result.failed, result.at.tolist()) == ((), list(range(len(result.at))))
    columns: dict[str, list[Any]] = result.table.to_pydict()
    return columns


NULLS: dict[str, pa.Array] = {
    "bigint": pa.array([BIG, None, 7], pa.int64()),
    "byte": pa.array([1, None, 7], pa.int8()),
    "boolean": pa.array([True, None, False]),
    "list": pa.array([[BIG, None], [BIG], None, []], pa.list_(pa.int64())),
    "list of booleans": pa.array([[True, None], [False]]),
    "list of lists": pa.array([[[BIG], [None]], [[7], None], None]),
    "list of structs": pa.array([[{"a": BIG}], [{"a": None}], [None]]),
    "struct": pa.array([{"a": BIG, "b": [1]}, {"a": None, "b": [None]}, None]),
    "map": pa.array([[("x", BIG)], [("y", None)]], pa.map_(pa.string(), pa.int64())),
    "map of lists": pa.array([[("x", [BIG])], [("y", [None])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
}


@pytest.mark.parametrize("name", NULLS)
def test_P4_integers_keep_their_digits_beside_a_null(name: str) -> None:
    values = NULLS[name]
    assert by_pandas(lambda it: it, {"c": values}, pa.schema([("c", values.type)])) == {"c": values.to_pylist()}


def types_of(value: Any) -> Any:
    """A text of a value and its types."""
    if isinstance(value, dict):
        return {name: types_of(it) for name, it in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        kind = f"{value.dtype} {value.flags.writeable}" if isinstance(value, np.ndarray) else type(value).__name__
        return kind, [types_of(it) for it in value]
    return repr(value)


@pytest.mark.parametrize("name", NULLS)
def test_P4_what_pandas_has_for_a_record_does_not_depend_on_the_records_beside_it(name: str) -> None:
    def described(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(text=[f"{frame['c'].dtype} {types_of(it)}" for it in frame["c"].array])

    values, output = NULLS[name], pa.schema([("text", pa.string())])
    alone = [by_pandas(described, {"c": values.take([it])}, output)["text"][0] for it in range(len(values))]
    assert by_pandas(described, {"c": values}, output)["text"] == alone


@given(st.lists(st.tuples(*[st.none() | st.integers(-(2**63), 2**63 - 1)] * 2, st.none() | st.booleans()), min_size=1))
def test_P4_a_text_of_integers_does_not_depend_on_nulls_beside_it(rows: list[tuple[Any, ...]]) -> None:
    def label(frame: pd.DataFrame) -> pd.DataFrame:
        if len(frame) > 1 and -1 in frame["n"].tolist():
            raise ValueError("search")
        texts = [f"{'-' if pd.isna(m) else m} {flag}" for m, flag in zip(frame["m"], frame["flag"], strict=True)]
        return frame.assign(label=frame["n"].map(lambda it: "none" if pd.isna(it) else f"order-{it}"), other=texts)

    types = (pa.int64(), pa.int64(), pa.bool_())
    columns = {
        name: pa.array(it, of) for name, it, of in zip(("n", "m", "flag"), zip(*rows, strict=True), types, strict=True)
    }
    output = pa.schema([("n", pa.int64()), ("m", pa.int64()), ("label", pa.string()), ("other", pa.string())])
    assert by_pandas(label, columns, output) == {
        "n": [n for n, _, _ in rows],
        "m": [m for _, m, _ in rows],
        "label": ["none" if n is None else f"order-{n}" for n, _, _ in rows],
        "other": [f"{'-' if m is None else m} {flag}" for _, m, flag in rows],
    }


def test_P4_a_null_of_an_integer_propagates_in_arithmetic_as_in_pandas() -> None:
    given = {"n": pa.array([1, None, 3]), "m": pa.array([None, 2, 4])}
    found = by_pandas(lambda it: it.assign(sum=it["n"] + it["m"]), given, pa.schema([("sum", pa.int64())]))
    assert found == {"sum": [None, None, 7]}


def test_P4_a_function_is_called_once_for_each_combination_of_nulls() -> None:
    calls: list[int] = []

    def count(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        return frame

    output = pa.schema([("n", pa.int64())])
    by_pandas(count, {"n": pa.array(range(9)), "text": pa.array(["a", None, "c"] * 3)}, output)
    by_pandas(count, {"n": pa.array([1, None, None] * 3)}, output)
    assert calls == [9, 3, 6]


def test_P4_a_failed_record_stays_in_its_place_beside_nulls() -> None:
    def fails(frame: pd.DataFrame) -> pd.DataFrame:
        if {1, 5} & set(frame["at"]):
            raise ValueError("bad")
        return frame

    given = pa.table({"n": [None, None, 2, 3, None, 5], "at": range(6)})
    result = FUNCTIONS["pandas"](fails, "f", pa.schema([("n", pa.int64())]), ())(given)
    assert [it.at for it in result.failed] == [1, 5]
    assert (result.at.tolist(), result.table["n"].to_pylist()) == ([0, 2, 3, 4], [None, 2, 3, None])


@pytest.mark.parametrize(
    "returned",
    [
        lambda numbers: numbers,
        lambda numbers: pd.array(numbers, dtype="Int64"),
        lambda numbers: pd.Series(numbers, dtype=object),
        lambda numbers: pd.Series(numbers, dtype=object).map(lambda it: it),
        lambda numbers: pd.array(numbers, dtype=pd.ArrowDtype(pa.int64())),
    ],
)
def test_P4_a_returned_integer_keeps_its_digits_beside_a_returned_null(returned: Callable[[Any], Any]) -> None:
    """pandas converts a list of integers and None to floats."""

    def parsed(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": returned([json.loads(it) for it in frame["value"]])})

    values = [BIG, None, 7, 2**63 - 1]
    given = {"value": pa.array([json.dumps(it) for it in values])}
    assert by_pandas(parsed, given, pa.schema([("n", pa.int64())])) == {"n": values}


def test_P4_large_floats_of_an_integer_column_are_no_failure() -> None:
    found = by_pandas(lambda it: it.assign(n=it["x"]), {"x": pa.array([2.0**60, None])}, pa.schema([("n", pa.int64())]))
    assert found == {"n": [2**60, None]}
