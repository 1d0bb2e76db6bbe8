"""W4, S10, W18: aggregates and keys of the operators are those of Spark, for each type and any values.

The oracle is Spark's own aggregation of the same rows, and its equi-join. One query of Spark computes many cases. The columns
come from the functions of ``sg.windows``, ``sg.stateful`` and ``sg.join``, and the state is computed in several batches.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from integration_tests.tiers import LONG
from streamgroups.errors import AggregateOverflow, InvalidOption
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate
from streamgroups_operators.aggregates import add_up, parts_of, results
from streamgroups_operators.joins.run import pairs
from streamgroups_operators.keys import key_numbers, rows_of_keys
from streamgroups_operators.plain_values import numbers_of
from streamgroups_spark.frames.key_columns import check_key_types, check_key_values, key_column
from streamgroups_spark.state.dedup import _check_ids
from streamgroups_spark.windows.query_columns import argument, parsed_aggregates
from unit_tests.examples import examples

ANSI = "spark.sql.ansi.enabled"
NAN, INF = math.nan, math.inf
#: Values of each type, by its name in SQL. Sums of them do not depend on the order, except for rounding.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "smallint": (pa.int16(), [-(2**15), 0, 3, 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 0, 5, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**40), -1, 0, 7, 2**40]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -2.25, INF, -INF, NAN]),
    "double": (pa.float64(), [0.0, -0.0, 1.5, -2.25, INF, -INF, NAN, 5e-324]),
    "decimal(5,2)": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.00"), Decimal("999.99")]),
    "decimal(28,3)": (pa.decimal128(28, 3), [Decimal(9) * 10**24, Decimal("-0.001"), Decimal("0.000")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(10) ** 36, -(Decimal(10) ** 36), Decimal(1)]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "A", "b", "ß", "\U0001f600", "\uffff", "a\0", "a "]),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xff"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [-(2**62), -1, 0, 2**62]),
    "timestamp_ntz": (pa.timestamp("us"), [-(2**62), -1, 0, 2**62]),
    "interval day to second": (pa.duration("us"), [-(2**62), -1, 0, 2**62]),
}
#: With ANSI mode off, sums of integers wrap around.
LIMITS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1]
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
REJECTED = ["string collate UTF8_LCASE", "interval year to month", "interval", "array<int>", "struct<a int>", "void"]


def name_of(type_: str) -> str:
    return "".join(it if it.isalnum() else "_" for it in type_)


def table(random: Random, cases: int, bigints: list[Any]) -> pa.Table:
    """Rows of several cases, each with some values of each type, also null, and no value in some cases."""
    sizes = [random.choice([1, 2, 3, 5, 8]) for _ in range(cases)]
    rows = sum(sizes)
    columns: dict[str, Any] = {"g": pa.array([g for g, size in enumerate(sizes) for _ in range(size)], pa.int32())}
    for type_, (of, values) in VALUES.items():
        chosen = bigints if type_ == "bigint" else values
        # Few distinct values, so that most cases have equal ones.
        pools = [random.choices([*chosen, None], k=random.choice([1, 2, 6])) for _ in sizes]
        cells = [random.choice(pools[g]) for g, size in enumerate(sizes) for _ in range(size)]
        columns[name_of(type_)] = pa.array(cells, of)
    columns["batch"] = pa.array([random.randrange(3) for _ in range(rows)], pa.int32())
    return pa.table(columns)


def aggregates() -> dict[str, str]:
    calls: dict[str, str] = {}
    for type_ in VALUES:
        functions = ["count", "min", "max"]
        functions += ["sum", "avg"] if type_ in NUMBERS else ["sum"] if type_.startswith("decimal") else []
        calls |= {f"{it}_{name_of(type_)}": f"{it}({name_of(type_)})" for it in functions}
    return calls


def computed(df: DataFrame, calls: dict[str, str]) -> dict[int, dict[str, Any]]:
    """The results of ``sg.windows``: partial aggregates of each batch, and then of all of them."""
    parsed = parsed_aggregates(df, calls)
    arguments = [argument(df, name, it).alias(f"a{i}") for i, (name, it) in enumerate(parsed.items())]
    records = df.select("g", "batch", *arguments).toArrow().combine_chunks()
    required: tuple[SqlAggregate | PythonAggregate, ...] = tuple(parsed.values())
    panes = []
    for batch in range(3):
        chosen = records.filter(pa.compute.equal(records["batch"], batch))
        if chosen.num_rows:
            parts = pa.table({"g": chosen["g"], **parts_of(required, chosen)})
            panes.append(add_up(required, parts, ["g"], []))
    whole = add_up(required, pa.concat_tables(panes), ["g"], [])
    found = results(required, pa.schema([]), whole)
    columns = {name: numbers_of(found[f"r{i}"]) for i, name in enumerate(parsed)}
    return {g: {name: columns[name][row] for name in parsed} for row, g in enumerate(whole["g"].to_pylist())}


def expected(df: DataFrame, calls: dict[str, str]) -> dict[int, dict[str, Any]]:
    rows = df.groupBy("g").agg(*(F.expr(call).alias(name) for name, call in calls.items())).toArrow()
    columns = {name: numbers_of(rows[name]) for name in calls}
    return {g: {name: columns[name][row] for name in calls} for row, g in enumerate(rows["g"].to_pylist())}


def same(found: Any, required: Any, scale: float) -> bool:
    if isinstance(required, float) and isinstance(found, float):
        if math.isnan(required) or math.isinf(required):
            return math.isnan(found) if math.isnan(required) else found == required
        return math.isclose(found, required, rel_tol=1e-9, abs_tol=1e-9 * scale)
    return bool(found == required) and (found is None) == (required is None)


def compare(df: DataFrame, calls: dict[str, str]) -> None:
    own, other = computed(df, calls), expected(df, calls)
    assert own.keys() == other.keys()
    for g, required in other.items():
        for name, value in required.items():
            scale = 1e19 if "bigint" in name else 1e10
            assert same(own[g][name], value, scale), (g, calls[name], own[g][name], value)


@pytest.fixture
def without_ansi(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(ANSI)
    spark.conf.set(ANSI, "false")
    yield
    spark.conf.set(ANSI, str(before))


def test_W4_each_aggregate_of_each_type_is_that_of_spark(spark: SparkSession) -> None:
    df = spark.createDataFrame(table(Random(30), examples(150), VALUES["bigint"][1]))
    compare(df, aggregates())


@pytest.mark.usefixtures("without_ansi")
def test_W4_sums_wrap_around_without_ansi_mode(spark: SparkSession) -> None:
    df = spark.createDataFrame(table(Random(31), examples(60), LIMITS)).select("g", "batch", "bigint", "int")
    compare(
        df, {"s": "sum(bigint)", "t": "sum(int)", "a": "avg(bigint)", "least": "min(bigint)", "most": "max(bigint)"}
    )
    decimals = spark.range(2).select(F.expr("cast(9 as decimal(38,0))").alias("d"))
    with pytest.raises(InvalidOption, match=r"sum of type decimal\(38,0\), and spark.sql.ansi.enabled is false"):
        computed(decimals.selectExpr("1 as g", "0 as batch", "d"), {"s": "sum(d)"})


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("bigint", [2**63 - 1, 1]),
        pytest.param("bigint", [-(2**63), -1], marks=LONG),
        pytest.param("int", [2**31 - 1] * 3, marks=LONG),
        ("decimal(38,0)", [Decimal("9" * 38), Decimal(1)]),
        pytest.param("decimal(38,0)", [Decimal("-" + "9" * 38)] * 3, marks=LONG),
    ],
)
def test_W4_a_sum_that_exceeds_its_type_is_an_error_as_in_spark(
    spark: SparkSession, type_: str, values: list[Any]
) -> None:
    rows = {"g": pa.array([1] * len(values), pa.int32()), "v": pa.array(values, VALUES[type_][0])}
    # In one batch, and in several ones.
    for batches in ([0] * len(values), [0, 1, 2][: len(values)]):
        df = spark.createDataFrame(pa.table({**rows, "batch": pa.array(batches, pa.int32())}))
        if type_ == "int":
            compare(df, {"s": "sum(v)"})
            continue
        with pytest.raises(PySparkException, match=r"OVERFLOW|OUT_OF_RANGE"):
            expected(df, {"s": "sum(v)"})
        with pytest.raises(AggregateOverflow, match=r"ARITHMETIC_OVERFLOW.*sum\(v\) in a window"):
            computed(df, {"s": "sum(v)"})


@pytest.mark.parametrize("type_", REJECTED)
def test_W4_a_type_whose_result_would_not_be_that_of_spark_is_rejected(spark: SparkSession, type_: str) -> None:
    df = spark.range(1).select(
        F.lit(1).alias("g"), F.lit(0).alias("batch"), F.expr(f"cast(null as {type_})").alias("v")
    )
    for function in (Function.SUM, Function.AVG, Function.MIN, Function.MAX):
        with pytest.raises(InvalidOption, match="Aggregate 'x' cannot compute"):
            computed(df, {"x": f"{function.value}(v)"})
    assert computed(df, {"x": "count(v)"}) == {1: {"x": 0}}
    with pytest.raises(InvalidOption, match="Column 'v' of 'by' is of type"):
        check_key_values(df.schema, ["v"])


@pytest.mark.parametrize("type_", ["date", "timestamp", "array<timestamp>", "struct<a: map<string, date>>"])
def test_W4_a_python_aggregate_receives_no_times(spark: SparkSession, type_: str) -> None:
    df = spark.range(1).select(F.expr(f"cast(null as {type_})").alias("v"))
    with pytest.raises(InvalidOption, match="Python has no object for each time"):
        argument(df, "x", PythonAggregate(len, "v", "bigint"))


@pytest.mark.parametrize("type_", ["variant", "array<variant>"])
def test_W4_a_python_aggregate_receives_no_binary_form_of_spark(spark: SparkSession, type_: str) -> None:
    df = spark.range(1).select(F.expr(f"cast(null as {type_})").alias("v"))
    with pytest.raises(InvalidOption, match=r"Column 'v' contains the type variant.*aggregate 'x' has only"):
        argument(df, "x", PythonAggregate(len, "v", "bigint"))


# ---- keys ------------------------------------------------------------------------------------------------------------


def identity(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def with_payloads(rows: pa.Table) -> pa.Table:
    """Rows in which each NaN of a double has other bytes."""
    import numpy as np

    values = rows["double"].combine_chunks()
    bits = values.fill_null(0.0).to_numpy().view(np.int64).copy()
    nans = np.flatnonzero(np.isnan(values.fill_null(0.0).to_numpy()))
    bits[nans] = 0x7FF8000000000001 + nans
    doubles = pa.array(bits.view(np.float64), mask=values.is_null().to_numpy(zero_copy_only=False))
    return rows.set_column(rows.schema.get_field_index("double"), "double", doubles)


@LONG
def test_S10_keys_are_equal_as_in_sparks_group_by_and_join(spark: SparkSession) -> None:
    rows = with_payloads(table(Random(32), examples(40), LIMITS))
    df = spark.createDataFrame(rows)
    for type_ in VALUES:
        name = name_of(type_)
        check_key_values(df.schema, [name])
        keys = df.select(key_column(df.schema, name).alias("k0")).toArrow().combine_chunks()
        counted = keys.append_column("n", pa.array([1] * keys.num_rows, pa.int64()))
        own = add_up((), counted, ["k0"], [("n", "sum")])
        found = Counter(dict(zip(map(identity, numbers_of(own["k0"])), own["n"].to_pylist(), strict=True)))
        assert len(found) == own.num_rows
        other = df.groupBy(name).count().toArrow()
        assert found == dict(zip(map(identity, numbers_of(other[name])), other["count"].to_pylist(), strict=True)), (
            type_
        )
        [numbers] = key_numbers(["k0"], keys)
        assert len(set(numbers.tolist())) == len(found), type_
        known = keys.filter(keys["k0"].is_valid()).append_column(
            "time", pa.array([0] * (len(keys) - keys["k0"].null_count))
        )
        lefts, _ = pairs(["k0"], known, known, 0)
        assert len(lefts) == df.alias("l").join(df.alias("r"), F.expr(f"l.{name} = r.{name}")).count(), type_
        some = known.slice(0, 3).select(["k0"])
        required = {identity(it) for it in numbers_of(some["k0"])}
        assert rows_of_keys(known, some).num_rows == sum(n for key, n in found.items() if key in required), type_


@pytest.mark.parametrize("type_", ["float", "double", "string collate UTF8_LCASE", "array<int>"])
def test_X5_S12_types_whose_equal_values_have_other_bytes_are_rejected_as_ids_and_as_record_keys(
    spark: SparkSession, type_: str
) -> None:
    schema = spark.range(1).select(F.expr(f"cast(null as {type_})").alias("v")).schema
    with pytest.raises(InvalidOption, match="Column 'v' of 'id' is of type"):
        _check_ids(schema, ["v"])
    if not type_.startswith("array"):
        with pytest.raises(InvalidOption, match="Column 'v' of 'by' is of type"):
            check_key_types(schema, ["v"])
