"""Exports groups to Prometheus: the same values as ``groups describe``, ``groups watch`` and ``processors list``.

``streamgroups metrics`` uses it, and ``sg.reports.MetricsListener`` if it polls the cluster. The groups are polled at a fixed
interval, not at each scrape. Lag states require samples at equal intervals, and a scrape returns at once in any state
of the cluster. Source: SEMANTICS O3.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.offset_audit import GroupAudit
from streamgroups.instances.entries import group_of
from streamgroups.instances.overview import ReplicaView
from streamgroups.monitoring.metrics import audit_metrics, gap_metrics, group_metrics, partition_metrics, watched_group
from streamgroups.monitoring.monitor import WatchedGroup
from streamgroups.monitoring.processor_metrics import processor_metrics

logger = logging.getLogger(__name__)


class Polls:
    """Keeps the result of the last poll, and metrics of the polls. Polls and scrapes can run in different threads.

    Args:
        poll: polls the groups.
        requests: returns the number of requests sent so far.
        now_s: returns the time, in seconds since the epoch.
        replicas: returns the replicas of the processors of an instance.
    """

    def __init__(
        self,
        poll: Callable[[], Sequence[WatchedGroup]],
        requests: Callable[[], int],
        now_s: Callable[[], float] = time.time,
        replicas: Callable[[], Sequence[ReplicaView]] = tuple,
    ) -> None:
        self._poll, self._requests, self._now_s = poll, requests, now_s
        self._poll_replicas = replicas
        self._lock = threading.Lock()
        self._groups: Sequence[WatchedGroup] = ()
        self._replicas: Sequence[ReplicaView] = ()
        self._up = False
        self._polls = self._failures = 0
        self._took_s = self._last_s = 0.0

    def refresh(self) -> StreamGroupsError | None:
        """Polls the groups once.

        Returns:
            The error of a failed poll, of any kind. The result of the poll before is then no longer exported.
        """
        started_s = time.monotonic()
        failure: StreamGroupsError | None = None
        groups: Sequence[WatchedGroup] = ()
        replicas: Sequence[ReplicaView] = ()
        try:
            groups, replicas = self._poll(), self._poll_replicas()
        except StreamGroupsError as e:
            failure = e
        except Exception as e:
            # An exporter of all groups must continue after an error of one of them.
            logger.warning("Cannot poll the groups", exc_info=e)
            failure = StreamGroupsError(f"Cannot poll the groups: {type(e).__name__}: {e}.")
        with self._lock:
            self._groups, self._replicas, self._up = groups, replicas, failure is None
            self._polls += 1
            self._failures += failure is not None
            self._took_s = time.monotonic() - started_s
            if failure is None:
                self._last_s = self._now_s()
        return failure

    @property
    def groups(self) -> Sequence[WatchedGroup]:
        """The result of the last poll; empty if it failed."""
        with self._lock:
            return self._groups

    @property
    def replicas(self) -> Sequence[ReplicaView]:
        """The replicas of processors, of the last poll; empty if it failed."""
        with self._lock:
            return self._replicas

    def keep_only(self, group_ids: Collection[str]) -> None:
        """Removes all other groups from the result."""
        with self._lock:
            self._groups = [g for g in self._groups if g.snapshot.description.group_id in group_ids]

    def metrics(self) -> Iterator[Metric]:
        """Returns the metrics of the polls."""
        with self._lock:
            own = [
                _single("streamgroups_up", "1 if the last poll of the cluster succeeded, else 0.", float(self._up)),
                _single("streamgroups_poll_duration_seconds", "Duration of the last poll.", self._took_s),
                _single(
                    "streamgroups_last_successful_poll_timestamp_seconds",
                    "Time of the last successful poll.",
                    self._last_s,
                ),
                CounterMetricFamily("streamgroups_polls", "Polls of the cluster.", value=self._polls),
                CounterMetricFamily("streamgroups_poll_failures", "Failed polls.", value=self._failures),
                CounterMetricFamily("streamgroups_requests", "Requests to the cluster.", value=self._requests()),
            ]
        yield from own


class GroupCollector(Collector):
    """Exports the polled groups of a cluster, and the processors of an instance, to Prometheus.

    Args:
        polls: the polls.
        instance: the name of the instance; ``None`` without one.
    """

    def __init__(self, polls: Polls, instance: str | None = None) -> None:
        self._polls, self._instance = polls, instance

    def collect(self) -> Iterator[Metric]:
        """Returns all metrics as they are now."""
        replicas, instance = self._polls.replicas, self._instance
        processors = processor_groups(instance, replicas)
        groups = []
        for group in self._polls.groups:
            group_id = group.snapshot.description.group_id
            groups.append(watched_group(group, group_id if group_id in processors else ""))
        yield from self._polls.metrics()
        if instance is not None:
            yield from processor_metrics(instance, replicas)
        yield from group_metrics(groups)
        yield from partition_metrics(groups)
        yield from gap_metrics(groups)


class AuditCollector(Collector):
    """Audits groups, and exports the last result to Prometheus. Audits and scrapes can run in different threads.

    Args:
        audit: audits the groups.
        now_ms: returns the time, in milliseconds since the epoch.
        processors: returns the groups of processors.
    """

    def __init__(
        self,
        audit: Callable[[], Sequence[GroupAudit]],
        now_ms: Callable[[], int],
        processors: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._audit, self._now_ms, self._processors = audit, now_ms, processors
        self._lock = threading.Lock()
        self._last: tuple[Sequence[GroupAudit], int | None] = (), None

    def refresh(self) -> StreamGroupsError | None:
        """Audits the groups once. A failed audit leaves the last result, whose time is exported."""
        try:
            found = self._audit()
        except StreamGroupsError as e:
            return e
        except Exception as e:
            # The polls of the groups must continue after an error of an audit.
            logger.warning("Cannot audit the groups", exc_info=e)
            return StreamGroupsError(f"Cannot audit the groups: {type(e).__name__}: {e}.")
        with self._lock:
            self._last = found, self._now_ms()
        return None

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics of the last audit."""
        with self._lock:
            audits, time_ms = self._last
        yield from audit_metrics(audits, time_ms, self._processors())


def processor_groups(instance: str | None, replicas: Sequence[ReplicaView]) -> set[str]:
    """Returns the groups of the processors of an instance; empty without one."""
    return {group_of(instance, it.replica.processor) for it in replicas} if instance is not None else set()


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
