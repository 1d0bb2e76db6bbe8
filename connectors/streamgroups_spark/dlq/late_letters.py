"""The dead letters of records that are late, or whose event time is wrong.

Used by ``windows.query_columns``, ``joins.join`` and ``event_time.split_late`` on the driver. Source: SEMANTICS W7, W9,
W18; :mod:`streamgroups.event_time.violations`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.event_time.violations import Why
from streamgroups.json_values import MAX_TIME_MS
from streamgroups_spark.dlq.failure_column import FAILURE_TYPE, failure_of, has_source_column

#: Options of ``to_csv``. No conversion to the time zone of the session precedes them: it can overflow, and two times of a
#: clock change would have one text.
_UTC = MappingProxyType({"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"})
_CLASSES = {
    Why.LATE: "LateRecord",
    Why.VIOLATION: "TimeViolation",
    Why.UNREADABLE: "NoEventTime",
    Why.NO_START: "NoStart",
}


def late_failure(
    schema: StructType,
    cell: Callable[[str], Column],
    *,
    step: str,
    why: Column,
    event_time: Column,
    watermark: Column,
    window_start: Column | None = None,
    window_end: Column | None = None,
) -> Column:
    """Returns the failure of a record that an operator with event time does not count.

    Args:
        schema: the columns of the record.
        cell: returns a column of the record.
        step: the name of the operator.
        why: a value of :class:`~streamgroups.event_time.violations.Why`.
        event_time: the event time, a timestamp.
        watermark: the watermark at that moment, a timestamp.
        window_start: the start of the missed window; ``None`` without windows.
        window_end: the end of the missed window.
    """
    late_by_ms = (F.unix_millis(watermark) - F.unix_millis(event_time)).cast("string")
    facts = {
        "why": why,
        "event_time": _text(event_time),
        "watermark": _text(watermark),
        "late_by_ms": late_by_ms,
    }
    if window_start is not None and window_end is not None:
        facts |= {"window_start": _text(window_start), "window_end": _text(window_end)}
    if not has_source_column(schema, "value"):
        names = [name for name in schema.names if schema.names.count(name) == 1]
        facts["record"] = F.to_json(F.struct(*(cell(name).alias(name) for name in names)))
    pairs = [it for name, value in facts.items() for it in (F.lit(name), value)]
    details = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    by = F.concat(F.lit("The event time is "), F.coalesce(late_by_ms, F.lit("?")), F.lit(" ms before the watermark"))
    error = (
        F.when(why == Why.UNREADABLE.value, F.lit("The record has no event time."))
        .when(
            why == Why.NO_START.value,
            F.lit("The record ends an event that has not started, or that has ended already."),
        )
        .when(why == Why.VIOLATION.value, F.concat(by, F.lit(".")))
        .otherwise(F.concat(by, F.lit(", and its window is closed.") if window_start is not None else F.lit(".")))
    )
    classes = [it for kind, name in _CLASSES.items() for it in (F.lit(kind.value), F.lit(name))]
    return failure_of(
        schema, cell, step=step, error_class=F.create_map(*classes)[why], error=error, details=details
    ).cast(FAILURE_TYPE)


def _text(time: Column) -> Column:
    """Returns a time as ISO 8601 in UTC, whatever the time zone of the session is.

    A time that is far from 1970 is in milliseconds, as in :func:`streamgroups.times.utc`.
    """
    milliseconds = F.unix_millis(time)
    text = F.to_csv(F.struct(time.alias("time")), dict(_UTC))
    is_near = milliseconds.between(-MAX_TIME_MS, MAX_TIME_MS)
    return F.when(is_near, text).otherwise(F.concat(milliseconds.cast("string"), F.lit("ms")))
