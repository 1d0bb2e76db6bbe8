"""What Prometheus is told about groups: the same figures as ``groups describe`` and ``watch`` show.

Used by ``streamgroups metrics``, and by ``sg.MetricsListener`` where it is to look at the cluster. The groups are looked at in a rhythm of
its own, not when somebody asks: verdicts need samples at even distances, and a scrape is answered at once whatever the cluster does.
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
    """Keeps what was seen last, and how the looking goes. Looking and asking may happen in different threads.

    Args:
        look: looks at the groups.
        requests: how many requests were sent so far.
        now_s: tells the time, in seconds since the epoch.
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
        """Looks once.

        Returns:
            Why it failed, whatever it was; what was seen before is then not handed out any more.
        """
        started_s = time.monotonic()
        failure, groups = None, self._groups
        try:
            groups = self._poll()
        except StreamGroupsError as e:
            failure, groups = e, ()
        except Exception as e:
            # An exporter of all groups must outlive what is wrong with one of them.
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
        """What the last look has seen; nothing if it failed."""
        with self._lock:
            return self._groups

    def keep_only(self, group_ids: Collection[str]) -> None:
        """Forgets what was seen of all other groups."""
        with self._lock:
            self._groups = [g for g in self._groups if g.snapshot.description.group_id in group_ids]

    def metrics(self) -> Iterator[Metric]:
        """How the looking goes."""
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
    """Hands what a cluster's groups were seen to be to Prometheus.

    Args:
        looks: what was seen.
    """

    def __init__(self, polls: Polls) -> None:
        self._polls = polls

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        groups = [watched_group(group) for group in self._polls.groups]
        yield from self._polls.metrics()
        yield from group_metrics(groups)
        yield from partition_metrics(groups)
        yield from gap_metrics(groups)


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
