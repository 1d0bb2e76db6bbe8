"""``sg.stateful(df, function, ...)``: a user's function whose state follows its partition.

Called by users on the driver. It checks the arguments, and ``streamgroups_operators.function_operator`` calls the function
in the stage that reads. Source: SEMANTICS S9, S10, W17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups_operators.function_operator import UPDATED, FunctionOperator, MigrateFunction, StateFunction
from streamgroups_spark.dlq.failure_column import passes_letters
from streamgroups_spark.frames.columns import check_distinct, columns_of
from streamgroups_spark.frames.key_columns import check_key_columns, check_key_values, with_key_values
from streamgroups_spark.internals.spark_api import arrow_schema, stored_schema
from streamgroups_spark.state.chains import operator_before
from streamgroups_spark.state.operator_plan import (
    check_bounded,
    check_keys,
    check_place,
    in_reading_stage,
    over_bounded_data,
)

_CALLED = "sg.stateful"
_EXAMPLE = "n bigint, total double"


@passes_letters
def stateful(
    df: DataFrame,
    function: StateFunction,
    *,
    by: Sequence[str],
    state: str,
    output: str,
    name: str = "stateful",
    version: int = 1,
    prepartitioned: bool = False,
    expire_after: str | None = None,
    migrate: Mapping[int, MigrateFunction] | None = None,
) -> DataFrame:
    """Runs a function with state for each key; the state of a partition follows it to its next owner (SEMANTICS S10).

    The function is called once for each batch and partition with records. Its arguments:

    * the state: a ``pyarrow.Table`` with the columns of ``by`` and ``state``, and one row for each key that the records
      contain and that has a state;
    * the records of the partition, a ``pyarrow.Table`` with the columns of ``df``, in the order of their offsets;
    * the time: an ``sg.event_time.BatchTime``.

    It returns the new state of these keys and the output. A key without a row is removed. The state of other keys stays
    as it is.

    The result for a record must depend on the state and the records before it only, and not on how batches cut the
    records. After a reset, the function is called for records that are read again, and their output is dropped.

    Args:
        df: a stream of the source; the results of :func:`windows` with ``chained=True``, which the function receives in
            the order of their ends; or bounded data: a batch DataFrame of the source. It needs the columns ``partition`` and
            ``offset`` of the source, and ``topic`` if it reads several topics. The function receives all columns, so select
            those that it uses.
        function: the function.
        by: the key columns.
        state: the columns of the state besides ``by``, as in ``"n bigint, total double"``.
        output: the columns of the output.
        name: the name of the state. The state continues with the same ``by``, ``state`` and ``version`` only.
        version: the version of the meaning of the state. Increase it if the function uses a state in another way.
        prepartitioned: states that all records with the same values of ``by`` are in one partition, because the record
            key determines them. Not necessary if ``by`` contains the column ``key``, or the columns by which
            :func:`repartition` has partitioned the topic.
        expire_after: a duration: a key without records for this time, by the clock, is removed. Default: never. In a batch
            read all records have the same time by the clock, so no key expires.
        migrate: functions that convert the state of earlier versions, by version. Each is called when the state of a partition
            is loaded, with a ``pyarrow.Table`` of all its keys and the columns of that version, and returns the columns of
            ``by`` and ``state``. A key without a row is removed.

    Returns:
        The output. A query with state is in append mode.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    A query fails with :class:`~streamgroups.errors.FunctionFailed` if the function raises an error, or returns other
    columns. The error contains the partition and the offsets.

    Example::

        def count(state, records, time):
            new = records.group_by("key").aggregate([([], "count_all")]).rename_columns(["key", "n"])
            sums = pa.concat_tables([state, new]).group_by("key").aggregate([("n", "sum")])
            counts = sums.rename_columns(["key", "n"])
            return counts, counts

        counts = sg.stateful(flights, count, by=["key"], state="n bigint", output="key binary, n bigint", name="counts")
    """
    check_bounded(df, _CALLED)
    check_key_columns(df.schema, by)
    if not by:
        raise InvalidOption("Option 'by' is empty.", remedy="Pass the key columns, such as ['key'].")
    upstream = operator_before(df, name, _CALLED)
    check_keys(df, by, _CALLED, prepartitioned=prepartitioned)
    check_key_values(df.schema, by)
    check_place(df, name, _CALLED)
    if not callable(function):
        raise InvalidOption(f"Option 'function' is {function!r}.", remedy="Pass a function of (state, records, time).")
    if version < 1:
        raise InvalidOption(f"Option 'version' is {version}.", remedy="It must be at least 1.")
    for earlier, convert in (migrate or {}).items():
        if not (isinstance(earlier, int) and 1 <= earlier < version and callable(convert)):
            raise InvalidOption(
                f"Option 'migrate' has {earlier!r}: {convert!r}.",
                remedy=f"Pass a function for each earlier version, from 1 to {version - 1}.",
            )
    rows = StructType([df.schema[key] for key in by] + columns_of(state, "state", _EXAMPLE).fields)
    emitted = columns_of(output, "output", _EXAMPLE)
    for columns in (df.columns, [*rows.names, UPDATED], emitted.names):
        check_distinct(columns)
    df = with_key_values(df, by)
    spark = df.sparkSession
    operator = FunctionOperator(
        name,
        function,
        tuple(by),
        stored_schema(rows),
        arrow_schema(emitted, spark),
        version,
        _expiry_ms(expire_after),
        upstream,
        dict(migrate or {}),
    )
    if not df.isStreaming:
        return over_bounded_data(df, operator, emitted)
    return in_reading_stage(df, operator, emitted, _CALLED, upstream=upstream)


def _expiry_ms(expire_after: str | None) -> int | None:
    if expire_after is None:
        return None
    ms = parse_duration_ms(expire_after, option="expire_after")
    if not ms:
        raise InvalidOption("Option 'expire_after' is 0.", remedy="Pass a duration such as '1 hour'.")
    return ms
