"""A user's function as an operator with state: one row of state for each key.

Created by ``streamgroups_spark.state.stateful`` and run by ``task_states``. The function receives the records of a
partition in a batch, with the state of their keys. Each batch appends the new rows of these keys as a segment, and the
newest row of a key is valid. A row with an unset time removes its key. So a write follows the batch and not the state.
Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import FunctionFailed
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.state.changed_definition import FUNCTION_FORM
from streamgroups_operators.keys import key_numbers, newest_rows, rows_of_keys
from streamgroups_operators.merging import merged_newest
from streamgroups_operators.operator import BatchTime, Part, PartReader, Run, State
from streamgroups_operators.plain_values import texts_of

#: A function of the state, the records and the time, which returns the new state and the output.
StateFunction: TypeAlias = Callable[[pa.Table, pa.Table, BatchTime], tuple[pa.Table, pa.Table]]
#: A function that converts the rows of the state of an earlier version: the key columns, and the columns of that version.
MigrateFunction: TypeAlias = Callable[[pa.Table], pa.Table]
#: The column with the time of the last records of a key, in milliseconds since the epoch. Null: the key is removed.
UPDATED = "__updated_ms"
_PART = "rows"


@dataclass(frozen=True, slots=True)
class FunctionOperator:
    """See :class:`streamgroups_operators.operator.StatefulOperator`.

    Args:
        name: the name of the operator in its query.
        function: the function of the user.
        by: the key columns, at least one.
        rows: the columns of the state that the function receives and returns: those of ``by``, and its own.
        output: the columns of the output.
        version: the version of the meaning of the state.
        expire_after_ms: a key without records for this time is removed. ``None``: never.
        behind: the operator whose results are the records; ``None`` for records of the source.
        migrate: functions that convert the states of earlier versions, by version.
    """

    name: str
    function: StateFunction
    by: tuple[str, ...]
    rows: pa.Schema
    output: pa.Schema
    version: int = 1
    expire_after_ms: int | None = None
    behind: str | None = None
    migrate: Mapping[int, MigrateFunction] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """See :attr:`StatefulOperator.form`."""
        own = ", ".join(f"{it.name} {it.type}" for it in self.rows)
        return f"{FUNCTION_FORM}{own}) {self._form_end(self.version)}"

    def _form_end(self, version: int) -> str:
        """The end of the form of a version. The columns of the state before it can differ."""
        behind = "" if self.behind is None else ", of the results of another operator"
        return f"by ({', '.join(self.by)}), version {version}{behind}"

    def migration(self, form: str) -> Callable[[pa.Table], pa.Table] | None:
        """How the rows of a state of an earlier version are converted; ``None`` if they cannot be."""
        for version, function in self.migrate.items():
            if form.startswith(FUNCTION_FORM) and form.endswith(f") {self._form_end(version)}"):
                return partial(_migrated, self, function)
        return None

    @property
    def schema(self) -> pa.Schema:
        """See :attr:`StatefulOperator.schema`."""
        return self.rows.append(pa.field(UPDATED, pa.int64()))

    @property
    def keys(self) -> pa.Schema:
        """The key columns."""
        return pa.schema([self.rows.field(name) for name in self.by])

    def begin(self, state: State, read: PartReader, time: BatchTime) -> Run:
        """See :meth:`StatefulOperator.begin`."""
        return _FunctionRun(self, state, read, time)


class _FunctionRun:
    def __init__(self, operator: FunctionOperator, state: State, read: PartReader, time: BatchTime) -> None:
        self._operator, self._state, self._read, self._time = operator, state, read, time
        self._records: list[pa.Table] = []

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """See :meth:`Run.add_watermarks`. A function uses no watermark."""

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        # Nullable columns: Arrow concatenates only tables whose columns are equal in this too.
        self._records.append(records.cast(pa.schema([(it.name, it.type) for it in records.schema])))

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        if not self._records:
            return self._state, []
        records = pa.concat_tables(self._records)
        keys = records.select(self._operator.by).cast(self._operator.keys)
        part = self._state.parts.get(_PART, ())
        stored = self._stored_of(keys, part)
        call = _Call(self._operator, records, self._time)
        after, output = call.result(self._live(stored).select(self._operator.rows.names))
        call.check_keys(keys, after)
        return State({_PART: self._merged([*part, self._changes(stored, after)])}), [output]

    # ---- state -------------------------------------------------------------------------------------------------------

    def _stored_of(self, keys: pa.Table, part: Part) -> pa.Table:
        """The rows of some keys that are not removed. Reads one segment at a time, because most of its rows are of other keys."""
        found = [rows_of_keys(rows, keys) for rows in self._read.each(part)]
        rows = pa.concat_tables(found) if found else self._operator.schema.empty_table()
        rows = newest_rows(rows, self._operator.by)
        return rows.filter(pc.is_valid(rows[UPDATED]))

    def _live(self, rows: pa.Table) -> pa.Table:
        """The rows of keys that are neither removed nor expired."""
        return rows.filter(self._is_live(rows))

    def _is_live(self, rows: pa.Table) -> pa.ChunkedArray:
        expire_after_ms = self._operator.expire_after_ms
        if expire_after_ms is None:
            return pc.is_valid(rows[UPDATED])
        return pc.fill_null(pc.greater(rows[UPDATED], self._time.now_ms - expire_after_ms), False)

    def _changes(self, stored: pa.Table, after: pa.Table) -> pa.Table:
        """The segment of the batch: the new rows, and the removed keys.

        An expired key is removed too. Its row would be valid again for the clock of the next batch, if that is behind.
        """
        before = stored.select(self._operator.rows.names)
        input_keys, kept = key_numbers(self._operator.by, before, after)
        removed = before.filter(pa.array(~np.isin(input_keys, kept)))
        updated = pa.array(np.full(after.num_rows, self._time.now_ms, np.int64))
        nothing = pa.nulls(removed.num_rows, pa.int64())
        return pa.concat_tables(
            rows.append_column(UPDATED, times) for rows, times in ((after, updated), (removed, nothing))
        )

    def _merged(self, part: Part) -> Part:
        return merged_newest(self._read, part, self._operator.by, self._is_live)


def _migrated(operator: FunctionOperator, function: MigrateFunction, rows: pa.Table) -> pa.Table:
    """The state of an earlier version, converted: one row of each key that is not removed, with the time of its last records.

    Raises:
        FunctionFailed: if the function raises an error, or returns other columns or keys than it must.
    """
    by, schema = list(operator.by), operator.rows
    live = newest_rows(rows, by)
    live = live.filter(pc.is_valid(live[UPDATED]))
    name, remedy = getattr(function, "__name__", function), "Correct the function. The batch then runs again."

    def failed(problem: str, cause: Exception | None = None) -> FunctionFailed:
        what = f"The function '{name}', which converts the state of operator '{operator.name}', {problem}."
        error = FunctionFailed(what, remedy=remedy)
        error.__cause__ = cause
        return error

    try:
        new = function(live.drop_columns([UPDATED]))
    except Exception as e:
        raise failed(f"has raised {type(e).__name__}: {e}", e) from e
    if not isinstance(new, pa.Table) or sorted(new.column_names) != sorted(schema.names):
        returned = ", ".join(new.column_names) if isinstance(new, pa.Table) else type(new).__name__
        raise failed(f"has returned {returned}, and not a pyarrow.Table with {', '.join(schema.names)}")
    try:
        new = new.select(schema.names).cast(schema)
        before, after = key_numbers(by, live.select(by).cast(operator.keys), new)
    except pa.ArrowException as e:
        raise failed(
            f"has returned other types than {', '.join(f'{it.name} {it.type}' for it in schema)} ({e})", e
        ) from e
    if len(np.unique(after)) < len(after) or not np.isin(after, before).all():
        raise failed("has returned several rows of a key, or a key that it has not received")
    times = np.zeros(int(before.max(initial=-1)) + 1, np.int64)
    times[before] = live[UPDATED].to_numpy()
    return new.append_column(UPDATED, pa.array(times[after]))


# ---- the function ----------------------------------------------------------------------------------------------------


class _Call:
    """One call of the function, and the checks of its result."""

    def __init__(self, operator: FunctionOperator, records: pa.Table, time: BatchTime) -> None:
        self._operator, self._records, self._time = operator, records, time

    def result(self, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Returns the new state and the output.

        Raises:
            FunctionFailed: if the function raises an error, or returns other tables than it must.
        """
        try:
            result = self._operator.function(state, self._records, self._time)
        except Exception as e:
            self._fail(f"has raised {type(e).__name__}: {e}", "Correct the function. The batch then runs again.", e)
        if not (isinstance(result, tuple) and list(map(type, result)) == [pa.Table, pa.Table]):
            returned = [type(it).__name__ for it in result] if isinstance(result, tuple) else type(result).__name__
            self._fail(
                f"has returned {returned}", "Return a tuple of two pyarrow.Table: the new state, and the output."
            )
        return self._of(result[0], self._operator.rows, "state"), self._of(result[1], self._operator.output, "output")

    def _of(self, table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
        expected = ", ".join(f"{it.name} {it.type}" for it in schema)
        if sorted(table.column_names) != sorted(schema.names):
            returned = ", ".join(table.column_names) or "no columns"
            self._fail(f"has returned the {what} with {returned}", f"Return the columns: {expected}.")
        try:
            return table.select(schema.names).cast(schema)
        except pa.ArrowException as e:
            returned = ", ".join(f"{it.name} {it.type}" for it in table.schema)
            self._fail(f"has returned the {what} with {returned} ({e})", f"Return the columns: {expected}.", e)

    def check_keys(self, keys: pa.Table, state: pa.Table) -> None:
        """Checks the keys of the new state.

        Raises:
            FunctionFailed: if it has a key without records, or several rows of a key.
        """
        input_keys, returned = key_numbers(self._operator.by, keys, state)
        foreign = ~np.isin(returned, input_keys)
        if foreign.any():
            [key] = texts_of(state.select(self._operator.by).slice(int(foreign.argmax()), 1))
            self._fail(
                f"has returned a state of the key {key}, but the batch has no record of it",
                "Return rows of the keys in the records only. The state of all other keys stays as it is.",
            )
        if len(np.unique(returned)) < len(returned):
            [key] = texts_of(state.select(self._operator.by).slice(int(np.bincount(returned)[returned].argmax()), 1))
            self._fail(f"has returned several rows of state of the key {key}", "Return at most one row of each key.")

    def _fail(self, problem: str, remedy: str, cause: Exception | None = None) -> NoReturn:
        records, function = self._records, self._operator.function
        topic = records["topic"][0].as_py() if "topic" in records.column_names else None
        partition, offsets = records["partition"][0].as_py(), records["offset"]
        where = f"partition {partition}" if topic is None else f"{topic}-{partition}"
        raise FunctionFailed(
            f"The function '{getattr(function, '__name__', function)}' of operator '{self._operator.name}' {problem}. "
            f"It was called with the records of {where} from offset {offsets[0]} to {offsets[-1]}.",
            remedy=remedy,
            topic=topic,
            partition=partition,
        ) from cause
