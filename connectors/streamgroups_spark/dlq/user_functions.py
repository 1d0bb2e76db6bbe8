"""Calls a user's function of pandas, Arrow or single records, and converts its result to Arrow columns.

Created by ``dlq.safely`` on the driver and called by ``dlq.safe_stage`` in tasks. An error about
records is raised as it is. A result that cannot be right for any record is a ``FunctionFailed``. Source: SEMANTICS P4;
Spark's ``mapInPandas``, which converts the same types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from streamgroups.dlq.bad_record_search import ErrorClasses, Failed, Processed, is_from, isolate
from streamgroups.errors import FunctionFailed
from streamgroups.printable import listed
from streamgroups_operators.plain_values import check_pandas_times
from streamgroups_spark.dlq.pandas_nulls import Numbers, frame_of, groups_of_records, groups_of_result


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The results of a function for the records of a batch.

    Args:
        table: the columns of the output, one row for each record that was processed.
        at: the number of the record of each row, ascending.
        failed: the other records, ascending.
    """

    table: pa.Table
    at: Numbers
    failed: tuple[Failed, ...]


class SafeFunction(ABC):
    """A function of the user, of records to columns.

    Args:
        function: the function.
        name: its name, for errors.
        output: the columns of its output. Timestamps are in UTC.
        fail_on: errors that are not about single records.
    """

    #: The value of ``takes``.
    takes: str

    def __init__(self, function: Callable[[Any], Any], name: str, output: pa.Schema, fail_on: ErrorClasses) -> None:
        self._function, self.name, self._output = function, name, output
        self._fail_on: ErrorClasses = (FunctionFailed, MemoryError, *fail_on)

    @abstractmethod
    def __call__(self, records: pa.Table) -> FunctionResult:
        """Processes records.

        Raises:
            FunctionFailed: if the result is of another type, or has other columns or rows than the function must return.
            Exception: an error that is not about single records.
        """

    def _result(self, calls: Iterable[Processed[pa.Table] | Failed]) -> FunctionResult:
        tables, at, failed = [self._output.empty_table()], [np.zeros(0, np.int64)], []
        for call in calls:
            if isinstance(call, Failed):
                failed.append(call)
            else:
                tables.append(call.result)
                at.append(np.arange(call.first, call.end))
        return FunctionResult(pa.concat_tables(tables), np.concatenate(at), tuple(failed))

    def _fail(self, problem: str, remedy: str) -> NoReturn:
        raise FunctionFailed(f"The function '{self.name}' {problem}.", remedy=remedy)


class _BatchFunction(SafeFunction):
    def __call__(self, records: pa.Table) -> FunctionResult:
        """See :meth:`SafeFunction.__call__`."""
        calls = isolate(
            records.num_rows, lambda first, end: self._call(records.slice(first, end - first)), self._fail_on
        )
        return self._result(calls)

    @abstractmethod
    def _call(self, records: pa.Table) -> pa.Table:
        """Calls the function, and returns the columns of the output."""

    def _columns(
        self, rows: int, expected: int, names: Collection[str], convert: Callable[[pa.Field], Any]
    ) -> pa.Table:
        """The output, of a result with columns of these names."""
        if rows != expected:
            self._fail(
                f"has returned {rows} rows for {expected} records",
                "Return one row for each record, in the same order. To remove records, apply a filter before or after.",
            )
        missing = [name for name in self._output.names if name not in names]
        if missing:
            self._fail(
                f"has returned no column {listed(missing)}; its columns are {listed(names)}",
                f"Return the columns {listed(self._output.names)}.",
            )
        return pa.table([convert(field) for field in self._output], schema=self._output)


class ArrowFunction(_BatchFunction):
    """A function of a ``pyarrow.Table``, which returns a table."""

    takes = "arrow"

    def _call(self, records: pa.Table) -> pa.Table:
        result = self._function(records)
        if not isinstance(result, pa.Table | pa.RecordBatch):
            self._fail(f"has returned {type(result).__name__}", "Return a pyarrow.Table.")
        return self._columns(
            result.num_rows, records.num_rows, result.schema.names, lambda it: self._cast(result.column(it.name), it)
        )

    def _cast(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        try:
            return column.cast(field.type)
        except pa.ArrowNotImplementedError:
            self._fail(f"has returned column {field.name} as {column.type}", f"Return it as {field.type}.")


class PandasFunction(_BatchFunction):
    """A function of a ``pandas.DataFrame``, which returns a DataFrame with the same index."""

    takes = "pandas"

    def __call__(self, records: pa.Table) -> FunctionResult:
        """See :meth:`SafeFunction.__call__`. The type of a column must not depend on the nulls of other records."""
        groups = groups_of_records(records)
        if len(groups) == 1:
            return super().__call__(records)
        results = [super(PandasFunction, self).__call__(records.take(pa.array(it))) for it in groups]
        at = np.concatenate([group[it.at] for group, it in zip(groups, results, strict=True)])
        failed = [
            Failed(int(group[it.at]), it.error) for group, of in zip(groups, results, strict=True) for it in of.failed
        ]
        return FunctionResult(_sorted([it.table for it in results], at), np.sort(at), _in_order(failed))

    def _call(self, records: pa.Table) -> pa.Table:
        import pandas as pd

        frame = _frame(records)
        index = frame.index
        result = self._function(frame)
        if not isinstance(result, pd.DataFrame):
            self._fail(f"has returned {type(result).__name__}", "Return a pandas.DataFrame.")
        columns = {str(name): name for name in result.columns}
        if len(result) == len(index) and not result.index.equals(index):
            self._fail(
                "has returned a DataFrame with another index",
                "Return the rows in the order of the records, with the index of the argument.",
            )
        if len(result) == len(index) and len(groups := groups_of_result(result, columns, self._output)) > 1:
            # Without a null beside it, an integer stays one.
            return _sorted([self._call(records.take(pa.array(it))) for it in groups], np.concatenate(groups))
        return self._columns(
            len(result), records.num_rows, columns, lambda it: _from_pandas(result[columns[it.name]], it)
        )


def _sorted(tables: Sequence[pa.Table], at: Numbers) -> pa.Table:
    """The rows of tables, in the order of the numbers of their records."""
    return pa.concat_tables(tables).take(pa.array(np.argsort(at)))


def _in_order(failed: Iterable[Failed]) -> tuple[Failed, ...]:
    return tuple(sorted(failed, key=lambda it: it.at))


def _from_pandas(column: Any, field: pa.Field) -> Any:
    if column.dtype.name == "category":
        column = column.astype(column.cat.categories.dtype)
    return pa.Array.from_pandas(column, type=field.type)


class RecordFunction(SafeFunction):
    """A function of a ``dict`` with the values of one record, which returns a ``dict``. It is called once per record."""

    takes = "record"

    def __call__(self, records: pa.Table) -> FunctionResult:
        """See :meth:`SafeFunction.__call__`."""
        names = frozenset(records.column_names)
        results: list[dict[str, Any]] = []
        numbers: list[int] = []
        failed: list[Failed] = []
        for given in isolate(records.num_rows, lambda *at: _python_rows(records, *at), self._fail_on):
            if isinstance(given, Failed):
                failed.append(given)
                continue
            for number, record in enumerate(given.result, given.first):
                try:
                    results.append(self._checked(self._function(record), names))
                    numbers.append(number)
                except Exception as e:
                    if is_from(e, self._fail_on):
                        raise
                    failed.append(Failed(number, e))
        # The conversion finds values of another type. It has no side effects.
        converted = self._result(isolate(len(results), lambda *at: self._converted(results[slice(*at)]), self._fail_on))
        at = np.array(numbers, np.int64)
        failed += [Failed(numbers[it.at], it.error) for it in converted.failed]
        return FunctionResult(converted.table, at[converted.at], _in_order(failed))

    def _converted(self, results: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(results, schema=self._output)

    def _checked(self, result: Any, given: Collection[str]) -> dict[str, Any]:
        if not isinstance(result, dict):
            self._fail(f"has returned {type(result).__name__}", "Return a dict with the columns of the output.")
        unknown = [name for name in result if name not in self._output.names and name not in given]
        if unknown:
            self._fail(
                f"has returned the unknown column {listed(unknown)}",
                f"Return the columns {listed(self._output.names)}. A missing column is null.",
            )
        return result


def _frame(records: pa.Table) -> Any:
    """Records as a DataFrame of pandas.

    Raises:
        ValueError: if pandas has no object for a value.
    """
    check_pandas_times(records)
    try:
        return frame_of(records)
    except (OverflowError, ValueError, pa.ArrowException):
        # Of a slice with maps, Arrow also converts the entries of the records beside it.
        alone = records.take(pa.array(np.arange(records.num_rows)))
    try:
        return frame_of(alone)
    except (OverflowError, ValueError, pa.ArrowException) as e:
        raise ValueError(f"pandas has no object for a value: {e}.") from e


def _python_rows(records: pa.Table, first: int, end: int) -> list[dict[str, Any]]:
    """Records as dicts.

    Raises:
        ValueError: if Python has no object for a value, such as a time after the year 9999, or a string that is not UTF-8.
    """
    columns: list[list[Any]] = []
    for name in records.column_names:
        try:
            columns.append(records[name].slice(first, end - first).to_pylist())
        except (OverflowError, ValueError) as e:
            raise ValueError(f"Python has no object for the value of column '{name}': {e}.") from e
    rows = zip(*columns, strict=True) if columns else repeat((), end - first)
    return [dict(zip(records.column_names, row, strict=True)) for row in rows]


#: The classes by the value of ``takes``.
FUNCTIONS: Mapping[str, type[SafeFunction]] = {it.takes: it for it in (PandasFunction, ArrowFunction, RecordFunction)}
