"""Reports the state files of tasks to the user's process, from where the source requests them.

Spark merges the accumulator of a task before the task counts as finished, and ignores failed attempts. So after a batch
exactly the files of its successful tasks are known. Used by ``register`` and ``state.stage``. Source: SEMANTICS S10;
Spark's ``AccumulatorParam``.
"""

from __future__ import annotations

import threading

from streamgroups.query.operator_states import StateReport
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.messages.states import StateReportsRequest

#: The limit of batches whose reports are kept. It is reached only if a source has ended and no longer takes them.
_MAX_BATCHES = 1_000


class StateReports:
    """The reports of tasks that no source has taken yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], list[StateReport]] = {}

    def keep(self, reports: list[StateReport]) -> None:
        """Stores the reports of a task."""
        with self._lock:
            for report in reports:
                self._kept.setdefault((report.file.run_id, report.file.batch), []).append(report)
            while len(self._kept) > _MAX_BATCHES:
                del self._kept[next(iter(self._kept))]

    def take(self, run_id: str, batch: int) -> list[StateReport]:
        """Returns the reports of a batch, and forgets those of all earlier batches of the run.

        The batch itself stays, because a sink and its source both request it.
        """
        with self._lock:
            for known in [it for it in self._kept if it[0] == run_id and it[1] < batch]:
                del self._kept[known]
            return list(self._kept.get((run_id, batch), ()))


def request_reports(session: str, run_id: str, batch: int, *, of_others: bool = False) -> list[StateReport]:
    """Returns the reports of the tasks of a batch, latest last.

    A process must not call it while it answers a request: a request is sent to all servers of the session, also to its
    own, which is busy then.

    Args:
        session: the session of the source.
        run_id: the id of the run of the query.
        batch: the number of the batch.
        of_others: whether this process has no reports, so that only other processes are requested.
    """
    replies = request_all(session, StateReportsRequest(run_id, batch), of_others=of_others)
    return [report for reply in replies for report in reply.reports]
