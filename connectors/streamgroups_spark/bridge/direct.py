"""Whether an operator can receive its records directly from the reader, and the columns of these records.

Between the reader of a task and its operator, Spark converts each record from Arrow to a row and back, which takes as long
as the read itself. If the plan between both only selects, renames and converts columns, the reader writes the records
for the operator into files (``bridge.handoff``). Spark receives rows with nulls instead, so that it counts them, and a
filter drops most of those of a large batch. The others have the event time of ``withWatermark``, which Spark reports, and
limit how far Spark reads ahead of the operator. Created by ``state.operator_plan`` on the driver, and pickled into Python
workers. Source: SEMANTICS S10; Spark's ``Project``, ``EventTimeWatermark`` and ``unix_millis``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from streamgroups_spark.bridge.handoff import RecordsToOperator
from streamgroups_spark.bridge.plan import FORMAT, analyzed, is_data_source, source_name
from streamgroups_spark.bridge.stage_name import DirectColumns
from streamgroups_spark.internals.logical_operators import SELECTING

_MICROSECONDS_PER_MS = 1_000
_PARTITION = "partition"
#: Spark keeps one row of this number of records, and one for this number of bytes if records are larger. By default it
#: passes 10,000 rows at once to an operator, so the reader is ahead of it by about 80,000 records or 10 MB.
_ROW_RECORDS = 8
_ROW_BYTES = 1_024
#: The metadata of a batch of records: the number of its rows that Spark keeps.
_SPARK_ROWS = "kept"


class Conversion(Enum):
    """How a column of the source becomes one of the records of an operator."""

    NONE = "none"
    #: ``cast(... AS string)`` of a binary column.
    TEXT = "text"
    #: ``unix_millis``.
    MILLISECONDS = "milliseconds"


@dataclass(frozen=True, slots=True)
class DirectColumn:
    """A column of the records of an operator.

    Args:
        name: its name in these records.
        source: the column of the source.
        conversion: how the column of the source is converted.
    """

    name: str
    source: str
    conversion: Conversion = Conversion.NONE

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the column for records with the columns of the source."""
        values = batch[self.source]
        if self.conversion is Conversion.MILLISECONDS:
            return _in_ms(values)
        # As in Spark, bytes that are not UTF-8 stay as they are.
        return values.view(pa.string()) if self.conversion is Conversion.TEXT else values


@dataclass(frozen=True, slots=True)
class DirectRecords:
    """The records of an operator, as columns of the source.

    Args:
        columns: the columns of the records.
        partition: the column of the records with the partition. It is null in the rows that Spark drops.
        event_times: the columns of the source with a watermark of Spark.

    >>> import datetime as dt
    >>> rows = pa.record_batch({"key": [b"AA"], "timestamp": [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)]})
    >>> records = DirectRecords((DirectColumn("k0", "key"), DirectColumn("time", "timestamp", Conversion.MILLISECONDS)), "k0")
    >>> records.of(rows).to_pydict()
    {'k0': [b'AA'], 'time': [1000]}
    """

    columns: tuple[DirectColumn, ...]
    partition: str
    event_times: frozenset[str] = frozenset()

    @property
    def direct_columns(self) -> DirectColumns:
        """The columns of the source that the reader passes to the operator, and to Spark."""
        return DirectColumns(frozenset(it.source for it in self.columns), self.event_times)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the records of the operator.

        Args:
            batch: records with the columns of the source.
        """
        return pa.RecordBatch.from_arrays([it.of(batch) for it in self.columns], [it.name for it in self.columns])


def _in_ms(times: pa.Array) -> pa.Array:
    # As in Spark, a time before the epoch is rounded down.
    microseconds = times.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    if not microseconds.null_count:
        return pa.array(microseconds.to_numpy() // _MICROSECONDS_PER_MS)
    values = microseconds.fill_null(0).to_numpy() // _MICROSECONDS_PER_MS
    return pa.array(values, mask=microseconds.is_null().to_numpy(zero_copy_only=False))


def direct_records(records: DataFrame) -> DirectRecords | None:
    """Returns the records of an operator as columns of the source. ``None`` if Spark computes them.

    Args:
        records: the records of the operator.
    """
    event_times: set[str] = set()
    plan = analyzed(records)
    found = _columns(plan, event_times)
    if found is None:
        return None
    output = plan.output()
    columns = []
    for i in range(output.size()):
        attribute = output.apply(i)
        source, conversion = found[attribute.exprId().id()]
        columns.append(DirectColumn(str(attribute.name()), source, conversion))
    partitions = [it.name for it in columns if (it.source, it.conversion) == (_PARTITION, Conversion.NONE)]
    return DirectRecords(tuple(columns), partitions[0], frozenset(event_times)) if partitions else None


# ---- in the reader -----------------------------------------------------------------------------------------------------


def pass_on(
    batches: Iterable[pa.RecordBatch], direct_columns: DirectColumns, schema: pa.Schema, session: str, application: str
) -> Iterator[pa.RecordBatch]:
    """Passes records to the operator of this attempt, and returns rows for Spark.

    Args:
        batches: the records, with all columns to pass on.
        direct_columns: these columns.
        schema: the columns of the rows.
        session: the session of the source.
        application: the id of the Spark application.
    """
    with closing(RecordsToOperator(session, application)) as operator:
        for batch in batches:
            names = batch.schema.names
            records = batch.select([it for it in names if it in direct_columns.to_operator])
            spark_rows = _spark_rows(batch, direct_columns.to_spark, records.nbytes)
            rows = {_SPARK_ROWS: str(int(spark_rows.sum()))}
            operator.write_records(records.replace_schema_metadata(rows))
            partition = pa.array(batch[_PARTITION].to_numpy(), mask=~spark_rows)
            columns = {it: batch[it] for it in direct_columns.to_spark} | {_PARTITION: partition}
            arrays = [columns.get(it.name, _nulls(it.type, len(spark_rows))) for it in schema]
            yield pa.record_batch(arrays, schema=schema)
        operator.end()


def kept_rows(records: pa.RecordBatch) -> int:
    """Returns the number of rows that Spark passes to the operator, for a batch of :func:`pass_on`."""
    return int((records.schema.metadata or {})[_SPARK_ROWS.encode()])


def _spark_rows(batch: pa.RecordBatch, event_times: Collection[str], size_bytes: int) -> np.ndarray[Any, Any]:
    """Returns which rows Spark keeps: some of them, and those with the earliest and the latest event time."""
    step = max(1, min(_ROW_RECORDS, _ROW_BYTES * batch.num_rows // max(1, size_bytes)))
    spark_rows: np.ndarray[Any, Any] = np.arange(batch.num_rows) % step == 0
    for it in event_times:
        known = np.flatnonzero(batch[it].is_valid().to_numpy(zero_copy_only=False))
        if len(known):
            times = batch[it].view(pa.int64()).fill_null(0).to_numpy()[known]
            spark_rows[known[[times.argmin(), times.argmax()]]] = True
    return spark_rows


@cache
def _most_nulls(of: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, of)


def _nulls(of: pa.DataType, rows: int) -> pa.Array:
    # A power of two, so that few arrays are created and kept.
    return _most_nulls(of, 1 << (rows - 1).bit_length() if rows else 0).slice(0, rows)


# ---- in the plan -------------------------------------------------------------------------------------------------------

#: Columns by the id of their expression: the column of the source, and its conversion.
_Found: TypeAlias = dict[int, tuple[str, Conversion]]


def _columns(plan: Any, event_times: set[str]) -> _Found | None:
    """Returns the columns of a plan that only selects and converts those of the source; ``None`` for any other plan."""
    name = plan.nodeName()
    if is_data_source(plan):
        return _of_source(plan) if source_name(plan) == FORMAT else None
    if name not in SELECTING:
        return None
    below = _columns(plan.child(), event_times)
    if below is None or name == "SubqueryAlias":
        return below
    if name == "Project":
        return _selected(plan.projectList(), below)
    source, conversion = below[plan.eventTime().exprId().id()]
    event_times.add(source)
    return below if conversion is Conversion.NONE else None


def _of_source(leaf: Any) -> _Found | None:
    output = leaf.output()
    attributes = [output.apply(i) for i in range(output.size())]
    if not all(it.nullable() for it in attributes):
        # The schema of a user forbids nulls, and Spark would not test for them.
        return None
    return {it.exprId().id(): (str(it.name()), Conversion.NONE) for it in attributes}


def _selected(expressions: Any, below: _Found) -> _Found | None:
    found: _Found = {}
    for i in range(expressions.size()):
        expression = expressions.apply(i)
        column = _source_of(expression, below)
        if column is None:
            return None
        found[expression.exprId().id()] = column
    return found


def _source_of(expression: Any, below: _Found) -> tuple[str, Conversion] | None:
    name = expression.nodeName()
    if name == "AttributeReference":
        return below.get(expression.exprId().id())
    if name == "Alias":
        return _source_of(expression.child(), below)
    conversion = _conversion(name, expression)
    found = None if conversion is None else _source_of(expression.child(), below)
    if conversion is None or found is None or found[1] is not Conversion.NONE:
        return None
    return found[0], conversion


def _conversion(name: str, expression: Any) -> Conversion | None:
    if name == "UnixMillis":
        return Conversion.MILLISECONDS
    if name != "Cast":
        return None
    before, after = expression.child().dataType().simpleString(), expression.dataType().simpleString()
    if before == after:
        return Conversion.NONE
    return Conversion.TEXT if (before, after) == ("binary", "string") else None
