"""A channel by which tasks report to the user's process: an accumulator of Spark.

Used by ``source.observed_times`` and ``state.stage``. Spark merges the accumulator of a task before the task counts
as finished, on any machine of a cluster, and ignores failed attempts. After a batch its reports are therefore complete.
Source: Spark's ``AccumulatorParam``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from streamgroups_spark.internals.private_spark import pickled, unpickled

_T = TypeVar("_T")


class ReportParam(AccumulatorParam[list[_T]]):
    """Collects reports in tasks. In the user's process it passes them on and stores nothing."""

    def __init__(self, keep: Callable[[list[_T]], None]) -> None:
        self._keep: Callable[[list[_T]], None] | None = keep

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for tasks, without the callback, which runs on the driver."""
        return {"_keep": None}

    def zero(self, value: list[_T]) -> list[_T]:
        """Returns the empty value."""
        return []

    def addInPlace(self, value1: list[_T], value2: list[_T]) -> list[_T]:
        """Adds reports in tasks, or passes them on."""
        if self._keep is None:
            return value1 + value2
        self._keep(value2)
        return []


class Channel(Generic[_T]):
    """The channel. Pickled into tasks, where the accumulator is unpickled at the first report.

    In other processes, such as Spark's planning processes, an unpickled accumulator would count as updated.

    Args:
        spark: the session.
        keep: receives the reports of each task, on a thread of Spark.
    """

    def __init__(self, spark: SparkSession, keep: Callable[[list[_T]], None]) -> None:
        accumulator: Accumulator[list[_T]] = spark.sparkContext.accumulator([], ReportParam(keep))
        self._pickled = pickled(accumulator)

    def send(self, reports: Iterable[_T]) -> None:
        """Reports. The reports of a failed task do not count."""
        accumulator: Accumulator[list[_T]] = unpickled(self._pickled)
        accumulator.add(list(reports))
