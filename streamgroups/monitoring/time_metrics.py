"""The Prometheus metrics of the event time of queries.

``sg.reports.MetricsListener`` exports them beside those of :mod:`streamgroups.monitoring.metrics`. Source: SEMANTICS W15, W16,
O3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamgroups.monitoring.metrics import GROUP_LABELS, MS_PER_S, QUERY_LABELS, queries_of_members
from streamgroups.monitoring.queries import WatchedQuery
from streamgroups.monitoring.query_time import UnreadableWatermarks, WaitingPartitions

_OF_PARTITION = (*GROUP_LABELS, *QUERY_LABELS, "topic", "partition")


def waiting_metrics(waiting: Iterable[WaitingPartitions], queries: Iterable[WatchedQuery]) -> Iterator[Metric]:
    """Returns the metrics of partitions that wait by ``maxDrift``.

    Args:
        waiting: those of each member whose source has this option.
        queries: the known queries. The members of a query are unknown before the end of its first batch, and its labels
            are then empty.
    """
    known = queries_of_members(queries)
    count = GaugeMetricFamily(
        "streamgroups_query_waiting_partitions",
        "Partitions that maxDrift does not read, because they are ahead of the watermark.",
        labels=[*GROUP_LABELS, *QUERY_LABELS, "member"],
    )
    ahead = GaugeMetricFamily(
        "streamgroups_partition_ahead_seconds",
        "How far a partition that maxDrift does not read is ahead of the watermark.",
        labels=_OF_PARTITION,
    )
    for it in waiting:
        of_query = (it.group_id, *known.get(it.member, ("", "")))
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
    known = queries_of_members(queries)
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
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
