"""An operator with state as a function of ``mapInArrow``, in the stage that reads: over a stream, or over bounded data.

Created by ``state.operator_plan`` on the driver, and pickled into Python workers. To Spark the plan is stateless: it has no
shuffle and no state store. A batch read has no group, no state location and no plan of states: each task reads whole
partitions, and the operator runs from their first record to their last. Source: SEMANTICS S9, S10, W17; Spark's
``DataFrame.mapInArrow``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from streamgroups.path_names import path_part
from streamgroups.query.operator_states import StateReport
from streamgroups.state.figures import StateSize
from streamgroups.state.state_files import StateFiles
from streamgroups.state.task_plan import TaskPlan
from streamgroups_operators.bounded import BoundedRecords
from streamgroups_operators.function_operator import FunctionOperator
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.joins.join_states import JoinTaskStates
from streamgroups_operators.local_copies import CopiedFiles
from streamgroups_operators.locations import files_below, is_local
from streamgroups_operators.operator import StatefulOperator, with_schema
from streamgroups_operators.store import Operator, StateStore
from streamgroups_operators.task_states import TaskStates
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.bridge.direct import DirectRecords
from streamgroups_spark.bridge.handoff import Handoff, attempt_id, write_plan, write_watermarks
from streamgroups_spark.bridge.plan import STAGE
from streamgroups_spark.bridge.stage_name import DirectColumns, StageName
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.private_spark import local_directory
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.state.stage_task import FinishedTask, StageTask, States

#: Enough for the operators of one query.
_ID_CHARACTERS = 8


class StateStage(Shipped):
    """Runs an operator over the records of a task.

    Args:
        operator: the operator.
        session: the session of the source.
        application: the id of the Spark application.
        channel: the channel by which tasks report.
        flushes: whether the operator emits what is still open at the end of a bounded run.
        upstream: the operator whose output it processes; empty for the records of the source.
        direct: its records as columns of the source; ``None`` if Spark computes them.
        copies: whether tasks copy the state files of an object store to the local disk.
    """

    def __init__(
        self,
        operator: StatefulOperator | JoinOperator,
        session: str,
        application: str,
        channel: Channel[StateReport],
        *,
        flushes: bool = False,
        upstream: str = "",
        direct: DirectRecords | None = None,
        copies: bool = True,
    ) -> None:
        self._operator, self._channel, self._upstream, self._direct = operator, channel, upstream, direct
        self._session, self._application, self._copies = session, application, copies
        # Spark names the function in the plan of the query, where its source finds it.
        direct_columns = None if direct is None else direct.direct_columns
        name = stage_name(operator, flushes=flushes, direct_columns=direct_columns)
        # With an id: two operators with one name would have one state. The same DataFrame in two branches has one id.
        self.__name__ = f"{STAGE}{replace(name, id=uuid.uuid4().hex[:_ID_CHARACTERS])}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        attempt = attempt_id()
        with closing(Handoff(self._session, self._application, attempt, self._upstream)) as handoff:
            task = StageTask(handoff, self._states, self._direct, attempt)
            task.start()
            for batch in batches:
                task.add(batch)
            finished = task.finish()
        if finished is None:
            return
        self._report(finished)
        for table in finished.output:
            yield from with_schema(table, self._operator.output).to_batches()

    def _report(self, task: FinishedTask) -> None:
        """Reports the states of a task, and passes its plan and watermarks to the next operator."""
        plan, states, name = task.plan, task.states, self._operator.name
        work = replace(states.figures, direct_records=task.direct_records)
        number, operators = plan.number_of(name), max(len(plan.operators), 1)
        self._channel.send(
            StateReport(it.range, task.manifest.file, it.due_ms, StateSize.of(it), work, it.time, number, operators)
            for it in task.manifest.states
        )
        if plan.has_next(name):
            write_plan(self._session, self._application, replace(plan, is_direct=False), name)
            write_watermarks(self._session, self._application, states.released, name)

    def _states(self, plan: TaskPlan) -> States:
        own_operator = self._operator
        files = self._files(plan)
        operator = Operator(plan.group_id, own_operator.name, own_operator.form, own_operator.schema)
        if isinstance(own_operator, FunctionOperator):
            operator = replace(operator, migration=own_operator.migration)
        store = StateStore(operator, files, plan.on_missing)
        return (
            JoinTaskStates(own_operator, plan, store)
            if isinstance(own_operator, JoinOperator)
            else TaskStates(own_operator, plan, store)
        )

    def _files(self, plan: TaskPlan) -> StateFiles:
        files = files_below(plan.location, plan.group_id, self._operator.name)
        local = local_directory() if self._copies and not is_local(plan.location) else None
        if local is None:
            return files
        return CopiedFiles(files, local / "streamgroups-states", plan.run_id, path_part(self._operator.name))


def stage_name(
    operator: StatefulOperator | JoinOperator, *, flushes: bool = False, direct_columns: DirectColumns | None = None
) -> StageName:
    """Returns the name of the stage of an operator. For the driver: workers do not need the windows for it."""
    from streamgroups.event_time.window_shapes import Scope
    from streamgroups.event_time.windows import EventTime
    from streamgroups_operators.dedup.dedup_operator import DedupOperator
    from streamgroups_operators.window_operator import WindowOperator

    topics = operator.topics if isinstance(operator, JoinOperator) else None
    windows = operator if isinstance(operator, WindowOperator) else None
    boundary = None if windows is None else windows.windowing.boundary
    keeps_on_reset = isinstance(operator, DedupOperator) and operator.keeps_on_reset
    return StageName(
        operator.name,
        topics,
        flushes,
        has_group_time=windows is not None and windows.scope is Scope.GROUP,
        keeps_on_reset=keeps_on_reset,
        is_chained=windows is not None and windows.is_chained,
        has_idle_timeout=isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None,
        direct_columns=direct_columns,
        kind=_kind_of(operator),
    )


def _kind_of(operator: StatefulOperator | JoinOperator) -> str:
    from streamgroups_operators.dedup.dedup_operator import DedupOperator
    from streamgroups_operators.window_operator import WindowOperator

    if isinstance(operator, JoinOperator):
        return ""
    if isinstance(operator, WindowOperator):
        return "windows"
    return "dedup" if isinstance(operator, DedupOperator) else "stateful"


class BoundedStage(Shipped):
    """Runs an operator over the records of a task of a batch read.

    Args:
        operator: the operator.
        topic: the topic of all records; ``None`` if several topics are read.
        now_ms: the time of all records by the clock.
    """

    def __init__(self, operator: StatefulOperator, topic: str | None, now_ms: int) -> None:
        self._operator, self._topic, self._now_ms = operator, topic, now_ms
        self.__name__ = f"streamgroups_bounded:{operator.name}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        records = BoundedRecords(self._operator, self._topic, self._now_ms)
        for batch in batches:
            if batch.num_rows:
                for table in records.add(batch):
                    yield from with_schema(table, self._operator.output).to_batches()
        for table in records.finish():
            yield from with_schema(table, self._operator.output).to_batches()
