"""The directive ``metrics``: the reference of the metrics of the exporter or the listener, from their definitions.

Sphinx loads this extension (``docs/conf.py``). ``.. metrics:: exporter`` lists the metrics of ``streamgroups metrics``, and
``.. metrics:: listener`` those of ``sg.MetricsListener``. The functions that export the metrics return them here for a group
whose values are all set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from docutils import nodes
from prometheus_client.core import Metric
from reference_table import table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.metrics import (
    GROUP_LABELS,
    QUERY_LABELS,
    GroupFigures,
    PartitionFigures,
    flight_metrics,
    gap_metrics,
    group_metrics,
    letter_metrics,
    partition_metrics,
    query_metrics,
)
from streamgroups.monitoring.state_metrics import state_metrics
from streamgroups.monitoring.time_metrics import unreadable_metrics, waiting_metrics
from streamgroups.partitions import TopicPartition
from streamgroups_prometheus.exporter import Polls

_PARTITION = TopicPartition("flights", 0)


def _families(kind: str) -> Iterator[Metric]:
    labels = GROUP_LABELS if kind == "exporter" else (*GROUP_LABELS, *QUERY_LABELS)
    # The exporter has no query, so it exports no offset that a query has processed.
    processed = None if kind == "exporter" else 0
    partition = PartitionFigures(_PARTITION, next(iter(LagState)), 0, 0, 0, processed, 0, 0, 0, True, 0)
    gaps = {_PARTITION: Gaps().plus(Gap(0, 1, Cause.EXPIRED, 0))}
    groups = [GroupFigures(labels, 1, "Stable", (partition,), gaps)]
    if kind == "listener":
        yield from chain(query_metrics([], {}), [letter_metrics({}, [])], flight_metrics([], []))
        yield from chain(state_metrics([], []), waiting_metrics([], []), unreadable_metrics([], []))
    yield from chain(group_metrics(groups, labels), partition_metrics(groups, labels), gap_metrics(groups, labels))
    yield from Polls(lambda: (), lambda: 0).metrics()


def rows(kind: str) -> Iterator[tuple[str, str, str]]:
    """The name, labels and meaning of each metric.

    Args:
        kind: ``exporter`` or ``listener``.

    >>> next(row for row in rows("exporter") if row[0] == "streamgroups_polls_total")
    ('streamgroups_polls_total', '', 'Polls of the cluster.')
    """
    for family in _families(kind):
        labels: Any = getattr(family, "_labelnames", ())
        name = family.name + ("_total" if family.type == "counter" else "")
        yield name, ", ".join(f"``{label}``" for label in labels), family.documentation


class Metrics(SphinxDirective):
    """Lists the metrics of the exporter or the listener."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        found = sorted(rows(self.arguments[0]))
        described = ((name, meaning, f"Labels: {labels or 'none'}.") for name, labels, meaning in found)
        return table(self, "Metric", (50, 50), described)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("metrics", Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
