"""A member of a group whose sink keeps a ledger: where the ledger stands is where it reads.

Put together by ``running_query``. When partitions come in, their positions are the ledger's, and the group's committed offsets follow; when
the group is moved, the ledger moves with it. Source: SEMANTICS X2-X4, S5, S6; the rules are in
``streamgroups.ledgers.recovery``.
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
    """Asks a ledger where partitions are read on.

    Args:
        sink: which keeps it.
        group_id: whose.
        policy: who is right if a tool has moved the group.
    """

    def __init__(self, sink: StagingSink[Any, Any, Any, Any], group_id: str, policy: OnRestart) -> None:
        self._sink, self._group_id, self._policy = sink, group_id, policy

    def __call__(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
        """Runs on the member's thread, inside an assignment.

        Args:
            owned: what came in, with the group's committed offsets, or where to start.

        Raises:
            PositionsDiffer: if ledger and group differ and that must not be.
            StreamGroupsError: if the sink does not answer.
        """
        if not owned:
            return {}
        with self._sink.open(self._group_id) as ledger:
            decided = take_over_partitions(ledger, owned, self._policy, group_id=self._group_id)
        fresh = decided.open_at.keys() | decided.move.keys()
        return {
            # What the ledger says was written there; the rest is as the group said.
            tp: Owned(n, owned[tp].origin if tp in fresh else Origin.WRITTEN, decided.identities.get(tp, UNKNOWN))
            for tp, n in decided.next_offsets.items()
        }


class LedgerMember:
    """See the module, and :class:`streamgroups.ports.Member`.

    Args:
        member: the group's.
        sink: which keeps the ledger.
        group_id: whose.
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
        """See :meth:`streamgroups.ports.Member.move`. The ledger moves first: if it cannot, nothing moves.

        Raises:
            StreamGroupsError: if the sink refuses, or does not answer.
        """
        with self._sink.open(self._group_id) as ledger, ledger.transaction() as transaction:
            transaction.positions(next_offsets.keys())
            transaction.advance(next_offsets, identities)
        self._member.move(next_offsets, note=note, identities=identities)

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> None:
        """See :meth:`streamgroups.ports.Member.identify`. The ledger gets them with the next batch."""
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
