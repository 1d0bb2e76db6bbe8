"""The rejections of a login while a client reads records. librdkafka repeats it without an error of the consumer.

Used by :mod:`streamgroups_kafka.read.range_reader` and :mod:`streamgroups_kafka.admin.stored_records`.
:mod:`streamgroups.login_outage` decides when a rejection is permanent: one broker of several can reject a login. Source: the
``error_cb`` of librdkafka.
"""

from __future__ import annotations

import time

from streamgroups.errors import LoginRejected, StreamGroupsError
from streamgroups.login_outage import LoginOutage, rejected


class LoginRejections:
    """The rejections since the last record. Not shared between threads."""

    def __init__(self) -> None:
        self._rejection: LoginRejected | None = None
        self._outage: LoginOutage | None = None

    def seen(self, error: StreamGroupsError) -> None:
        """Records an error of the client. Only a rejected login counts."""
        if isinstance(error, LoginRejected):
            self._rejection, self._outage = error, rejected(self._outage, int(time.monotonic() * 1000))

    def progressed(self) -> None:
        """Records that a record has arrived: a broker accepts the login."""
        self._outage = None

    def check(self) -> None:
        """Raises the last rejection if no record has arrived for the time of an outage."""
        if self._rejection is not None and self._outage is not None and self._outage.is_permanent:
            raise self._rejection
