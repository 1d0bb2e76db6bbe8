"""Monitors the batch in flight of a member: logs warnings and makes the member leave its group when the lease expires.

:class:`~streamgroups_kafka.membership.consumer_thread.ConsumerOwner` calls it in each turn, and while a rebalance waits
for the batch. :mod:`streamgroups.groups.batch_lease` contains the decisions.
:class:`~streamgroups_kafka.membership.member_state.MemberState` releases the partitions. Source: SEMANTICS S8.
"""

from __future__ import annotations

import logging

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.groups.batch_lease import LeaseLimits, Leave, LookedUp, LookUp, Tick, Warn
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState

logger = logging.getLogger(__name__)


class BatchWatch:
    """The monitor of one member. Only the owner thread uses it.

    Args:
        settings: the settings of the member.
        state: the state that the member shares with the thread of the query.
    """

    def __init__(self, settings: MemberSettings, state: MemberState) -> None:
        self._settings, self._state = settings, state

    def judge(self) -> None:
        """Performs the actions that are due for the batch in flight."""
        lease = self._settings.lease
        if lease is None:
            return
        for effect in self._state.judge_batch(Tick()):
            if isinstance(effect, Warn):
                self._warn(effect, lease)
            elif isinstance(effect, LookUp):
                self._decide(effect.number, lease)

    def _decide(self, number: int, lease: LeaseLimits) -> None:
        try:
            has_others = not lease.is_exclusive and self._settings.has_others()
        except StreamGroupsError as e:
            # While no broker responds, no other member can take the partitions either.
            self._state.last_error = str(e)
            return
        # Read the commit log only if the result depends on it: it can be on remote storage.
        is_done = (has_others or lease.is_exclusive) and self._settings.is_done(number)
        for effect in self._state.judge_batch(LookedUp(number, is_done, has_others)):
            if isinstance(effect, Leave):
                self._log_reason(effect, lease)

    def _warn(self, effect: Warn, lease: LeaseLimits) -> None:
        lease_ms = lease.lease_timeout_ms
        until = (
            "without leaseTimeout, the query keeps its other partitions until the batch ends"
            if lease_ms is None
            else f"after {lease_ms / 1000:.0f} s (leaseTimeout) the query loses all partitions"
        )
        logger.warning(
            "%s: batch %d of group '%s' has been in flight for %.0f s. A rebalance waits %.0f s for a "
            "batch. Then other members own its partitions and read them again; %s. Reduce "
            "maxOffsetsPerTrigger, or raise kafka.max.poll.interval.ms.",
            self._settings.name,
            effect.number,
            self._settings.group_id,
            effect.batch_ms / 1000,
            lease.handover_ms / 1000,
            until,
        )

    def _log_reason(self, effect: Leave, lease: LeaseLimits) -> None:
        assert lease.lease_timeout_ms is not None, "without a lease no member leaves"
        what = (
            f"Batch {effect.number} of group '{self._settings.group_id}' has been in flight for "
            f"{effect.batch_ms / 1000:.0f} s, longer than leaseTimeout ({lease.lease_timeout_ms / 1000:.0f} "
            f"s): '{self._settings.name}' leaves the group."
        )
        remedy = "If batches may take this long, raise 'leaseTimeout'; otherwise reduce maxOffsetsPerTrigger."
        if lease.is_exclusive:
            # The state includes the batch, and another run may read the batch again. So the query must not continue.
            self._state.fail_unless_closing(FencedMember(what, remedy=f"Restart the query. {remedy}"))
            return
        logger.warning(
            "%s: %s Other members read its offsets again. When the batch ends, the broker rejects its "
            "commit and the query joins again. %s",
            self._settings.name,
            what,
            remedy,
        )
