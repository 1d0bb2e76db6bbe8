"""Operators downstream of windows: which operator can process their results, and the columns that have their watermark.

Called by ``windows.windows``, ``windows.by_offset``, ``state.stateful`` and ``joins.join`` on the driver. Metadata of Spark's
columns mark the times of results: a column keeps its metadata when it is selected or renamed, and an expression has none.
Source: SEMANTICS W13; Spark's ``Column.alias``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField

from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge.plan import analyzed, read_streams
from streamgroups_spark.bridge.stage_name import StageName

#: The name of the metadata of a column with a time of results: ``[operator, time, idle timeout in milliseconds]``.
_MARK = "streamgroups.results_of"
#: The times of a result.
TIMES = ("window_start", "window_end", "window_time")
_TO_TOPIC = (
    "Or write the output to a topic, with sg.exactly_once and sg.KafkaSink, and process it in a query with another "
    "group.id."
)


@dataclass(frozen=True, slots=True)
class ResultTime:
    """A column with a time of the results of windows.

    Args:
        operator: the windows.
        time: which time of the result, one of :data:`TIMES`.
        idle_timeout_ms: their idle timeout; ``None`` without one.
    """

    operator: str
    time: str
    idle_timeout_ms: int | None = None

    def column(self, values: Column) -> Column:
        """Returns the column with this time."""
        timeout = "" if self.idle_timeout_ms is None else str(self.idle_timeout_ms)
        return values.alias(self.time, metadata={_MARK: [self.operator, self.time, timeout]})

    @classmethod
    def of(cls, field: StructField) -> ResultTime | None:
        """Returns the time that a column contains; ``None`` for any other column.

        >>> from pyspark.sql.types import TimestampType
        >>> mark = {"streamgroups.results_of": ["minutes", "window_end", "500"]}
        >>> ResultTime.of(StructField("ended", TimestampType(), metadata=mark))
        ResultTime(operator='minutes', time='window_end', idle_timeout_ms=500)
        """
        mark = (field.metadata or {}).get(_MARK)
        return None if mark is None else cls(mark[0], mark[1], int(mark[2]) if mark[2] else None)


def operators_before(df: DataFrame) -> tuple[StageName, ...]:
    """Returns the operators with state that process the records of a stream before a DataFrame, in their order."""
    branches = [stream.stages for stream in read_streams(analyzed(df))] if df.isStreaming else []
    # Branches with other operators are rejected when the query starts.
    return max((tuple(map(StageName.parse, it)) for it in branches), key=len, default=())


def results_before(df: DataFrame) -> str | None:
    """Returns the windows of partitions whose results a DataFrame contains; ``None`` for any other DataFrame."""
    before = operators_before(df)
    return before[-1].operator if before and before[-1].is_chained else None


def operator_before(df: DataFrame, name: str, called: str) -> str | None:
    """Returns the operator whose results another operator processes; ``None`` if it processes records of the source.

    Args:
        df: the input of the other operator.
        name: the name of the other operator.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if the DataFrame is the output of an operator that has no results for another one, or both have the
            same name.
    """
    before = operators_before(df)
    if not before:
        return None
    last = before[-1]
    if not last.is_chained:
        raise InvalidOption(
            f"{called} reads the output of the operator '{last.operator}', which has no event time for another operator "
            "with state.",
            remedy="If it is sg.windows, set chained=True there. The output of sg.stateful, sg.join and sg.dedup has no "
            f"watermark. {_TO_TOPIC}",
        )
    if name in {it.operator for it in before}:
        raise InvalidOption(
            f"Two operators of the query have the name '{name}', so they would have the same state files.",
            remedy=f"Set another 'name' in the second call, such as name='{name}-2'.",
        )
    return last.operator


def reject_behind(df: DataFrame, called: str) -> None:
    """Rejects an operator that cannot process the results of another one.

    Raises:
        InvalidOption: if the DataFrame is the output of an operator with state.
    """
    before = operators_before(df)
    if before:
        raise InvalidOption(
            f"{called} reads the output of the operator '{before[-1].operator}', but needs records of the source.",
            remedy=f"Call {called} on the stream of the source. {_TO_TOPIC}",
        )


def check_result_time(df: DataFrame, on: str, before: str, called: str) -> ResultTime:
    """Returns the time of results that is the event time of an operator downstream of windows.

    Args:
        df: the results.
        on: the column with the event time.
        before: the windows.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if the column is no time of the results, or has another watermark.
    """
    time = ResultTime.of(df.schema[on])
    if time is None or time.operator != before:
        raise InvalidOption(
            f"The event time of {called} is '{on}', which is not a time of the results of the operator '{before}', so it "
            "is not under their watermark.",
            remedy=f"Use {', '.join(TIMES[:-1])} or {TIMES[-1]}, without an expression.",
        )
    return time
