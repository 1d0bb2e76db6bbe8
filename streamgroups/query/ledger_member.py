"""A member of a group whose sink keeps a ledger: it reads from the positions of the ledger.

Created by ``streamgroups_spark.source.running_query``. After an assignment the positions of the ledger apply, and the
committed offsets of the group follow them. An offset reset of the group also changes the ledger. Source: SEMANTICS
X2-X4, S5, S6; the rules are in ``streamgroups.ledgers.recovery``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.groups.membership import InFlight, Membership, Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.commit import take_over_partitions
from streamgroups.ledgers.staging import StagingSink
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Member


class TakingOver:
    """Determines from a ledger where reading of assigned partitions continues.

    Args:
        sink: the sink that keeps the ledger.
        group_id: the group of the ledger.
        policy: which positions apply after a tool has reset the group.
    """

    def __init__(self, sink: StagingSink[Any, Any, Any, Any], group_id: str, policy: OnRestart) -> None:
        self._sink, self._group_id, self._policy = sink, group_id, policy

    def __call__(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
        """Runs on the thread of the member, during an assignment.

        Args:
            owned: the assigned partitions, with the committed offsets of the group or their starting positions.

        Raises:
            PositionsDiffer: if ledger and group differ and the policy is to fail.
            StreamGroupsError: if the sink does not answer.
        """
        if not owned:
            return {}
        with self._sink.open(self._group_id) as ledger:
            decided = take_over_partitions(ledger, owned, self._policy, group_id=self._group_id)
        fresh = decided.open_at.keys() | decided.move.keys()
        return {
            # Up to the position of the ledger the output is written. For other partitions the origin stays that of the
            # group.
            tp: Owned(n, owned[tp].origin if tp in fresh else Origin.WRITTEN, decided.identities.get(tp, UNKNOWN))
            for tp, n in decided.next_offsets.items()
        }


class LedgerMember:
    """A :class:`streamgroups.ports.Member` that keeps a ledger in step with the group.

    Args:
        member: the member of the group.
        sink: the sink that keeps the ledger.
        group_id: the group of the ledger.
    """

    def __init__(self, member: Member, sink: StagingSink[Any, Any, Any, Any], group_id: str) -> None:
        self._member, self._sink, self._group_id = member, sink, group_id

    def join(self, timeout_ms: int) -> None:
        """See :meth:`streamgroups.ports.Member.join`."""
        self._member.join(timeout_ms)

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        return self._member.membership

    def finish(self, number: int) -> None:
        """See :meth:`streamgroups.ports.Member.finish`."""
        self._member.finish(number)

    def move(
        self,
        next_offsets: Mapping[TopicPartition, int],
        *,
        note: str,
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """See :meth:`streamgroups.ports.Member.move`. The ledger changes first: if that fails, no position changes.

        Raises:
            StreamGroupsError: if the sink rejects the change or does not answer.
        """
        with self._sink.open(self._group_id) as ledger, ledger.transaction() as transaction:
            transaction.positions(next_offsets.keys())
            transaction.advance(next_offsets, identities)
        self._member.move(next_offsets, note=note, identities=identities)

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> None:
        """See :meth:`streamgroups.ports.Member.identify`. The ledger receives the ids with the next batch."""
        self._member.identify(identities)

    def rewind(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """See :meth:`streamgroups.ports.Member.rewind`."""
        self._member.rewind(next_offsets)

    def plan(self, number: int, ranges: Mapping[TopicPartition, tuple[int, int]]) -> InFlight:
        """See :meth:`streamgroups.ports.Member.plan`."""
        return self._member.plan(number, ranges)

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Member.close`."""
        self._member.close()
