"""Polls the groups of running queries for facts that Spark does not have, in its own thread.

Used by ``ops.metrics_listener`` if the user configures a cluster. It polls once per interval while queries read for
groups, with the requests of ``streamgroups metrics``. Each request has a timeout, and their number does not depend on
the number of queries. If the cluster does not respond, the metrics from Spark remain, and the next poll connects again.
Source: :mod:`streamgroups.monitoring`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import Metric

from streamgroups.errors import BrokerUnreachable, StreamGroupsError
from streamgroups.monitoring.monitor import Monitor, WatchedGroup
from streamgroups_admin.reports.exporter import Polls
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig

logger = logging.getLogger(__name__)

_STOP_WITHIN_S = 30

#: The limit of bytes that one poll may read to count records exactly. It is the default of ``streamgroups metrics``.
_COUNT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to a cluster. One thread uses it, except for ``requests``.

    Args:
        poll: polls groups. Raises the errors of :class:`streamgroups.ports.Cluster`.
        requests: returns the number of requests sent.
        close: closes the connection.
    """

    poll: Callable[[Collection[str]], Sequence[WatchedGroup]]
    requests: Callable[[], int]
    close: Callable[[], None]


def connector(config: ClientConfig, *, window_ms: int) -> Callable[[], Connection]:
    """Returns a function that connects to a Kafka cluster. Its connections share their offset samples.

    It raises the errors of :class:`~streamgroups_kafka.admin.connection.AdminSession`.

    Args:
        config: the configuration of the Kafka clients. Each connection reads its certificates again.
        window_ms: the period of offset samples from which lag states are determined.
    """
    monitor: Monitor | None = None

    def connect() -> Connection:
        nonlocal monitor
        session = AdminSession(config)
        groups, topics = KafkaGroupAdmin(session), KafkaTopicAdmin(session, config)
        if monitor is None:
            monitor = Monitor(groups, topics, now_ms, window_ms=window_ms, count_bytes=_COUNT_BYTES, gaps=True)
        else:
            monitor.use(groups, topics)
        return Connection(monitor.poll, lambda: sum(session.requests.values()), session.close)

    return connect


class ClusterPoller:
    """Keeps the result of the last poll of the groups of queries.

    Args:
        connect: connects to the cluster. Called in the thread, for the first poll and after each failed one.
        interval_s: the seconds between two polls.
    """

    def __init__(self, connect: Callable[[], Connection], *, interval_s: float) -> None:
        self._connect, self._interval_s = connect, interval_s
        self._group_ids: frozenset[str] = frozenset()
        self._connection: Connection | None = None
        #: Returns the number of requests of all connections.
        self._requests: Callable[[], int] = lambda: 0
        self._polls = Polls(self._poll, lambda: self._requests())
        self._poll_requested = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="streamgroups-poller", daemon=True)

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stops polling and waits for a poll in progress. Permitted before ``start``."""
        self._stopping = True
        self._poll_requested.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_WITHIN_S)

    def poll_soon(self, group_ids: frozenset[str]) -> None:
        """Sets the groups to poll. New groups are polled at once. Does not block."""
        before, self._group_ids = self._group_ids, group_ids
        if before - group_ids:
            # If the group returns, its old samples must not be shown.
            self._polls.keep_only(group_ids)
        if group_ids - before:
            self._poll_requested.set()

    @property
    def groups(self) -> dict[str, WatchedGroup]:
        """The groups by name, as of the last poll. Empty if the last poll failed."""
        return {group.snapshot.description.group_id: group for group in self._polls.groups}

    def metrics(self) -> Iterator[Metric]:
        """Yields the metrics of the polls themselves."""
        return self._polls.metrics()

    def _run(self) -> None:
        failed = False
        while not self._stopping:
            self._poll_requested.wait(self._interval_s)
            self._poll_requested.clear()
            if self._stopping or not self._group_ids:
                continue
            failure = self._polls.refresh()
            if failure is not None and not failed:
                logger.warning("The cluster cannot be polled; metrics that need it are missing: %s", failure)
            elif failure is None and failed:
                logger.warning("The cluster can be polled again")
            failed = failure is not None
        self._disconnect()

    def _poll(self) -> Sequence[WatchedGroup]:
        try:
            return self._connected().poll(self._group_ids)
        except Exception as e:
            # The certificates and addresses of a connection are those of its start, which can be the reason.
            self._disconnect()
            if isinstance(e, StreamGroupsError):
                raise
            # The thread must survive any exception of a client. The text of such an exception can contain settings.
            raise BrokerUnreachable(f"Polling the groups failed with {type(e).__name__}.") from None

    def _connected(self) -> Connection:
        if self._connection is None:
            earlier, connection = self._requests(), self._connect()
            self._requests = lambda: earlier + connection.requests()
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()
