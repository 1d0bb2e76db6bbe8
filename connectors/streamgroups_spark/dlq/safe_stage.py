"""A user's function as a function of ``mapInArrow``: its output beside the columns of the records, and dead letters.

Created by ``dlq.safely`` on the driver, and pickled into Python workers. Each record stays in its place, so
operators after it receive records in the order of their offsets. A letter is stored and shown, so the texts about its error
have a maximum length, and no control characters. Source: SEMANTICS P4; Spark's ``DataFrame.mapInArrow``.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

import numpy as np
import pyarrow as pa

from streamgroups.connections.redaction import redacted
from streamgroups.dlq.bad_record_search import Failed
from streamgroups.dlq.letter import COLUMN, missing_columns
from streamgroups.errors import FunctionFailed
from streamgroups.printable import printable
from streamgroups_operators.plain_values import in_utc, json_of
from streamgroups_spark.dlq import user_functions
from streamgroups_spark.dlq.user_functions import FunctionResult, SafeFunction
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import prepare_python_worker

#: The maximum length of a record in a letter whose source record is no longer in the DataFrame.
_MAX_RECORD = 10_000
_MAX_CHARACTERS = 1_000
#: Of a longer text, only the beginning is searched for secrets.
_MAX_READ = 10 * _MAX_CHARACTERS
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class SafeStage(Shipped):
    """Calls a function for the records of a task that have no dead letter.

    Args:
        function: the function.
        step: the name of the step.
        columns: the columns that the function receives.
        source: the columns of the DataFrame with the source record.
        schema: the columns of the result. The last one is that of dead letters.
    """

    def __init__(
        self, function: SafeFunction, step: str, columns: Sequence[str], source: Sequence[str], schema: pa.Schema
    ) -> None:
        self._function, self._step, self._schema = function, step, schema
        self._columns, self._source = tuple(columns), tuple(source)
        self.__name__ = f"streamgroups_safely:{step}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        for batch in batches:
            if batch.num_rows:
                yield from self._processed(pa.Table.from_batches([batch])).to_batches()

    def _processed(self, records: pa.Table) -> pa.Table:
        letters, numbers = self._earlier(records)
        given = records if len(numbers) == records.num_rows else records.take(pa.array(numbers))
        given_columns = in_utc(given.select(self._columns))
        result = self._call_function(given_columns, given)
        output = _in_places(result.table, numbers[result.at], records.num_rows)
        if result.failed:
            places = numbers[[it.at for it in result.failed]]
            new = _in_places(self._letters(result, given_columns, given), places, records.num_rows)
            letters = pa.concat_tables([letters, new]).take(_either(places, records.num_rows))
        found = {name: records[name] for name in records.column_names}
        found |= {name: output[name] for name in output.column_names} | {COLUMN: letters[COLUMN]}
        return pa.table([found[field.name].cast(field.type) for field in self._schema], schema=self._schema)

    def _earlier(self, records: pa.Table) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
        """The letters of earlier steps, and the numbers of the records without one."""
        form = self._schema.field(COLUMN)
        if COLUMN not in records.column_names:
            return pa.table([pa.nulls(records.num_rows, form.type)], names=[COLUMN]), np.arange(records.num_rows)
        letters = records[COLUMN].cast(form.type)
        return pa.table([letters], names=[COLUMN]), np.flatnonzero(letters.is_null().to_numpy())

    def _call_function(self, records: pa.Table, with_source: pa.Table) -> FunctionResult:
        try:
            return self._function(records)
        except Exception as e:
            if isinstance(e, FunctionFailed):
                problem, remedy = e.what, e.remedy
            else:
                problem = f"The function '{self._function.name}' has raised {type(e).__name__}: {text_of(e)}."
                remedy = (
                    "Correct the cause, and the batch runs again. If this error is about single records, pass 'fail_on' "
                    "without its class, or raise another error 'from None'."
                )
            raise FunctionFailed(f"Step '{self._step}': {problem} {_where(with_source)}".strip(), remedy=remedy) from e

    def _letters(self, result: FunctionResult, given: pa.Table, with_source: pa.Table) -> pa.Table:
        form = self._schema.field(COLUMN).type
        failed = pa.array([it.at for it in result.failed])
        records = with_source.select(self._source).take(failed)
        has_content = "value" in self._source
        rows = [None] * len(failed) if has_content else json_of(given.take(failed), _MAX_RECORD)
        missing = missing_columns(self._source)
        facts = [_facts(self._step, it, row, missing) for it, row in zip(result.failed, rows, strict=True)]
        children = [
            records[field.name].combine_chunks().cast(field.type)
            if field.name in self._source
            else pa.array([it.get(field.name) for it in facts], type=field.type)
            for field in form
        ]
        return pa.table([pa.StructArray.from_arrays(children, fields=list(form))], names=[COLUMN])


def _facts(step: str, failed: Failed, record: str | None, missing: Mapping[str, str]) -> dict[str, Any]:
    details = {}
    if (place := place_of(failed.error, user_functions.__file__)) is not None:
        details["at"] = place
    if record is not None:
        details["record"] = record
    return {
        "step": step,
        "error_class": type(failed.error).__name__,
        "error": text_of(failed.error),
        "details": [*details.items(), *missing.items()],
    }


def _in_places(table: pa.Table, places: np.ndarray[Any, np.dtype[np.int64]], count: int) -> pa.Table:
    """A table of ``count`` rows, with the rows of a table in some places, and null in the others."""
    if len(places) == count:
        return table
    rows = np.full(count, -1, np.int64)
    rows[places] = np.arange(len(places))
    return table.take(pa.array(rows, mask=rows < 0))


def _either(places: np.ndarray[Any, np.dtype[np.int64]], count: int) -> pa.Array:
    """The rows of two tables of ``count`` rows, one after the other: those in some places are of the second table."""
    rows = np.arange(count)
    rows[places] += count
    return pa.array(rows)


def _where(records: pa.Table) -> str:
    names = records.column_names
    if not {"partition", "offset"} <= set(names):
        return ""
    topic = f"{records['topic'][0]}-" if "topic" in names else "partition "
    return f"It was called with records from {topic}{records['partition'][0]}, offset {records['offset'][0]} on."


# ---- the error of a user's function ----------------------------------------------------------------------------------


def text_of(error: BaseException) -> str:
    """Returns the message of an error on one line: without secrets, and at most 1,000 characters.

    >>> text_of(ValueError("no login:\\npassword=hunter2"))
    'no login:\\\\x0apassword=***'
    """
    try:
        text = str(error)
    except Exception:
        # The error is of a class of the user.
        text = ""
    text = printable(redacted(text[:_MAX_READ], ()))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


def place_of(error: BaseException, caller: str) -> str | None:
    """Returns file, line and function where the code of the user has raised an error.

    Args:
        error: the error.
        caller: the file that calls the function of the user.

    Returns:
        The last place that is in no library. ``None`` if no function of the user was running.
    """
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    last = max((i for i, (code, _) in enumerate(frames) if code.co_filename == caller), default=-1)
    called = [it for it in frames[last + 1 :] if not it[0].co_filename.endswith((".pxi", ".pyx"))]
    own = [it for it in called if not it[0].co_filename.startswith(_LIBRARIES)]
    if not own:
        return None
    code, line = own[-1]
    return f"{PurePath(code.co_filename).name}:{line} in {code.co_name}"
