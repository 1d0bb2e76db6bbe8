"""The messages about state files between the processes of a session (``bridge.rpc``).

A source and a sink request the reports of the tasks of a batch from the user's process. Source: SEMANTICS S10.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.query.operator_states import StateReport


@dataclass(frozen=True, slots=True)
class StateReportsRequest:
    """Requests the reports of a batch, after the batch. The reply is :class:`ReportedStates`.

    Args:
        run_id: the id of the run of the query.
        batch: the number of the batch.
    """

    run_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class ReportedStates:
    """The reports of a batch.

    Args:
        reports: the reports of its tasks, latest last.
    """

    reports: tuple[StateReport, ...]
