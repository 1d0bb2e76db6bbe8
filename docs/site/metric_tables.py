"""The page of the reference about the metrics of the exporter and the listener, from their definitions.

``reference`` calls it. The functions that export the metrics return them here for a group whose values are all set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from markup import heading, table
from prometheus_client.core import Metric

from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.instances.entries import Progress, Replica
from streamgroups.instances.overview import ReplicaView
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.member_metrics import flight_metrics, state_metrics, unreadable_metrics, waiting_metrics
from streamgroups.monitoring.metrics import (
    GROUP_LABELS,
    QUERY_GROUP_LABELS,
    GroupFigures,
    PartitionFigures,
    audit_metrics,
    gap_metrics,
    group_metrics,
    output_metrics,
    partition_metrics,
    query_metrics,
)
from streamgroups.monitoring.processor_metrics import processor_metrics
from streamgroups.partitions import TopicPartition
from streamgroups_admin.reports.exporter import Polls

_INTRODUCTION = """\
All metrics are gauges, except those that end with ``_total``, which are counters. A value that is unknown has no sample.
The label ``processor`` is ``<instance>.<name>`` of a declared processor. Other series do not have it.

"""
_EXPORTER = """\
``streamgroups metrics`` exports them for the groups of a cluster (`groups-cli.rst <../groups-cli.rst#prometheus-exporter>`_).
Metrics of processors need its option ``--instance``.

"""
_LISTENER = """\
``sg.reports.MetricsListener`` exports them for the queries of an application (`metrics.rst <../metrics.rst>`_). Metrics of polls, of
gaps and of whole groups need its argument ``bootstrap_servers``. ``streamgroups_query_event_errors_total`` counts the events
of Spark that could not be parsed, and has no labels.

"""
_PARTITION = TopicPartition("flights", 0)


def _families(kind: str) -> Iterator[Metric]:
    labels = GROUP_LABELS if kind == "exporter" else QUERY_GROUP_LABELS
    # The exporter has no query, so it exports no offset that a query has processed.
    processed = None if kind == "exporter" else 0
    partition = PartitionFigures(_PARTITION, next(iter(LagState)), 0, 0, 0, processed, 0, 0, 0, True, 0)
    gaps = {_PARTITION: Gaps().plus(Gap(0, 1, Cause.EXPIRED, 0))}
    groups = [GroupFigures(labels, 1, "Stable", (partition,), gaps)]
    if kind == "exporter":
        progress = Progress(0, 0, 0, 0, 0)
        yield from processor_metrics("board", [ReplicaView(Replica("late", 0), "running", progress=progress)])
    if kind == "listener":
        yield from chain(query_metrics([], {}), output_metrics({}, {}, []), flight_metrics([], []))
        yield from chain(state_metrics([], []), waiting_metrics([], []), unreadable_metrics([], []))
    yield from chain(group_metrics(groups, labels), partition_metrics(groups, labels), gap_metrics(groups, labels))
    if kind == "exporter":
        yield from audit_metrics([], None)
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


def page() -> str:
    """The text of the page."""
    text = heading("Metrics", "=") + _INTRODUCTION
    text += heading("Metrics of the exporter", "-") + _EXPORTER + _table("exporter")
    return text + heading("Metrics of the listener", "-") + _LISTENER + _table("listener")


def _table(kind: str) -> str:
    found = sorted(rows(kind))
    return table(
        ["Metric", "Labels", "Meaning"],
        [40, 25, 35],
        ((f"``{name}``", labels or "none", meaning) for name, labels, meaning in found),
    )
