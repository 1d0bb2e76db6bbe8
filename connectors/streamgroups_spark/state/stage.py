"""An operator with state as a function of ``mapInArrow``, in the stage that reads.

Created by ``state.placement`` on the driver, and pickled into Python workers. To Spark the plan is stateless: it has no
shuffle and no state store. Source: SEMANTICS S9, S10; Spark's ``DataFrame.mapInArrow``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups.query.operator_states import StateReport
from streamgroups.state.figures import StateSize
from streamgroups.state.task_plan import TaskPlan
from streamgroups_spark.internals.channel import Channel
from streamgroups_spark.internals.plan import STAGE
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.shipping import Shipped
from streamgroups_spark.state.handoff import attempt_id, take
from streamgroups_spark.state.stage_name import StageName
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
    """

    def __init__(
        self, operator: StatefulOperator | JoinOperator, session: str, application: str, channel: Channel[StateReport]
    ) -> None:
        self._operator, self._channel = operator, channel
        self._session, self._application = session, application
        # Spark names the function in the plan of the query, where its source finds it.
        topics = operator.topics if isinstance(operator, JoinOperator) else None
        self.__name__ = f"{STAGE}{StageName(operator.name, topics)}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        attempt = attempt_id()
        states: TaskStates | JoinTaskStates | None = None
        plan: TaskPlan | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if states is None:
                plan = self._plan(attempt)
                if plan is None:
                    raise _moved()
                states = self._states(plan)
            states.add(batch)
        if states is None:
            # A task without records, such as one of a warm-up, or of another source in a union.
            plan = self._plan(attempt)
            states = None if plan is None else self._states(plan)
        if states is None or plan is None:
            return
        manifest, output = states.finish(plan.file(attempt))
        work = states.figures
        self._channel.send(
            StateReport(it.range, manifest.file, it.due_ms, StateSize.of(it), work, it.time) for it in manifest.states
        )
        for table in output:
            yield from self._rows(table).to_batches()

    def _plan(self, attempt: int) -> TaskPlan | None:
        plans = take(self._session, self._application, attempt)
        if not plans:
            return None
        return replace(plans[0], ranges=tuple(it for plan in plans for it in plan.ranges))

    def _states(self, plan: TaskPlan) -> TaskStates | JoinTaskStates:
        ours = self._operator
        files = operator_files(plan.location, plan.group_id, ours.name)
        store = StateStore(Operator(plan.group_id, ours.name, ours.form, ours.schema), files, plan.on_missing)
        return JoinTaskStates(ours, plan, store) if isinstance(ours, JoinOperator) else TaskStates(ours, plan, store)

    def _rows(self, table: pa.Table) -> pa.Table:
        columns = [
            table[field.name].cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in self._operator.output
        ]
        return pa.table(columns, schema=self._operator.output)


def _moved() -> InvalidOption:
    return InvalidOption(
        "An operator with state receives records that its task has not read: an operation before it moves records "
        "between tasks.",
        remedy="Apply the operator before repartition, groupBy, join or distinct.",
    )
