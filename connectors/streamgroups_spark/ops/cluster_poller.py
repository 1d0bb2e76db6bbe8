"""Looks at the groups of running queries for what Spark does not know of them, in a thread of its own.

Used by ``metrics_listener``, when the user has said where the cluster is. One look at an interval, as long as there are groups to look
at, with the requests of ``streamgroups metrics``: each is bounded in time, and how many there are does not depend on the number of queries.
A cluster that does not answer leaves what Spark tells.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import Metric

from streamgroups.errors import BrokerUnreachable, StreamGroupsError
from streamgroups.monitoring.monitor import Monitor, WatchedGroup
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.session import AdminSession
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_prometheus.exporter import Polls

logger = logging.getLogger(__name__)

_STOP_WITHIN_S = 30

#: What one look may read to count records exactly; as ``streamgroups metrics`` by default.
_COUNT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster that is connected. Used by one thread, but for ``requests``.

    Args:
        look: looks at groups; raises as :class:`streamgroups.ports.Log` does.
        requests: how many requests were sent so far.
        close: ends it.
    """

    poll: Callable[[Collection[str]], Sequence[WatchedGroup]]
    requests: Callable[[], int]
    close: Callable[[], None]


def connect(config: ClientConfig, *, window_ms: int) -> Connection:
    """Connects to a real cluster.

    Args:
        config: how to reach it.
        window_ms: how far back verdicts look.

    Raises:
        StreamGroupsError: if it does not answer in time, or refuses.
    """
    session = AdminSession(config)
    groups, topics = KafkaGroupAdmin(session), KafkaTopicAdmin(session, config)
    monitor = Monitor(groups, topics, _now_ms, window_ms=window_ms, count_bytes=_COUNT_BYTES, gaps=True)
    return Connection(monitor.poll, lambda: sum(session.requests.values()), session.close)


class ClusterPoller:
    """What the last look at the groups of queries has found.

    Args:
        connect: connects to the cluster; called in the thread, and again until it succeeds.
        interval_s: how often to look.
    """

    def __init__(self, connect: Callable[[], Connection], *, interval_s: float) -> None:
        self._connect, self._interval_s = connect, interval_s
        self._group_ids: frozenset[str] = frozenset()
        self._connection: Connection | None = None
        self._polls = Polls(self._poll, self._requests)
        self._asked = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="streamgroups-looks", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; waits for a look that is under way. Also if it never began."""
        self._stopping = True
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_WITHIN_S)

    def ask_about(self, group_ids: frozenset[str]) -> None:
        """Says which groups to look at from now on. New ones are looked at at once. Does not wait."""
        before, self._group_ids = self._group_ids, group_ids
        if before - group_ids:
            # Should it come back, what was seen of it long ago must not be shown.
            self._polls.keep_only(group_ids)
        if group_ids - before:
            self._asked.set()

    @property
    def groups(self) -> dict[str, WatchedGroup]:
        """The groups as they were last seen, by name; none if the last look failed."""
        return {group.snapshot.description.group_id: group for group in self._polls.groups}

    def metrics(self) -> Iterator[Metric]:
        """How the looking goes."""
        return self._polls.metrics()

    def _run(self) -> None:
        failed = False
        while not self._stopping:
            self._asked.wait(self._interval_s)
            self._asked.clear()
            if self._stopping or not self._group_ids:
                continue
            failure = self._polls.refresh()
            if failure is not None and not failed:
                logger.warning("The cluster cannot be polled; metrics that need it are missing: %s", failure)
            elif failure is None and failed:
                logger.warning("The cluster can be polled again")
            failed = failure is not None
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()

    def _poll(self) -> Sequence[WatchedGroup]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.poll(self._group_ids)
        except StreamGroupsError:
            raise
        except Exception as e:
            # The thread must outlive whatever a client does; the text of its errors may hold settings.
            raise BrokerUnreachable(f"Polling the groups failed with {type(e).__name__}.") from None

    def _requests(self) -> int:
        connection = self._connection
        return 0 if connection is None else connection.requests()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
