"""What Prometheus is told about groups: the same figures as ``groups describe`` and ``watch`` show.

Used by ``streamgroups metrics``. The groups are looked at in a rhythm of its own, not when somebody asks: verdicts need samples
at even distances, and a scrape is answered at once whatever the cluster does. Source: Prometheus' naming practices (base
units, a suffix for the unit).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.lag_states import LagState
from streamgroups.monitoring import WatchedGroup, WatchedPartition
from streamgroups.partitions import Bounds

_GROUP = ("group",)
_PARTITION = ("group", "topic", "partition")
_MS_PER_S = 1000.0


class GroupCollector(Collector):
    """Keeps what was seen last, and hands it to Prometheus. Looking and scraping may happen in different threads.

    Args:
        look: looks at the groups.
        requests: how many requests were sent so far.
        now_s: tells the time, in seconds since the epoch.
    """

    def __init__(
        self,
        look: Callable[[], Sequence[WatchedGroup]],
        requests: Callable[[], int],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._look, self._requests, self._now_s = look, requests, now_s
        self._lock = threading.Lock()
        self._groups: Sequence[WatchedGroup] = ()
        self._up = False
        self._looks = self._failures = 0
        self._took_s = self._last_s = 0.0

    def refresh(self) -> StreamGroupsError | None:
        """Looks once.

        Returns:
            Why it failed; what was seen before is then not handed out any more.
        """
        started_s = time.monotonic()
        failure, groups = None, self._groups
        try:
            groups = self._look()
        except StreamGroupsError as e:
            failure, groups = e, ()
        with self._lock:
            self._groups, self._up = groups, failure is None
            self._looks += 1
            self._failures += failure is not None
            self._took_s = time.monotonic() - started_s
            if failure is None:
                self._last_s = self._now_s()
        return failure

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        with self._lock:
            groups = self._groups
            own = [
                _single("streamgroups_up", "Whether the last look at the cluster succeeded.", float(self._up)),
                _single("streamgroups_look_duration_seconds", "How long the last look took.", self._took_s),
                _single("streamgroups_last_look_timestamp_seconds", "When the last look succeeded.", self._last_s),
                CounterMetricFamily("streamgroups_looks", "Looks at the cluster.", value=self._looks),
                CounterMetricFamily("streamgroups_look_failures", "Looks that failed.", value=self._failures),
                CounterMetricFamily("streamgroups_requests", "Requests to the cluster.", value=self._requests()),
            ]
        yield from own
        yield from _group_metrics(groups)
        yield from _partition_metrics(groups)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _group_metrics(groups: Iterable[WatchedGroup]) -> Iterator[Metric]:
    def gauge(name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"streamgroups_group_{name}", text, labels=[*_GROUP, *labels])

    members = gauge("members", "Live members.")
    state = gauge("state", "1 for the state the group is in, as Kafka calls it.", ["state"])
    lag = gauge("lag_records", "Unread records, transaction markers and known gaps left out.")
    lag_s = gauge("lag_seconds", "For how long the oldest unread record has been waiting.")
    partitions = gauge("partitions", "Partitions by what their lag is doing.", ["lag_state"])
    for g in groups:
        name = g.snapshot.description.group_id
        members.add_metric([name], len(g.snapshot.description.members))
        state.add_metric([name, g.snapshot.description.state], 1)
        counted = Counter(p.state for p in g.partitions)
        for lag_state in LagState:
            partitions.add_metric([name, lag_state.value], counted[lag_state])
        if g.snapshot.records is not None:
            lag.add_metric([name], g.snapshot.records)
        if g.time_lag_ms is not None:
            lag_s.add_metric([name], g.time_lag_ms / _MS_PER_S)
    return iter((members, state, lag, lag_s, partitions))


def _partition_metrics(groups: Iterable[WatchedGroup]) -> Iterator[Metric]:
    values: dict[str, tuple[str, Callable[[WatchedPartition], float | None]]] = {
        "lag_records": ("Unread records of a partition.", lambda p: p.lag.records),
        "lag_seconds": ("For how long its oldest unread record has been waiting.", _lag_s),
        "committed_offset": ("The next offset the group will read.", lambda p: p.lag.committed_offset),
        "beginning_offset": ("The oldest offset that is still there.", _beginning_offset),
        "end_offset": ("The offset after the last record.", lambda p: p.lag.end_offset),
        "lost_records": ("Offsets that were deleted before the group read them.", lambda p: p.lag.lost_records),
    }
    families = {
        name: GaugeMetricFamily(f"streamgroups_partition_{name}", text, labels=_PARTITION)
        for name, (text, _) in values.items()
    }
    for g in groups:
        for p in g.partitions:
            tp = p.lag.topic_partition
            labels = [g.snapshot.description.group_id, tp.topic, str(tp.partition)]
            for name, (_, value_of) in values.items():
                value = value_of(p)
                # What is not known has no sample: a 0 would be a lie, and so would be the last known value.
                if value is not None:
                    families[name].add_metric(labels, value)
    return iter(families.values())


def _lag_s(p: WatchedPartition) -> float | None:
    return None if p.time_lag_ms is None else p.time_lag_ms / _MS_PER_S


def _beginning_offset(p: WatchedPartition) -> int | None:
    return p.lag.bounds.beginning_offset if isinstance(p.lag.bounds, Bounds) else None
