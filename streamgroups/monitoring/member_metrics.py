"""The Prometheus metrics of the members of an application: their batches in flight, states and event time.

``sg.reports.MetricsListener`` exports them beside those of :mod:`streamgroups.monitoring.metrics`. The sources of running
queries report the values (:mod:`streamgroups.monitoring.member_reports`). Source: SEMANTICS S3, S10, W15, W16,
O3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, UnreadableWatermarks, WaitingPartitions
from streamgroups.monitoring.metrics import MS_PER_S, QUERY_GROUP_LABELS
from streamgroups.monitoring.queries import WatchedQuery
from streamgroups.state.figures import StateSize, TaskFigures

_OF_PARTITION = (*QUERY_GROUP_LABELS, "topic", "partition")
_OF_MEMBER = (*QUERY_GROUP_LABELS, "member")
#: The labels of a query that is not known yet.
_UNKNOWN = ("", "", "")
_SIZES: Mapping[str, tuple[str, Callable[[StateSize], float]]] = {
    "rows": ("Rows in the state of the partition.", lambda s: s.rows),
    "bytes": ("Uncompressed bytes of these rows.", lambda s: s.row_bytes),
    "files": ("Files that contain these rows.", lambda s: s.files),
}
_WORK: Mapping[str, tuple[str, Callable[[TaskFigures], float]]] = {
    "load_seconds": ("Duration of the reads of state files in the slowest task of the last batch.", lambda w: w.load_s),
    "write_seconds": (
        "Duration of the write of a state file in the slowest task of the last batch.",
        lambda w: w.write_s,
    ),
    "read_files": ("State files that the last batch read.", lambda w: w.read_files),
    "read_bytes": ("Bytes of the state files that the last batch read.", lambda w: w.read_bytes),
    "written_rows": ("Rows that the last batch added to states.", lambda w: w.written_rows),
    "written_bytes": ("Bytes of the state files that the last batch wrote.", lambda w: w.written_bytes),
    "direct_records": (
        "Records of the last batch that operators received directly from the reader of their task.",
        lambda w: w.direct_records,
    ),
}
_OF_FLIGHTS: Mapping[str, tuple[str, Callable[[BatchFlight], float | None]]] = {
    "batch_in_flight_seconds": (
        "Time since the start of the batch in flight; 0 between two batches.",
        lambda f: (f.batch_ms or 0) / MS_PER_S,
    ),
    "handover_timeout_seconds": (
        "Maximum time that a rebalance waits for a batch before other members get its partitions.",
        lambda f: f.handover_ms / MS_PER_S,
    ),
    "lease_timeout_seconds": (
        "Maximum duration of a batch before the member leaves its group.",
        lambda f: None if f.lease_timeout_ms is None else f.lease_timeout_ms / MS_PER_S,
    ),
}


def flight_metrics(flights: Iterable[BatchFlight], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metrics of the batches in flight, from the members themselves. They include batches that hang.

    Args:
        flights: the batches of all members.
        queries: the known queries. The members of a query are unknown before the end of its first batch, and its labels
            are then empty.
    """
    flights = list(flights)
    known = _queries_of_members(queries)
    for name, (text, value_of) in _OF_FLIGHTS.items():
        gauge = GaugeMetricFamily(f"streamgroups_query_{name}", text, labels=_OF_MEMBER)
        for f in flights:
            value = value_of(f)
            if value is not None:
                gauge.add_metric([f.group_id, *known.get(f.member, _UNKNOWN), f.member], value)
        yield gauge


def state_metrics(states: Iterable[QueryStates], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metrics of the states of all members.

    Args:
        states: the states of all members.
        queries: the known queries. The members of a query are unknown before the end of its first batch, and its labels
            are then empty.
    """
    states, known = list(states), _queries_of_members(queries)
    for name, (text, size_of) in _SIZES.items():
        gauge = GaugeMetricFamily(f"streamgroups_partition_state_{name}", text, labels=_OF_PARTITION)
        for it in states:
            for tp, size in it.figures.sizes.items():
                of_query = (it.group_id, *known.get(it.member, _UNKNOWN))
                gauge.add_metric([*of_query, tp.topic, str(tp.partition)], size_of(size))
        yield gauge
    for name, (text, value_of) in _WORK.items():
        gauge = GaugeMetricFamily(f"streamgroups_query_state_{name}", text, labels=_OF_MEMBER)
        for it in states:
            gauge.add_metric([it.group_id, *known.get(it.member, _UNKNOWN), it.member], value_of(it.figures.work))
        yield gauge


def waiting_metrics(waiting: Iterable[WaitingPartitions], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metrics of partitions that wait by ``maxDrift``.

    Args:
        waiting: those of each member whose source has this option.
        queries: the known queries. The members of a query are unknown before the end of its first batch, and its labels
            are then empty.
    """
    known = _queries_of_members(queries)
    count = GaugeMetricFamily(
        "streamgroups_query_waiting_partitions",
        "Partitions that maxDrift does not read, because they are ahead of the watermark.",
        labels=_OF_MEMBER,
    )
    ahead = GaugeMetricFamily(
        "streamgroups_partition_ahead_seconds",
        "How far a partition that maxDrift does not read is ahead of the watermark.",
        labels=_OF_PARTITION,
    )
    for it in waiting:
        of_query = (it.group_id, *known.get(it.member, _UNKNOWN))
        count.add_metric([*of_query, it.member], len(it.ahead_ms))
        for tp, ahead_ms in it.ahead_ms.items():
            if ahead_ms is not None:
                ahead.add_metric([*of_query, tp.topic, str(tp.partition)], ahead_ms / MS_PER_S)
    return iter((count, ahead))


def unreadable_metrics(unreadable: Iterable[UnreadableWatermarks], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metric of watermarks of producers that tasks could not read.

    Args:
        unreadable: those of each partition and member.
        queries: the known queries. Members of others are left out: their queries have ended.
    """
    known = _queries_of_members(queries)
    counts: Counter[tuple[str, str, str, str, str, str]] = Counter()
    for it in unreadable:
        if it.member in known:
            place = it.topic_partition
            labels = (it.group_id, *known[it.member], place.topic, str(place.partition))
            counts[labels] += it.count
    family = CounterMetricFamily(
        "streamgroups_partition_ignored_watermarks",
        "Records whose producer watermark was ignored, because its format is unknown.",
        labels=_OF_PARTITION,
    )
    for labels, count in counts.items():
        family.add_metric(labels, count)
    yield family


def _queries_of_members(queries: Iterable[WatchedQuery]) -> dict[str, tuple[str, str, str]]:
    """The values of the labels of the query of each known member."""
    return {member: q.labels for q in queries for g in q.groups for member in g.members}
