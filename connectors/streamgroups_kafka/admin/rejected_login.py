"""Whether all brokers reject the login of a client that has worked before, such as after a change of its password.

Used by :mod:`streamgroups_kafka.admin.cluster` after requests without a response. librdkafka repeats a rejected login, and a request
fails with the error of its timeout only. So a new client shows the reason. A rejection can be a short outage too: the brokers may wait
for the service that verifies logins. Source: KIP-152, KIP-368 (a broker can require a new login of each connection); SEMANTICS G2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamgroups.errors import BrokerUnreachable, NotAuthorized, StreamGroupsError
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.logs import client_log

#: How long a second client waits for the reason of a failed connection. librdkafka connects several times in it.
_REASON_S = 2.0
#: How long all brokers can reject the login of a running query before the query fails.
_OUTAGE_OF_LOGIN_S = 15.0
#: The kind of the lines in the log: they are limited apart from those about connections.
_LOGIN = "LOGIN"


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
        self._since_s: float | None = None

    def rejection(self) -> NotAuthorized | None:
        """Returns why all brokers reject the login of a new client; ``None`` if one accepts it, or none responds."""
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
            return None
        errors = (to_streamgroups_error(error, self._what, redact=self._config.redact) for error in seen)
        return next((error for error in errors if isinstance(error, NotAuthorized)), None)

    def judged(self, outage: BrokerUnreachable) -> StreamGroupsError:
        """Returns the error of a request without a response.

        Args:
            outage: the error of the request.

        Returns:
            The rejection, if the brokers have rejected the login for too long for an outage; otherwise an error that is retried.
        """
        rejection = self.rejection() if self._config.has_login else None
        if rejection is None:
            self._since_s = None
            return outage
        if self._since_s is None:
            self._since_s = self._clock_s()
        self._log.failed(rejection.what, _LOGIN)
        if self._clock_s() - self._since_s >= _OUTAGE_OF_LOGIN_S:
            return rejection
        return outage.with_text(rejection.what, rejection.remedy)

    def succeeded(self) -> None:
        """Records that a broker has responded to a request."""
        self._since_s = None
