"""The states of a query with an operator of this library.

The source of a running query reports them, and ``sg.reports.MetricsListener`` exports them
(:mod:`streamgroups.monitoring.metrics`). It is separate from the metrics, because sources run without the extra
``metrics``. Source: SEMANTICS S10, O3.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.state.figures import BatchFigures


@dataclass(frozen=True, slots=True)
class QueryStates:
    """The states of one member.

    Args:
        group_id: its group.
        member: its ``client.id``.
        figures: the figures of its last batch.
    """

    group_id: str
    member: str
    figures: BatchFigures
