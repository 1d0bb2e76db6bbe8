"""Whether all brokers reject the login of a client that has worked before, such as after a change of its password.

Used by the clients of the driver after requests without a response: :mod:`~streamgroups_kafka.admin.cluster`,
:mod:`~streamgroups_kafka.admin.metadata_store`, the members of groups, and the instances. librdkafka repeats a rejected login, and a
request fails with the error of its timeout only. So a new client shows the reason. :mod:`streamgroups.login_outage` decides when it is
permanent. Source: KIP-152, KIP-368; the ``error_cb`` of librdkafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups.errors import BrokerUnreachable, LoginRejected, StreamGroupsError
from streamgroups.login_outage import LoginOutage, rejected
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.logs import client_log

#: How long a second client waits for the reason of a failed connection. librdkafka connects several times in it.
_REASON_S = 2.0
#: The kind of the lines in the log: they are limited apart from those about connections.
_LOGIN = "LOGIN"
#: A broker has responded with these. They are transient too.
_RESPONSES = (
    *(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE),
)
_NOT_REACHED = (KafkaError._TRANSPORT, KafkaError._RESOLVE)


def is_response(error: KafkaError) -> bool:
    """Whether a broker has responded with this transient error, so it has accepted the login.

    >>> is_response(KafkaError(KafkaError.NOT_COORDINATOR)), is_response(KafkaError(KafkaError._TIMED_OUT))
    (True, False)
    """
    return error.code() in _RESPONSES


class RejectedLogin:
    """The login of the clients of one cluster. Safe to call from any thread.

    Args:
        config: the configuration of the clients.
        clock_s: a monotonic clock, in seconds.
    """

    def __init__(self, config: ClientConfig, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock_s = config, clock_s
        servers = config.get("bootstrap.servers")
        self._what, self._log = f"The cluster at {servers} could not be read", client_log(servers)
        self._lock = threading.Lock()
        self._outage: LoginOutage | None = None

    def first_rejection(self) -> LoginRejected | None:
        """Returns why a broker rejects the login of a new client; ``None`` if another one accepts it, or none responds."""
        rejection = self._seen()[0]
        if rejection is not None and (tokens := self._config.tokens) is not None:
            # The next start has another token.
            tokens.rejected()
        return rejection

    def rejection(self) -> LoginRejected | None:
        """Returns :meth:`first_rejection`, if no other broker is away: that one may accept the login."""
        error, are_all = self._seen()
        return error if are_all else None

    def judged(self, error: StreamGroupsError) -> StreamGroupsError:
        """Returns the error of a request without a response.

        Args:
            error: the error of the request.

        Returns:
            The rejection, if the brokers have rejected the login for too long for an outage; otherwise an error that is retried.
        """
        rejection = self.rejection() if self._config.has_login else None
        if rejection is None:
            with self._lock:
                self._outage = None
            if isinstance(error, BrokerUnreachable):
                return error
            return BrokerUnreachable(error.what, remedy=error.remedy, group=error.group, topic=error.topic)
        with self._lock:
            outage = self._outage = rejected(self._outage, int(self._clock_s() * 1000))
        self._log.failed(rejection.what, _LOGIN)
        if outage.is_permanent:
            return rejection
        return BrokerUnreachable(rejection.what, remedy=rejection.remedy, group=error.group, topic=error.topic)

    def _seen(self) -> tuple[LoginRejected | None, bool]:
        """The rejection of a new client, and whether each broker that it has tried has responded."""
        seen: list[KafkaError] = []
        # Only this client has the callback: librdkafka keeps all errors of a client that does not poll.
        settings: dict[str, Any] = {**self._config.for_admin(), "error_cb": seen.append}
        admin = AdminClient(settings)
        try:
            admin.list_topics(timeout=_REASON_S)
        except KafkaException:
            admin.poll(0)
        else:
            # Another broker has accepted the login.
            return None, False
        found = [(error, to_streamgroups_error(error, self._what, redact=self._config.redact)) for error in seen]
        rejection = next((it for _, it in found if isinstance(it, LoginRejected)), None)
        # A rejected certificate has the code of an ended connection too.
        return rejection, not any(
            error.code() in _NOT_REACHED and not isinstance(it, LoginRejected) for error, it in found
        )
