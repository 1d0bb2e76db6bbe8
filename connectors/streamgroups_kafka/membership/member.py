"""A member of a Kafka consumer group that reads no records.

``streamgroups_spark.source.readers`` creates it, and ``streamgroups.query.micro_batches`` calls it on the driver.
It implements :class:`streamgroups.ports.Member`. A :class:`~streamgroups.groups.membership.Membership` contains the
state and the decisions. The three modules of a member translate between it and librdkafka. Source: KIP-62, KIP-429,
KIP-848; SEMANTICS G2, G11, S1-S3.

Calls between the modules::

    MicroBatches ──▶ KafkaMember, a MemberState ◀── ConsumerOwner ◀──▶ librdkafka
                     member.py      state.py        consumer_thread.py
    └ query's thread ┘└────── one lock ────────┘    └─── the owner thread ───────┘

Only the *owner* thread uses the consumer. The query's thread changes the shared state. It waits for the broker only in
:meth:`KafkaMember.join` and :meth:`KafkaMember.close`.
"""

from __future__ import annotations

import logging
import threading
import time

from streamgroups.errors import GroupRejected, StreamGroupsError
from streamgroups.groups.history import Kind, MemberEvent, no_history
from streamgroups.ports import FirstPositions, Recorder
from streamgroups_kafka.membership.consumer_thread import ConsumerOwner
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState

logger = logging.getLogger(__name__)

#: How often a waiting member logs a warning, and how often it checks whether the group has a partition for it.
_LOG_INTERVAL_S = 10.0
_POLL_EVERY_S = 1.0
_CLOSE_TIMEOUT_S = 30.0


class KafkaMember(MemberState):
    """A :class:`streamgroups.ports.Member` with its thread.

    Args:
        settings: the settings of the member.
        first_positions: returns positions of partitions without a committed offset. It runs on the owner thread, during
            an assignment.
        record: records all events.
    """

    def __init__(
        self,
        settings: MemberSettings,
        first_positions: FirstPositions,
        record: Recorder = no_history,
    ) -> None:
        super().__init__(settings, record)
        owner = ConsumerOwner(settings, first_positions, self, record)
        self._thread = threading.Thread(target=owner.run, name=f"streamgroups-{settings.name}", daemon=True)

    def join(self, timeout_ms: int) -> None:
        """See :meth:`streamgroups.ports.Member.join`."""
        self._record(MemberEvent(Kind.JOINING))
        self._thread.start()
        began_s = time.monotonic()
        next_log_s = _LOG_INTERVAL_S
        left_s = timeout_ms / 1000
        while not self.await_assignment(min(_POLL_EVERY_S, left_s)):
            self._check_login()
            waited_s = time.monotonic() - began_s
            left_s = timeout_ms / 1000 - waited_s
            if left_s <= 0:
                raise GroupRejected(
                    f"Group '{self._settings.group_id}' assigned no partitions to '{self._settings.name}' "
                    f"within {waited_s:.0f} s{self._last_error()}.",
                    remedy="A rebalance waits for every live member. Check their state with "
                    "kafka-consumer-groups.sh --describe --members, and try again.",
                )
            if self._is_standby():
                # An empty assignment is valid too. The member gets partitions when other members leave (G10).
                self.assign({})
            elif waited_s >= next_log_s:
                next_log_s += _LOG_INTERVAL_S
                self._log_waiting()

    def _check_login(self) -> None:
        """Fails if no broker accepts the login. librdkafka repeats it with the same password, and the join would wait for its whole
        timeout. The next run of the query has a new password.
        """
        if self.is_login_rejected:
            self.is_login_rejected = False
            try:
                rejection = self._settings.login_rejection()
            except StreamGroupsError as e:
                if not e.retriable:
                    raise
                # A token endpoint is away. The owner thread checks the login again.
                return
            if rejection is not None:
                raise rejection

    def _is_standby(self) -> bool:
        try:
            return self._settings.is_standby()
        except StreamGroupsError as e:
            logger.debug("%s: the group could not be described: %s", self._settings.name, e)
            return False

    def _log_waiting(self) -> None:
        logger.warning(
            "%s: still waiting for group '%s' to assign partitions%s. A rebalance waits for the batches of "
            "other members, and for a killed member until its session times out",
            self._settings.name,
            self._settings.group_id,
            self._last_error(),
        )

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Member.close`."""
        super().close()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                logger.error(
                    "%s: could not leave group '%s' within %.0f s; the group will remove the member after "
                    "its session timeout",
                    self._settings.name,
                    self._settings.group_id,
                    _CLOSE_TIMEOUT_S,
                )

    def _last_error(self) -> str:
        return f" (last error: {self.last_error})" if self.last_error else ""
