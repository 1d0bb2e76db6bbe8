"""The positions of a sink's ledger, for the member that reads from them.

Created by ``streamgroups_spark.source.running_query``, called by the member. After an assignment the positions of the
ledger apply, and the committed offsets of the group follow them. An offset reset of the group also changes the ledger.
Source: SEMANTICS X2-X4, S5, S6; the rules are in ``streamgroups.ledgers.recovery``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.groups.membership import Origin, Owned, States
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.commit import take_over_partitions
from streamgroups.ledgers.staging import StagingSink
from streamgroups.ledgers.states import fingerprints
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import UNNAMED


class LedgerPositions:
    """Keeps the ledger of one group in step with the positions of its member.

    Args:
        sink: the sink that keeps the ledger.
        group_id: the group of the ledger.
        policy: which positions apply after a tool has reset the group.
        has_states: whether an operator of the query stores states by offset, so that the ledger contains them too.
    """

    def __init__(
        self,
        sink: StagingSink[Any, Any, Any, Any],
        group_id: str,
        policy: OnRestart,
        *,
        has_states: bool = False,
    ) -> None:
        self._sink, self._group_id, self._policy, self._has_states = sink, group_id, policy, has_states

    def take_over(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
        """Returns where reading of assigned partitions continues. Runs on the thread of the member.

        Args:
            owned: the assigned partitions, with the committed offsets of the group or their starting positions.

        Raises:
            PositionsDiffer: if ledger and group differ and the policy is to fail.
            StreamGroupsError: if the sink does not answer.
        """
        if not owned:
            return {}
        with self._sink.open(self._group_id) as ledger:
            decided = take_over_partitions(
                ledger, owned, self._policy, group_id=self._group_id, has_states=self._has_states
            )
        fresh = decided.open_at.keys() | decided.move.keys()
        return {
            # Up to the position of the ledger the output is written. For other partitions the origin stays that of the
            # group.
            tp: Owned(
                n,
                owned[tp].origin if tp in fresh else Origin.WRITTEN,
                decided.identities.get(tp, UNKNOWN),
                decided.states.get(tp, owned[tp].state if owned[tp].next_offset == n else UNNAMED),
            )
            for tp, n in decided.next_offsets.items()
        }

    def move(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity],
        states: States,
    ) -> None:
        """Sets positions, before the member moves there.

        Raises:
            StreamGroupsError: if the sink rejects the change or does not answer.
        """
        with self._sink.open(self._group_id) as ledger, ledger.transaction() as transaction:
            marks = fingerprints(states) if self._has_states else {}
            transaction.positions([*next_offsets, *marks])
            transaction.advance({**next_offsets, **marks}, identities)
