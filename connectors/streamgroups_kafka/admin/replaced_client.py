"""An admin client of librdkafka that is replaced when its requests fail.

Used by :mod:`streamgroups_kafka.admin.cluster` and :mod:`streamgroups_kafka.instances.entry_reader`. librdkafka keeps the leader of
a partition and the coordinator of a group for minutes, also if they do not respond any more; a new client requests them again.

A caller keeps the client until its response has arrived: the last reference ends the client, and a response that is pending then
never arrives. Source: ``rd_kafka_destroy``, which discards the results of requests that wait for the background thread.
"""

from __future__ import annotations

import threading

from confluent_kafka.admin import AdminClient

from streamgroups_kafka.client.config import ClientConfig


class ReplacedClient:
    """The current client. Safe to call from any thread.

    Args:
        config: the configuration of the clients.

    Raises:
        InvalidOption: if librdkafka rejects the configuration.

    >>> clients = ReplacedClient(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}))
    >>> failed = clients.current
    >>> clients.replace(failed)
    >>> second = clients.current
    >>> clients.replace(failed)
    >>> second is clients.current, second is failed
    (True, False)
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config, self._lock = config, threading.Lock()
        self._current = self._new()

    @property
    def current(self) -> AdminClient:
        """The client for the next request."""
        return self._current

    def replace(self, failed: AdminClient) -> None:
        """Creates another client, unless another thread has replaced this one already."""
        with self._lock:
            if self._current is failed:
                self._current = self._new()

    def _new(self) -> AdminClient:
        return AdminClient(dict(self._config.for_admin()))
