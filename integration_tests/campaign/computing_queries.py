"""The queries of the workloads of ``campaign.computed``, and those of windows. Used by ``campaign.query``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

import streamgroups as sg
from integration_tests.campaign import windows
from integration_tests.campaign.computed import (
    CHAIN_DELAY_MS,
    HORIZON_MS,
    INNER_MS,
    JOIN_DELAY_MS,
    OUTER_MS,
    PLACES,
    WITHIN_MS,
)

#: Computes the rows of a kind from the records. The names of its topics are arguments of a join.
Computation: TypeAlias = Callable[[DataFrame, str], DataFrame]
#: The number of a record, which is its value without padding.
NUMBER = "rtrim('.', cast(value AS string))"
#: The place by which a record is repartitioned (``campaign.computed.place_of``).
PLACE = f"cast(cast(number AS bigint) * 613 % {PLACES} AS string)"
_COUNTS = pa.schema([(name, pa.int64()) for name in ("number", "n", "total", "offset")] + [("partition", pa.int32())])


def rows(df: DataFrame, row: str, result: str, partition: str = "partition", offset: str = "offset") -> DataFrame:
    """Rows as JSON in ``value``, with the columns ``partition`` and ``offset``.

    Args:
        df: a stream.
        row: the expression of the name of a row.
        result: the expression of its content.
        partition: the expression of its partition.
        offset: the expression of an offset, by which a reader of tables orders it.
    """
    return df.selectExpr(
        f"to_json(named_struct('row', {row}, 'result', {result})) AS value",
        f"cast({partition} AS int) AS partition",
        f"cast({offset} AS bigint) AS offset",
    )


def _dedup(source: DataFrame, _: str) -> DataFrame:
    once = sg.dedup(source, id="key", horizon=f"{HORIZON_MS} milliseconds")
    return rows(once, f"concat('record ', {NUMBER})", "cast(key AS string)")


def running_counts(state: pa.Table, records: pa.Table, _: Any) -> tuple[pa.Table, pa.Table]:
    """The function with state: the number and the sum of the records of each key, for each record."""
    sums = {it["key"]: (it["n"], it["total"]) for it in state.to_pylist()}
    found = []
    for it in records.to_pylist():
        n, total = sums.get(it["key"], (0, 0))
        sums[it["key"]] = n + 1, total + it["number"]
        found.append({**it, "n": n + 1, "total": total + it["number"]})
    new = [{"key": key, "n": n, "total": total} for key, (n, total) in sums.items()]
    return pa.Table.from_pylist(new, schema=state.schema), pa.Table.from_pylist(found, schema=_COUNTS)


def _function(source: DataFrame, _: str) -> DataFrame:
    records = source.selectExpr("key", f"cast({NUMBER} AS bigint) AS number", "partition", "offset")
    output = "number bigint, n bigint, total bigint, offset bigint, partition int"
    counts = sg.stateful(
        records, running_counts, by=["key"], state="n bigint, total bigint", output=output, name="counts"
    )
    return rows(counts, "concat('record ', number)", "concat('n ', n, ', total ', total)")


def _join(source: DataFrame, topics: str) -> DataFrame:
    left, right = topics.split(",")
    timed = source.selectExpr("key", "topic", "partition", "offset", "timestamp", f"{NUMBER} AS number")
    joined = sg.join(
        timed.withWatermark("timestamp", f"{JOIN_DELAY_MS} milliseconds"),
        left=left,
        right=right,
        by=["key"],
        on="timestamp",
        within=f"{WITHIN_MS} milliseconds",
        how="full",
        name="pairs",
    )
    return rows(
        joined,
        "concat('left ', coalesce(left.number, 'none'), ', right ', coalesce(right.number, 'none'))",
        "cast(key AS string)",
        "coalesce(left.partition, right.partition)",
        "coalesce(left.offset, right.offset)",
    )


def _chained(source: DataFrame, _: str) -> DataFrame:
    inner = sg.windows(
        source.withWatermark("timestamp", f"{CHAIN_DELAY_MS} milliseconds"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling(f"{INNER_MS} milliseconds"),
        aggregate={"n": "count(*)"},
        name="inner",
        chained=True,
    )
    outer = sg.windows(
        inner,
        on="window_start",
        by=["key"],
        window=sg.shapes.tumbling(f"{OUTER_MS} milliseconds"),
        aggregate={"windows": "count(*)", "busiest": "max(n)"},
        name="outer",
    ).selectExpr("cast(key AS string) AS key", "unix_millis(window_start) AS start", "windows", "busiest")
    row, result = "concat(key, ' at ', start)", "concat('windows ', windows, ', busiest ', busiest)"
    return rows(outer, row, result, "split(key, '-')[0]", "start")


def _repartitioned(records: DataFrame, _: str) -> DataFrame:
    return rows(records, "concat('record ', number)", "place")


def _windows(source: DataFrame, _: str) -> DataFrame:
    found: DataFrame = windows.windows(source)
    return found


def through_spark(source: DataFrame) -> DataFrame:
    """The stream with a filter, so that the reader does not pass its records directly to an operator."""
    return source.where("offset >= 0")


#: The computation of each kind. The other kinds write the records themselves.
COMPUTATIONS: Mapping[str, Computation] = MappingProxyType(
    {
        "dedup": _dedup,
        "function": _function,
        "join": _join,
        "chained": _chained,
        "repartition": _repartitioned,
        "windows": _windows,
        "savepoints": _windows,
    }
)
