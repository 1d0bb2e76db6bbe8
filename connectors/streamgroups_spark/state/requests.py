"""Requests the reports of tasks from the user's process.

Used by ``source.query_states`` and ``sinks.batch_info``. A process must not request them while it answers a request:
``bridge.rpc`` sends a request to all servers of the session, also to its own, which is busy then.
"""

from __future__ import annotations

from streamgroups.query.operator_states import StateReport
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.bridge.state_reports import StateReportsRequest


def request_reports(session: str, run_id: str, batch: int, *, of_others: bool = False) -> list[StateReport]:
    """Returns the reports of the tasks of a batch, latest last.

    Args:
        session: the session of the source.
        run_id: the id of the run of the query.
        batch: the number of the batch.
        of_others: whether this process has no reports, so that only other processes are requested.
    """
    replies = request_all(session, StateReportsRequest(run_id, batch), of_others=of_others)
    return [report for reply in replies for report in reply.reports]
