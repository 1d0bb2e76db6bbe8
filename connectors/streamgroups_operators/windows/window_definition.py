"""The definition of windows with state, as it is sent to the workers.

Used by the modules of this folder; ``streamgroups_operators.window_operator`` adds the behaviour. Source: SEMANTICS W4-W9,
S10, W17.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamgroups.durations import exact
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate
from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, Session, Shape, Windowing
from streamgroups_operators.aggregates import form_of
from streamgroups_operators.operator import key_columns, watermark_form, with_schema

#: The number of late records of a pane: its revision.
LATE = ("late", "sum")


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """Everything that determines the results of windows.

    The records have the columns ``time`` (milliseconds since the epoch), ``k0``, ``k1`` and so on, the arguments ``a0``,
    ``a1`` and so on, ``until`` (milliseconds) if records before the watermark are adjusted or events are no points,
    and ``record`` with dead letters. Edges also have the ``offset`` of the source.

    Args:
        name: the name of the operator in its query.
        windowing: how records are assigned to windows.
        delay_ms: records advance the watermark to the newest event time minus this delay. ``None``: only the producer
            advances it. Ignored by processing time.
        keys: the number of key columns.
        aggregates: the aggregates.
        schema: the columns of the state, see :func:`state_schema`.
        output: the columns of the output.
        on_violation: how records before the watermark are handled.
        scope: whether the watermark is that of the partition or that of the group.
        is_bounded: whether the records are bounded data. Then each window is emitted once.
        event_shape: how long an event is valid.
        behind: the operator whose results are the records; ``None`` for records of the source. Only this operator advances
            the watermark.
        is_chained: whether another operator can process the results: the output has ``partition`` and ``offset``.
        columns: the names of the columns that the query passes: of the keys, of the event time, and of the end of events.
    """

    name: str
    windowing: Windowing
    delay_ms: int | None
    keys: int
    aggregates: tuple[SqlAggregate | PythonAggregate, ...]
    schema: pa.Schema
    output: pa.Schema
    on_violation: OnViolation = OnViolation.KEEP
    scope: Scope = Scope.PARTITION
    is_bounded: bool = False
    event_shape: EventShape = EventShape.POINT
    behind: str | None = None
    is_chained: bool = False
    columns: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """See :attr:`streamgroups_operators.operator.StatefulOperator.form`."""
        types = ", ".join(str(self.schema.field(key).type) for key in self.key_names)
        events = "" if self.event_shape is EventShape.POINT else f"{self.event_shape.value} events, "
        keys = f"by ({types}) in columns ({', '.join(self.columns)})"
        return f"{self.windowing.shape} of {form_of(self.aggregates)} {keys}, {events}{self._time_form}"

    @property
    def _time_form(self) -> str:
        boundary = self.windowing.boundary
        if not isinstance(boundary, EventTime):
            return "processing time"
        idle = "none" if boundary.idle_timeout_ms is None else exact(boundary.idle_timeout_ms)
        of_group = " of the group" if self.scope is Scope.GROUP else ""
        generated = watermark_form(None if self.delay_ms is None else f"{self.delay_ms} ms", self.behind)
        return (
            f"event time{of_group}, {generated}, allowed lateness {boundary.allowed_lateness_ms} ms, "
            f"idle timeout {idle}, on violation {self.on_violation.value}"
        )

    @property
    def key_names(self) -> list[str]:
        """The key columns."""
        return key_columns(self.keys)


def state_schema(
    shape: Shape,
    records: pa.Schema,
    aggregates: Sequence[SqlAggregate | PythonAggregate],
    event_shape: EventShape = EventShape.POINT,
) -> pa.Schema:
    """Returns the columns of the state: the keys, the number of late records, and partial aggregates.

    Sessions also have their start and end, because those are not the same for all keys. Rows of intervals and edges have
    the start of the first and of the last window that counts them. An edge without an end has no last window. It also has
    its start and its offset, by which its end finds it.

    Args:
        shape: the shape of the windows.
        records: the columns of the records: the keys ``k0``, ``k1`` and so on, and the arguments ``a0``, ``a1`` and so
            on.
        aggregates: the aggregates.
        event_shape: how long an event is valid.

    >>> from streamgroups.event_time.aggregates import parse_aggregate
    >>> records = pa.schema([("k0", pa.string()), ("a0", pa.float64())])
    >>> state_schema(Session(5), records, [parse_aggregate("mean", "avg(delay)")]).names
    ['k0', 'start', 'end', 'late', 'n0', 'p0']
    """
    fields = [field for field in records if field.name[0] == "k" and field.name[1:].isdigit()]
    if isinstance(shape, Session):
        fields += [pa.field("start", pa.int64()), pa.field("end", pa.int64())]
    if event_shape is not EventShape.POINT:
        fields += [pa.field("first", pa.int64()), pa.field("last", pa.int64())]
    if event_shape is EventShape.EDGE:
        fields += [pa.field("begin", pa.int64()), pa.field("offset", pa.int64())]
    fields.append(pa.field("late", pa.int64()))
    for i, aggregate in enumerate(aggregates):
        if isinstance(aggregate, PythonAggregate):
            fields.append(pa.field(f"p{i}", pa.list_(records.field(f"a{i}").type)))
            continue
        if aggregate.function is Function.AVG:
            fields.append(pa.field(f"n{i}", pa.int64()))
        counts = aggregate.function is Function.COUNT
        fields.append(pa.field(f"p{i}", pa.int64() if counts else records.field(f"a{i}").type))
    return pa.schema(fields)


def padded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows with all columns of the state: those that they do not have contain nulls.

    Args:
        rows: the rows. Columns that the state does not have are last.
        schema: the columns of the state.

    >>> padded(pa.table({"late": [0], "start": [5]}), pa.schema([("first", pa.int64()), ("late", pa.int64())])).to_pydict()
    {'first': [None], 'late': [0], 'start': [5]}
    """
    found = with_schema(rows, schema)
    for name in rows.column_names:
        if name not in schema.names:
            found = found.append_column(name, rows[name])
    return found
