"""An operator with state as a function of ``mapInArrow``, in the stage that reads.

Created by ``state.placement`` on the driver, and pickled into Python workers. To Spark the plan is stateless: it has no
shuffle and no state store. Source: SEMANTICS S9, S10; Spark's ``DataFrame.mapInArrow``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.query.operator_states import StateReport
from streamgroups.state.figures import StateSize
from streamgroups.state.task_plan import TaskPlan
from streamgroups_spark.internals.channel import Channel
from streamgroups_spark.internals.plan import STAGE
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.shipping import Shipped
from streamgroups_spark.state.direct import DirectRecords, kept_rows
from streamgroups_spark.state.handoff import Handoff, attempt_id, give, give_watermarks
from streamgroups_spark.state.stage_name import PassedColumns, StageName
from streamgroups_state.joins.definition import JoinOperator
from streamgroups_state.joins.task_states import JoinTaskStates
from streamgroups_state.locations import operator_files
from streamgroups_state.operator import StatefulOperator
from streamgroups_state.store import Operator, StateStore
from streamgroups_state.task_states import TaskStates


class StateStage(Shipped):
    """Runs an operator over the records of a task.

    Args:
        operator: the operator.
        session: the session of the source.
        application: the id of the Spark application.
        channel: the channel by which tasks report.
        flushes: whether the operator emits what is still open at the end of a bounded run.
        before: the operator whose output it processes; empty for the records of the source.
        direct: its records as columns of the source; ``None`` if Spark computes them.
    """

    def __init__(
        self,
        operator: StatefulOperator | JoinOperator,
        session: str,
        application: str,
        channel: Channel[StateReport],
        *,
        flushes: bool = False,
        before: str = "",
        direct: DirectRecords | None = None,
    ) -> None:
        self._operator, self._channel, self._before, self._direct = operator, channel, before, direct
        self._session, self._application = session, application
        # Spark names the function in the plan of the query, where its source finds it.
        passed = None if direct is None else direct.passed
        self.__name__ = f"{STAGE}{stage_name(operator, flushes=flushes, passed=passed)}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        attempt = attempt_id()
        with closing(Handoff(self._session, self._application, attempt, self._before)) as handoff:
            processed = self._process(batches, handoff)
        if processed is None:
            return
        plan, states = processed
        manifest, output = states.finish(plan.file(attempt))
        work, name = states.figures, self._operator.name
        number, operators = plan.number_of(name), max(len(plan.operators), 1)
        self._channel.send(
            StateReport(it.range, manifest.file, it.due_ms, StateSize.of(it), work, it.time, number, operators)
            for it in manifest.states
        )
        if plan.has_next(name):
            give(self._session, self._application, replace(plan, is_direct=False), name)
            give_watermarks(self._session, self._application, states.released, name)
        for table in output:
            yield from to_output(table, self._operator.output)

    def _process(
        self, batches: Iterable[pa.RecordBatch], handoff: Handoff
    ) -> tuple[TaskPlan, TaskStates | JoinTaskStates] | None:
        """Processes all records. ``None`` if the task has read no ranges."""
        states: TaskStates | JoinTaskStates | None = None
        plan: TaskPlan | None = None
        rows = kept = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            if states is None or plan is None:
                plan = _plan(handoff)
                if plan is None:
                    raise _moved()
                states = self._states(plan)
            rows += batch.num_rows
            if plan.is_direct:
                kept += self._add_direct(states, handoff)
                continue
            states.add_watermarks(handoff.take_watermarks())
            states.add(batch)
        if states is None:
            # A task without records, such as one of a warm-up, or of another source in a union.
            plan = _plan(handoff)
            states = None if plan is None else self._states(plan)
        if states is None or plan is None:
            return None
        if plan.is_direct and rows != (kept := kept + self._add_direct(states, handoff)):
            raise _incomplete(rows, kept)
        # The reader has ended, and its last watermarks can be after all records.
        states.add_watermarks(handoff.take_watermarks())
        return plan, states

    def _add_direct(self, states: TaskStates | JoinTaskStates, handoff: Handoff) -> int:
        """Processes the records that the reader has passed directly. Returns how many of their rows Spark keeps."""
        assert self._direct is not None, "the source has found the columns in the name of this stage"
        count = 0
        for batch in handoff.take_records():
            states.add_watermarks(handoff.take_watermarks())
            states.add(self._direct.of(batch))
            count += kept_rows(batch)
        return count

    def _states(self, plan: TaskPlan) -> TaskStates | JoinTaskStates:
        ours = self._operator
        files = operator_files(plan.location, plan.group_id, ours.name)
        store = StateStore(Operator(plan.group_id, ours.name, ours.form, ours.schema), files, plan.on_missing)
        return JoinTaskStates(ours, plan, store) if isinstance(ours, JoinOperator) else TaskStates(ours, plan, store)


def to_output(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Returns output rows with all columns of the output. Missing columns are null."""
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema).to_batches()  # type: ignore[no-any-return]


def stage_name(
    operator: StatefulOperator | JoinOperator, *, flushes: bool = False, passed: PassedColumns | None = None
) -> StageName:
    """Returns the name of the stage of an operator. For the driver: workers do not need the windows for it."""
    from streamgroups.event_time.shapes import Scope
    from streamgroups_state.dedup_operator import DedupOperator
    from streamgroups_state.window_operator import WindowOperator

    topics = operator.topics if isinstance(operator, JoinOperator) else None
    has_group_time = isinstance(operator, WindowOperator) and operator.scope is Scope.GROUP
    keeps_on_reset = isinstance(operator, DedupOperator) and operator.keeps_on_reset
    is_chained = isinstance(operator, WindowOperator) and operator.is_chained
    return StageName(operator.name, topics, flushes, has_group_time, keeps_on_reset, is_chained, passed)


def _plan(handoff: Handoff) -> TaskPlan | None:
    plans = handoff.take_plans()
    if not plans:
        return None
    return replace(plans[0], ranges=tuple(it for plan in plans for it in plan.ranges))


def _moved() -> InvalidOption:
    return InvalidOption(
        "An operator with state receives records that its task has not read: an operation before it moves records "
        "between tasks.",
        remedy="Apply the operator before repartition, groupBy, join or distinct.",
    )


def _incomplete(rows: int, kept: int) -> StreamGroupsError:
    return StreamGroupsError(
        f"An operator with state has received {rows} rows from Spark, but the reader of its task has passed {kept}.",
        remedy="Restart the query: it reads the batch again. If it fails again, report it with the plan of the query.",
    )
