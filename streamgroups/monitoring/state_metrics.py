"""The Prometheus metrics of states that follow their partitions.

``sg.reports.MetricsListener`` exports them beside those of :mod:`streamgroups.monitoring.metrics`. The sources of running
queries report the values (:mod:`streamgroups.monitoring.query_states`). Source: SEMANTICS S10, O3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from streamgroups.monitoring.metrics import GROUP_LABELS, QUERY_LABELS, queries_of_members
from streamgroups.monitoring.queries import WatchedQuery
from streamgroups.monitoring.query_states import QueryStates
from streamgroups.state.figures import StateSize, TaskFigures

_OF_PARTITIONS: Mapping[str, tuple[str, Callable[[StateSize], float]]] = {
    "rows": ("Rows in the state of the partition.", lambda s: s.rows),
    "bytes": ("Uncompressed bytes of these rows.", lambda s: s.row_bytes),
    "files": ("Files that contain these rows.", lambda s: s.files),
}
_OF_BATCHES: Mapping[str, tuple[str, Callable[[TaskFigures], float]]] = {
    "load_seconds": ("Duration of the reads of state files in the slowest task of the last batch.", lambda w: w.load_s),
    "write_seconds": (
        "Duration of the write of a state file in the slowest task of the last batch.",
        lambda w: w.write_s,
    ),
    "read_files": ("State files that the last batch read.", lambda w: w.read_files),
    "read_bytes": ("Bytes of the state files that the last batch read.", lambda w: w.read_bytes),
    "written_rows": ("Rows that the last batch added to states.", lambda w: w.written_rows),
    "written_bytes": ("Bytes of the state files that the last batch wrote.", lambda w: w.written_bytes),
}


def state_metrics(states: Iterable[QueryStates], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metrics of the states of all members.

    Args:
        states: the states of all members.
        queries: the known queries. The members of a query are unknown before the end of its first batch, and its labels
            are then empty.
    """
    states, known = list(states), queries_of_members(queries)
    labels = [*GROUP_LABELS, *QUERY_LABELS]
    for name, (text, size_of) in _OF_PARTITIONS.items():
        gauge = GaugeMetricFamily(f"streamgroups_partition_state_{name}", text, labels=[*labels, "topic", "partition"])
        for it in states:
            for tp, size in it.figures.sizes.items():
                of_query = (it.group_id, *known.get(it.member, ("", "")))
                gauge.add_metric([*of_query, tp.topic, str(tp.partition)], size_of(size))
        yield gauge
    for name, (text, value_of) in _OF_BATCHES.items():
        gauge = GaugeMetricFamily(f"streamgroups_query_state_{name}", text, labels=[*labels, "member"])
        for it in states:
            gauge.add_metric([it.group_id, *known.get(it.member, ("", "")), it.member], value_of(it.figures.work))
        yield gauge
