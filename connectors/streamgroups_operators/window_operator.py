"""Windows as an operator with state: tumbling, hopping and session windows, by event time or processing time.

Created by ``streamgroups_spark.windows.by_offset`` and run by ``task_states``. ``windows.panes``, ``windows.lifetimes`` and
``windows.sessions`` contain the runs, and ``windows.window_time`` decides about time. Source: SEMANTICS W4-W9, W19, S10.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.windows import Session
from streamgroups_operators.operator import BatchTime, PartReader, Run, State
from streamgroups_operators.windows.lifetimes import LifetimeRun
from streamgroups_operators.windows.panes import PaneRun
from streamgroups_operators.windows.sessions import SessionRun
from streamgroups_operators.windows.window_definition import WindowDefinition


@dataclass(frozen=True, slots=True)
class WindowOperator(WindowDefinition):
    """See :class:`streamgroups_operators.operator.StatefulOperator`. The arguments are those of the definition.

    >>> import pyarrow as pa
    >>> from streamgroups.event_time.aggregates import parse_aggregate
    >>> from streamgroups.event_time.windows import Windowing, tumbling
    >>> counts = (parse_aggregate("flights", "count(*)"),)
    >>> schema = pa.schema([("late", pa.int64()), ("p0", pa.int64())])
    >>> operator = WindowOperator("windows", Windowing(tumbling(10)), 0, 0, counts, schema, pa.schema([]))
    >>> run = operator.begin(State(), PartReader(schema), BatchTime(0))
    >>> run.add(pa.table({"time": [3, 8, 12]}))
    >>> state, output = run.finish()
    >>> output[0].select(["start", "end", "r0", "pane"]).to_pylist()
    [{'start': 0, 'end': 10, 'r0': 2, 'pane': 'on time'}]
    >>> sorted(state.parts), state.values
    (['10'], {'newest_ms': 12})
    """

    def begin(self, state: State, read: PartReader, time: BatchTime) -> Run:
        """See :meth:`StatefulOperator.begin`."""
        shape = self.windowing.shape
        if isinstance(shape, Session):
            return SessionRun(self, shape, state, read, time)
        of_points = self.event_shape is EventShape.POINT
        return (PaneRun if of_points else LifetimeRun)(self, shape, state, read, time)
