"""``sg.safely(df, function, ...)``: a user's function whose failures are dead letters, and not the end of the query.

Called by users on the driver. It checks the arguments, and ``dlq.safe_stage`` calls the function in tasks. Source:
SEMANTICS P4.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from streamgroups.dlq.bad_record_search import ErrorClasses
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups.printable import listed
from streamgroups_spark.dlq.failure_column import FAILURE_TYPE, check_letters, source_columns
from streamgroups_spark.dlq.safe_stage import SafeStage
from streamgroups_spark.dlq.user_functions import FUNCTIONS
from streamgroups_spark.frames.binary_forms import check_no_binary_form
from streamgroups_spark.frames.columns import check_distinct, columns_of, name_folding
from streamgroups_spark.internals.connect import reject_in_flow
from streamgroups_spark.internals.private_spark import type_of
from streamgroups_spark.internals.spark_api import arrow_schema, stored_schema

#: Errors of the machine or of another system, and not of a record.
FAIL_ON: tuple[type[Exception], ...] = (ImportError, OSError)


def safely(
    df: DataFrame,
    function: Callable[[Any], Any],
    *,
    output: str,
    takes: str = "pandas",
    columns: Sequence[str] | None = None,
    step: str | None = None,
    fail_on: type[Exception] | Sequence[type[Exception]] = FAIL_ON,
) -> DataFrame:
    """Adds the result of a function to each record. A record for which it raises an error becomes a dead letter.

    Args:
        df: a stream or a batch DataFrame, of any source. The letters contain the source record if the DataFrame still has
            its columns ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value`` and, with ``includeHeaders``,
            ``headers``.
        function: the function. It is called with some of the records of a batch, and returns one row for each of them, in
            the same order. The result for a record must not depend on the other records.
        output: the columns of the result, as in ``"price double, currency string"``. A column of ``df`` with the same name
            is replaced.
        takes: ``pandas``: the function takes and returns a ``pandas.DataFrame`` with the same index. ``arrow``: it takes
            and returns a ``pyarrow.Table``. ``record``: it takes and returns a ``dict``, and is called for each record.
            Other columns of the result are ignored. Only ``arrow`` accepts the types ``variant``, ``geometry`` and
            ``geography``, as structs of Spark's binary form.
        columns: the columns that the function receives. Default: all. Fewer columns take less time to convert.
        step: the name of the step in the letters. Default: the name of the function.
        fail_on: the classes of errors that are not about a record, such as that of an unreachable service. They fail the
            query, and the batch runs again. So do errors with such a cause (``raise ... from``). Default:
            ``ImportError`` and ``OSError``, which includes ``ConnectionError`` and ``TimeoutError``. ``MemoryError`` always fails
            the query.

    Returns:
        The columns of ``df`` and of ``output``, in the same order of rows, and the nullable column ``dead_letter``. In rows
        with a dead letter the columns of ``output`` are null. Rows that already have a dead letter are not processed.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.
        MissingExtra: if ``takes`` is ``pandas`` and pandas is not installed.

    After an error of a batch, the function is called again for both halves of the batch, until single records remain. So
    side effects of the function are repeated, except with ``takes="record"``. With ``takes="pandas"``, records whose nulls are in
    the same columns of integers and booleans are in one call, so that integers stay integers. A null in a returned column of
    large integers can also repeat a call.

    A query fails with :class:`~streamgroups.errors.FunctionFailed` if the function raises an error of ``fail_on``, or
    returns other columns or another number of rows.

    Example::

        def priced(flights):
            return flights.assign(price=[json.loads(value)["price"] for value in flights["value"]])

        prices = sg.safely(flights, priced, output="price double", columns=["value"])
        good = prices.where("dead_letter IS NULL")
    """
    reject_in_flow(df, "sg.safely")
    if not callable(function):
        raise InvalidOption(f"Option 'function' is {function!r}.", remedy="Pass a function.")
    if takes not in FUNCTIONS:
        raise InvalidOption(f"Option 'takes' is {takes!r}.", remedy=f"Pass {', '.join(map(repr, FUNCTIONS))}.")
    if takes == "pandas" and importlib.util.find_spec("pandas") is None:
        raise explained(ImportError("pandas is missing", name="pandas"), "sg.safely with takes='pandas'")
    name = str(getattr(function, "__name__", type(function).__name__))
    result = _columns(output)
    check_letters(df)
    given = _given(df, columns)
    if takes != "arrow":
        # An Arrow table has the marks of these types. A dict or a DataFrame of pandas has bytes only.
        check_no_binary_form(StructType([df.schema[it] for it in given]), f"the function '{name}'")
        returned = "Return a string or bytes, and convert the column after sg.safely."
        check_no_binary_form(result, f"the function '{name}'", remedy=returned)
    schema = _schema(df, result)
    spark = df.sparkSession
    call = FUNCTIONS[takes](function, name, stored_schema(result), _classes(fail_on))
    stage = SafeStage(call, _step(step, name), given, source_columns(df), arrow_schema(schema, spark))
    return df.mapInArrow(stage, schema)


def _columns(ddl: str) -> StructType:
    columns = columns_of(ddl, "output", "price double, currency string")
    if COLUMN in map(str.lower, columns.names):
        raise InvalidOption(
            f"Option 'output' contains the column '{COLUMN}', which sg.safely adds itself.", remedy="Rename it."
        )
    check_distinct(map(str.lower, columns.names))
    return StructType([StructField(it.name, it.dataType) for it in columns])


def _given(df: DataFrame, columns: Sequence[str] | None) -> list[str]:
    check_distinct(map(str.lower, df.columns))
    if isinstance(columns, str):
        raise InvalidOption(f"Option 'columns' is the text '{columns}'.", remedy=f"Pass a list: ['{columns}'].")
    given = [it for it in df.columns if it != COLUMN] if columns is None else list(columns)
    missing = [it for it in given if it not in df.columns]
    if missing:
        raise InvalidOption(
            f"Option 'columns' contains {listed(missing)}, which the DataFrame does not have.",
            remedy=f"Its columns are {listed(df.columns, most=30)}.",
        )
    if not given or COLUMN in given:
        raise InvalidOption(
            f"Option 'columns' is {given!r}.", remedy=f"Pass at least one column of the records, and not '{COLUMN}'."
        )
    return given


def _schema(df: DataFrame, output: StructType) -> StructType:
    """The columns of the result."""
    return StructType([*_kept(df, output), *output.fields, StructField(COLUMN, type_of(FAILURE_TYPE))])


def _kept(df: DataFrame, output: StructType) -> list[StructField]:
    """The columns that the output does not replace, with their metadata: a watermark and keys of sg.repartition."""
    folded = name_folding(df.sparkSession)
    replaced = set(map(folded, (*output.names, COLUMN)))
    return [StructField(it.name, it.dataType, True, it.metadata) for it in df.schema if folded(it.name) not in replaced]


def _step(step: str | None, function: str) -> str:
    if step is None and function == "<lambda>":
        raise InvalidOption("A lambda has no name for the letters.", remedy="Set 'step', as in step='price'.")
    name = function if step is None else step
    if not name.strip() or not name.isprintable():
        raise InvalidOption(f"Option 'step' is {step!r}.", remedy="Pass a name, such as 'price'.")
    return name


def _classes(fail_on: type[Exception] | Sequence[type[Exception]]) -> ErrorClasses:
    classes = (fail_on,) if isinstance(fail_on, type) else tuple(fail_on)
    for it in classes:
        if not (isinstance(it, type) and issubclass(it, Exception)):
            raise InvalidOption(f"Option 'fail_on' contains {it!r}.", remedy="Pass classes of exceptions.")
    if Exception in classes:
        raise InvalidOption(
            "Option 'fail_on' contains Exception, so no record would become a dead letter.",
            remedy="Pass the classes of errors that are not about a record.",
        )
    return classes
