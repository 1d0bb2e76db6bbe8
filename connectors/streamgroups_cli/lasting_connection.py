"""The connection of a command that runs until it is stopped: after a failure, its next use connects again.

``streamgroups metrics`` and ``streamgroups groups watch`` use it. A connection keeps the certificates, the password and
the addresses of its start. Each of them can be the reason of a failure, and a new connection reads them again.
Source: SEMANTICS O3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

from streamgroups.errors import BrokerUnreachable, LoginRejected, StreamGroupsError
from streamgroups.monitoring.monitor import Monitor, WatchedGroup
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect

T = TypeVar("T")


class LastingConnection:
    """Connects for the first use, and again after a use that could not reach the cluster.

    One thread uses it, except for :attr:`requests`.

    Args:
        connect: the options of the command. Each connection reads their files again.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._stack = ExitStack()
        #: The connected cluster, and the number of requests of earlier connections. Replaced as one, for other threads.
        self._state: tuple[Cluster | None, int] = None, 0

    def use(self, action: Callable[[Cluster], T]) -> T:
        """Runs an action with the connected cluster.

        Args:
            action: the action. Its exceptions are raised.

        Returns:
            The result of the action.
        """
        try:
            cluster, earlier = self._state
            if cluster is None:
                cluster = self._stack.enter_context(self._connect())
                self._state = cluster, earlier
            return action(cluster)
        except Exception as e:
            if not isinstance(e, StreamGroupsError) or isinstance(e, (BrokerUnreachable, LoginRejected)):
                self.__exit__(*sys.exc_info())
            elif self._state[0] is not None:
                # The connection works, so it stays.
                from streamgroups_kafka.client.properties_file import as_in_a_file

                raise as_in_a_file(e) from None
            raise

    @property
    def requests(self) -> int:
        """The number of requests that all connections have sent."""
        cluster, earlier = self._state
        return earlier + (sum(cluster.requests.values()) if cluster is not None else 0)

    def __enter__(self) -> LastingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = None, self.requests
        # The options add the names of a file's settings to the error, and raise it.
        self._stack.__exit__(kind, error, traceback)


class LastingMonitor:
    """A monitor whose samples outlive its connection.

    Args:
        connection: the connection.
        create: creates the monitor of a cluster.
    """

    def __init__(self, connection: LastingConnection, create: Callable[[Cluster], Monitor]) -> None:
        self._connection, self._create = connection, create
        self._monitor: Monitor | None = None

    def poll(self, group_ids: Collection[str] | None) -> list[WatchedGroup]:
        """See :meth:`streamgroups.monitoring.monitor.Monitor.poll`."""
        return self._connection.use(lambda cluster: self._of(cluster).poll(group_ids))

    def _of(self, cluster: Cluster) -> Monitor:
        if self._monitor is None:
            self._monitor = self._create(cluster)
        else:
            self._monitor.use(cluster.groups, cluster.topics)
        return self._monitor
