"""Exports groups to Prometheus: the same values as ``groups describe`` and ``groups watch``.

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
from streamgroups.monitoring.metrics import gap_metrics, group_metrics, partition_metrics, watched_group
from streamgroups.monitoring.monitor import WatchedGroup

logger = logging.getLogger(__name__)


class Polls:
    """Keeps the result of the last poll, and metrics of the polls. Polls and scrapes can run in different threads.

    Args:
        poll: polls the groups.
        requests: returns the number of requests sent so far.
        now_s: returns the time, in seconds since the epoch.
    """

    def __init__(
        self,
        poll: Callable[[], Sequence[WatchedGroup]],
        requests: Callable[[], int],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._poll, self._requests, self._now_s = poll, requests, now_s
        self._lock = threading.Lock()
        self._groups: Sequence[WatchedGroup] = ()
        self._up = False
        self._polls = self._failures = 0
        self._took_s = self._last_s = 0.0

    def refresh(self) -> StreamGroupsError | None:
        """Polls the groups once.

        Returns:
            The error of a failed poll, of any kind. The result of the poll before is then no longer exported.
        """
        started_s = time.monotonic()
        failure, groups = None, self._groups
        try:
            groups = self._poll()
        except StreamGroupsError as e:
            failure, groups = e, ()
        except Exception as e:
            # An exporter of all groups must continue after an error of one of them.
            logger.warning("Cannot poll the groups", exc_info=e)
            failure, groups = StreamGroupsError(f"Cannot poll the groups: {type(e).__name__}: {e}."), ()
        with self._lock:
            self._groups, self._up = groups, failure is None
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
    """Exports the polled groups of a cluster to Prometheus.

    Args:
        polls: the polls.
    """

    def __init__(self, polls: Polls) -> None:
        self._polls = polls

    def collect(self) -> Iterator[Metric]:
        """Returns all metrics as they are now."""
        groups = [watched_group(group) for group in self._polls.groups]
        yield from self._polls.metrics()
        yield from group_metrics(groups)
        yield from partition_metrics(groups)
        yield from gap_metrics(groups)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
