"""Functions on Arrow arrays in Spark 4.0, which passes pandas Series."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.internals.arrow_functions import over_series

#: The largest integer up to which floating point is exact, less one: the year 2255 in microseconds.
MICROS = 2**53 - 1


def values(series: pd.Series) -> list[object]:
    """As Spark converts the result of a function."""
    found: list[object] = pa.Array.from_pandas(series).to_pylist()
    return found


def test_keys_have_the_same_partitions_as_in_arrow() -> None:
    keys = [b"BOS", None, b"", b"\xff\x00"]
    function = over_series(lambda it: partitions_of_keys(it, 12), (pa.binary(),))
    assert values(function(pd.Series(keys))) == partitions_of_keys(pa.array(keys, pa.binary()), 12).to_pylist()
    nothing = pd.Series([None, None], dtype=object)
    assert values(function(nothing)) == [None, None]


def test_integers_of_a_column_with_nulls_are_exact() -> None:
    function = over_series(lambda it, _: it, (pa.int64(), pa.string()))
    assert values(function(pd.Series([MICROS, None]), pd.Series(["a", "b"]))) == [MICROS, None]
    assert values(function(pd.Series([2**62, -1]), pd.Series(["a", "b"]))) == [2**62, -1]


def test_a_function_of_two_columns() -> None:
    function = over_series(pc.binary_join_element_wise, (pa.string(), pa.string(), pa.string()))
    texts = [pd.Series(it) for it in (["a", None], ["b", "c"], ["-", "-"])]
    assert values(function(*texts)) == ["a-b", None]
