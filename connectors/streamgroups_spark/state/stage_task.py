"""One task of an operator with state: takes its plan and its records, and writes the new states.

Created by ``state.stage`` in a Python worker for each task. Spark passes the records of the reader, or only counts them if
the operator receives them directly (``bridge.direct``). The rows of a small batch need longer through Spark than the read
itself. So a task with direct records does not wait for them: it processes the records and writes the states as soon as
the reader has ended, and counts Spark's rows afterwards. Source: SEMANTICS S10.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.state.manifest import Manifest
from streamgroups.state.task_plan import TaskPlan
from streamgroups_operators.joins.join_states import JoinTaskStates
from streamgroups_operators.task_states import TaskStates
from streamgroups_spark.bridge.direct import DirectRecords, kept_rows
from streamgroups_spark.bridge.handoff import Handoff

States: TypeAlias = TaskStates | JoinTaskStates

#: How long a task waits for its reader before it waits for Spark's rows, and the polling interval. The reader of a small
#: batch takes a few milliseconds.
_WAIT_S, _POLL_INTERVAL_S = 0.1, 0.0005
#: The maximum number of offsets of a small batch. In a larger one the operator takes records while Spark passes rows, so
#: that the reader does not wait for it.
_SMALL_OFFSETS = 20_000


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task whose states are written.

    Args:
        plan: its plan.
        states: its states.
        manifest: the manifest of its state file.
        output: the output rows.
        direct_records: the number of records that it has received directly.
    """

    plan: TaskPlan
    states: States
    manifest: Manifest
    output: list[pa.Table]
    direct_records: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """A task whose plan is known.

    Args:
        plan: its plan.
        states: its states.
    """

    plan: TaskPlan
    states: States

    @property
    def is_small(self) -> bool:
        """Whether the operator receives a small batch directly."""
        return self.plan.is_direct and sum(len(it.to_read) for it in self.plan.ranges) <= _SMALL_OFFSETS


class StageTask:
    """A task. Used by one thread.

    Args:
        handoff: what the reader passes on.
        states: returns the states of a plan.
        direct: the direct records of the operator; ``None`` if Spark passes the records.
        attempt: the id of the attempt.
    """

    def __init__(
        self, handoff: Handoff, states: Callable[[TaskPlan], States], direct: DirectRecords | None, attempt: int
    ) -> None:
        self._handoff, self._states, self._direct, self._attempt = handoff, states, direct, attempt
        self._begun: _Begun | None = None
        self._finished: FinishedTask | None = None
        #: The rows of Spark so far, and those that the reader has kept.
        self._rows = self._kept = 0
        self._direct_records = 0

    def start(self) -> None:
        """Processes a small batch without Spark's rows, if the operator receives its records directly."""
        if self._direct is None:
            return
        until_s = time.monotonic() + _WAIT_S
        while (begun := self._begin()) is None:
            # The reader of a warm-up has no plan.
            if self._handoff.has_ended or not _may_poll_again(until_s):
                return
        if not begun.is_small:
            return
        # After the end is known, all records can be taken.
        while not (has_ended := self._handoff.has_ended) and _may_poll_again(until_s):
            self._take_direct(begun.states)
        if has_ended:
            self._take_direct(begun.states)
            self._finished = self._finish(begun)

    def add(self, batch: pa.RecordBatch) -> None:
        """Processes an Arrow batch of Spark.

        Raises:
            InvalidOption: if the task has read no ranges.
        """
        if not batch.num_rows:
            return
        begun = self._begin()
        if begun is None:
            raise _moved()
        self._rows += batch.num_rows
        if self._finished is not None:
            return
        if begun.plan.is_direct:
            self._take_direct(begun.states)
            return
        begun.states.add_watermarks(self._handoff.take_watermarks())
        begun.states.add(batch)

    def finish(self) -> FinishedTask | None:
        """Writes the states after all rows. ``None`` if the task has read no ranges, such as one of a warm-up.

        Raises:
            StreamGroupsError: if Spark has passed another number of rows than the reader.
        """
        begun = self._begin()
        if begun is None:
            return None
        if begun.plan.is_direct:
            if self._finished is None:
                self._take_direct(begun.states)
            if self._rows != self._kept:
                raise _incomplete(self._rows, self._kept)
        return self._finished or self._finish(begun)

    def _begin(self) -> _Begun | None:
        """Begins with the states when the plan is known. ``None`` until then."""
        if self._begun is None and (plans := self._handoff.take_plans()):
            plan = replace(plans[0], ranges=tuple(it for plan in plans for it in plan.ranges))
            self._begun = _Begun(plan, self._states(plan))
        return self._begun

    def _take_direct(self, states: States) -> None:
        """Processes the records that the reader has passed directly."""
        assert self._direct is not None, "the source has found the columns in the name of this stage"
        for batch in self._handoff.take_records():
            states.add_watermarks(self._handoff.take_watermarks())
            states.add(self._direct.of(batch))
            self._kept += kept_rows(batch)
            self._direct_records += batch.num_rows

    def _finish(self, begun: _Begun) -> FinishedTask:
        # The reader has ended, and its last watermarks can be after all records.
        begun.states.add_watermarks(self._handoff.take_watermarks())
        manifest, output = begun.states.finish(begun.plan.file(self._attempt))
        return FinishedTask(begun.plan, begun.states, manifest, output, self._direct_records)


def _may_poll_again(until_s: float) -> bool:
    """Waits for a moment. Returns whether the reader still has time."""
    time.sleep(_POLL_INTERVAL_S)
    return time.monotonic() < until_s


def _moved() -> InvalidOption:
    return InvalidOption(
        "An operator with state receives records that its task has not read: an operation before it moves records "
        "between tasks.",
        remedy="Apply the operator before repartition, groupBy, join or distinct.",
    )


def _incomplete(rows: int, spark_rows: int) -> StreamGroupsError:
    return StreamGroupsError(
        f"An operator with state has received {rows} rows from Spark, but the reader of its task has passed {spark_rows}.",
        remedy="Restart the query: it reads the batch again. If it fails again, report it with the plan of the query.",
    )
