"""Requests the reports of tasks from the user's process.

Used by ``source.query_states`` and ``sinks.kafka``. A process must not request them while it answers a request:
``internals.rpc`` sends a request to all servers of the session, also to its own, which is busy then.
"""

from __future__ import annotations

from streamgroups.query.operator_states import StateReport
from streamgroups_spark.internals.rpc import request_all
from streamgroups_spark.state.reports import StateReportsRequest


def request_reports(session: str, run_id: str, batch: int) -> list[StateReport]:
    """Returns the reports of the tasks of a batch, latest last."""
    replies = request_all(session, StateReportsRequest(run_id, batch))
    return [report for reply in replies for report in reply.reports]
