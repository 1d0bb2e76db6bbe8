"""The positions of a sink's ledger, for the member that reads from them.

Created by ``streamgroups_spark.source.running_query``, called by the member. After an assignment the positions of the
ledger apply, and the committed offsets of the group follow them. An offset reset of the group also changes the ledger.
Source: SEMANTICS F1-F3, X2-X4, S5, S6; the rules are in ``streamgroups.ledgers.recovery``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.checkpoints.restart_after_expiry import lost_offsets
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import UNKNOWN
from streamgroups.ledgers.batch_commit import take_over_partitions
from streamgroups.ledgers.fences import fence_partitions, fences, is_current, stored_resets
from streamgroups.ledgers.ledger_states import fingerprints, state_partition
from streamgroups.ledgers.staging import StagingSink
from streamgroups.partitions import TopicPartition
from streamgroups.retry import retrying
from streamgroups.state.origins import UNNAMED

logger = logging.getLogger(__name__)

#: How long a change is retried after a conflict, or after an unknown result.
_RETRY_TIMEOUT_S = 60.0


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

    def take_over(
        self, owned: Mapping[TopicPartition, Owned], is_owner: Callable[[Collection[TopicPartition]], bool]
    ) -> dict[TopicPartition, Owned]:
        """Returns where reading of assigned partitions continues. Runs on the thread of the member.

        Args:
            owned: the assigned partitions, with the committed offsets of the group or their starting positions.
            is_owner: returns whether the broker describes this member as the owner of these partitions now.

        Raises:
            PositionsDiffer: if ledger and group differ and the policy is to fail, the ledger lacks a reset of a member, or a
                restored state does not fit the ledger.
            FencedMember: if a partition has another owner in the meantime.
            StreamGroupsError: if the sink does not answer.
        """
        if not owned:
            return {}
        with self._sink.open(self._group_id) as ledger:
            decided = take_over_partitions(
                ledger, owned, self._policy, group_id=self._group_id, is_owner=is_owner, has_states=self._has_states
            )
        kept = {tp: n for tp, n in decided.next_offsets.items() if owned[tp].is_silent and tp not in decided.open_at}
        if kept:
            logger.warning("%s", lost_offsets(kept, (), self._group_id))
        fresh = decided.open_at.keys() | decided.move.keys()
        return {
            tp: replace(
                owned[tp],
                next_offset=n,
                # Up to the position of the ledger the output is written. For other partitions the origin stays that of
                # the group.
                origin=owned[tp].origin if tp in fresh else Origin.WRITTEN,
                identity=decided.identities.get(tp, UNKNOWN),
                state=decided.states.get(tp, owned[tp].state if owned[tp].next_offset == n else UNNAMED),
                epoch=decided.epochs[tp],
                reset=decided.resets[tp],
                leader_epoch=owned[tp].leader_epoch if owned[tp].next_offset == n else None,
                kept_reset=None,
                is_restored=owned[tp].is_restored and owned[tp].next_offset == n,
                read_from=owned[tp].next_offset if _is_late(owned[tp], n, decided.resets[tp]) else None,
            )
            for tp, n in decided.next_offsets.items()
        }

    def next_reset(self, partitions: Collection[TopicPartition], id_: str) -> dict[TopicPartition, AppliedReset]:
        """Returns how a reset by a client without marks is recorded in the group. Runs on the thread of the member.

        Args:
            partitions: the partitions that it has reset.
            id_: the id of the reset.

        Raises:
            StreamGroupsError: if the sink does not answer.
        """
        with self._sink.open(self._group_id) as ledger:
            resets = stored_resets(partitions, ledger.positions(fence_partitions(partitions)))
        return {tp: reset.then(id_) for tp, reset in resets.items()}

    def move(self, positions: Mapping[TopicPartition, Owned]) -> frozenset[TopicPartition]:
        """Sets positions, before the member moves there. Returns the partitions whose ownership epoch is current.

        Args:
            positions: the partitions, at their new positions.

        Raises:
            StreamGroupsError: if the sink rejects the change or does not answer.
        """
        return retrying(_RETRY_TIMEOUT_S, every_s=0.05, slowest_s=2)(self._move, positions)

    def _move(self, positions: Mapping[TopicPartition, Owned]) -> frozenset[TopicPartition]:
        with self._sink.open(self._group_id) as ledger, ledger.transaction() as transaction:
            states = map(state_partition, positions) if self._has_states else ()
            found = transaction.positions([*positions, *states, *fence_partitions(positions)])
            moved = {tp: it for tp, it in positions.items() if is_current(tp, it.epoch, found)}
            marks = fingerprints({tp: it.state for tp, it in moved.items()}) if self._has_states else {}
            transaction.advance(
                {**{tp: it.next_offset for tp, it in moved.items()}, **marks, **fences(moved)},
                {tp: it.identity for tp, it in moved.items()},
            )
        return frozenset(moved)


def _is_late(owned: Owned, next_offset: int, reset: AppliedReset) -> bool:
    """Whether the ledger contains the output of records whose commit is missing in the group."""
    return owned.is_of_member and owned.reset == reset and owned.next_offset < next_offset
