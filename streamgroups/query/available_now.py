"""Runs a query to the records that exist now, and decides when it ends: the trigger ``availableNow``.

Used by ``streamgroups.query.micro_batches`` on the thread of the query. Spark ends such a query at the first trigger without
new offsets. So during a rebalance the query waits, at most for the join timeout. Source: SEMANTICS S3; Spark's
``SupportsTriggerAvailableNow``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from streamgroups.ports import Cluster, Member
from streamgroups.query.available_offsets import AvailableOffsets
from streamgroups.query.continuity import until_known
from streamgroups.query.join_group import POLL_S, Joining
from streamgroups.query.query_ports import QuerySettings
from streamgroups.retry import comes_true

logger = logging.getLogger(__name__)

_Batch = TypeVar("_Batch")


class AvailableNow:
    """The limit of an ``availableNow`` query, and its waits. It has no effect before :meth:`activate`.

    Args:
        settings: the options of the user.
        cluster: topics and groups of the Kafka cluster.
        joining: determines which partitions the member reads.
        available: the offsets to limit.
        timeout_ms: how long each wait for a rebalance or a reset takes at most.
    """

    def __init__(
        self, settings: QuerySettings, cluster: Cluster, joining: Joining, available: AvailableOffsets, timeout_ms: int
    ) -> None:
        self._settings, self._cluster, self._joining, self._available = settings, cluster, joining, available
        self._timeout_ms = timeout_ms
        #: Whether the trigger is ``availableNow``.
        self.is_active = False

    def activate(self) -> None:
        """Limits all later batches to the records that exist at the first of them."""
        self.is_active = True

    def await_share(self, member: Member) -> bool:
        """Waits until it is known which partitions the member reads, and sets the limit. Returns whether it is known."""
        if not self.is_active:
            return True
        known = self.comes_true(lambda: self._joining.has_share(member))
        if not known:
            logger.warning(
                "The rebalance of group '%s' did not complete in time; the query ends, and the next run reads the rest",
                self._settings.group_id,
            )
        if not self._available.is_limited:
            # A topic can be deleted between the two requests.
            until_known(self._limit)
        return known

    def is_end(self, member: Member, had_share: bool) -> bool:
        """Whether a trigger without new offsets can end the query. Otherwise the member has lost its partitions since."""
        return not (self.is_active and had_share) or self._joining.has_share(member)

    def planned(self, plan: Callable[[], _Batch | None]) -> _Batch | None:
        """Plans a batch. Repeats that while records wait for the partition that a join reads with theirs.

        After a rebalance one of both can arrive before the other. With an assignor other than ``range`` it may never arrive.

        Args:
            plan: plans a batch; ``None`` if records wait.
        """
        batch = plan()
        if batch is not None or not self.is_active:
            return batch

        def is_planned() -> bool:
            nonlocal batch
            batch = plan()
            return batch is not None

        if not self.comes_true(is_planned):
            logger.warning(
                "The query of group '%s' ends before it has read all records: a join reads two partitions in one task, and this member "
                "does not own both. The next run reads the rest, if the group assigns both to the same member "
                "(kafka.group.remote.assignor=range)",
                self._settings.group_id,
            )
        return batch

    def comes_true(self, condition: Callable[[], bool]) -> bool:
        """Waits for a condition, at most for the timeout. Returns whether it has come true."""
        return comes_true(condition, self._timeout_ms / 1000, every_s=POLL_S)

    def _limit(self) -> None:
        self._available.limit_to(self._cluster.end_offsets(self._joining.existing()))
