"""Decides where reading of a partition continues after its assignment to a member whose sink keeps a ledger.

Called by ``streamgroups.ledgers.batch_commit`` when partitions are assigned, at the start of a query and after every
rebalance. The ledger is the source of truth: it advances with the output. The committed offset of the group follows it
for the sake of tools, and may be behind. But a tool may also have reset the group on purpose: then the policy of
``onRestart`` decides. Source: SEMANTICS S5, X4.

Per partition, with the ledger at ``p`` and the committed offset ``c`` of the group, and the last reset that each of them contains:

=========================  ==============  =====================================================================
``c`` is                   ``p`` is        then
=========================  ==============  =====================================================================
anything                   missing         the ledger is opened at ``c``, or at the starting position
missing, or ``p``          anything        read from ``p``
of a reset that the        not ``c``       difference: the policy decides. ``group``: the ledger is set to ``c``;
ledger does not contain,                   ``checkpoint``: the group is reset to ``p``; ``fail``: rejected
a tool's
a member's, of a reset     not ``c``       difference: the ledger was set back. Rejected under each policy
that the ledger does not
contain
of a restored savepoint    not ``c``       the ledger is set to ``c``, under each policy
that it does not contain
of a reset that the        not ``c``       read from ``p``; the group's commit is missing, and is made now
ledger contains, a tool's
a member's, below          above ``c``     read from ``p``; the group's commit is missing, and is made now
a member's, above, of the  below ``c``     difference: read from ``p``, unless the policy is to fail: the ledger
same resets                                was set back (a restored backup), and its output with it
a member's, of fewer       below ``c``     read from ``p``: a live reset has set the ledger back, and its commit
resets than the ledger                     to the group is missing
=========================  ==============  =====================================================================

A member changes the ledger before it commits to the group. So a ledger that lacks the reset of a member's commit was set back: a
backup was restored. The target of the reset is in neither of them, so ``group`` does not choose a position. The checkpoint contains
the positions of the lost output, so ``checkpoint`` does not either. A reset of the group to the position of the ledger does.

``restore --state-only`` replaces the state of an offset, and not the offset: its mark also contains the last reset of the
offset. The table compares this one. :func:`restored_states` compares the other one.

A reset is recognized by its id and number (:mod:`streamgroups.groups.applied_reset`), not by positions: after a reset the group can
be at any offset, also at one where a member has been before.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import PositionsDiffer
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.membership import Origin, Owned, States
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.printable import MAX_LISTED, listed
from streamgroups.shell_quoting import command, topic_options
from streamgroups.state.origins import UNNAMED, Earlier, later


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """A partition with different positions in ledger and group, where the difference is more than a late commit."""

    topic_partition: TopicPartition
    ledger_next_offset: int
    committed_next_offset: int

    def __str__(self) -> str:
        return (
            f"{self.topic_partition}: ledger {self.ledger_next_offset}, "
            f"group {self.committed_next_offset} ({self.committed_next_offset - self.ledger_next_offset:+d})"
        )


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The decision about assigned partitions.

    Args:
        next_offsets: where reading of each partition continues.
        open_at: positions to create in the ledger, if it still has none.
        move: positions of the ledger to change (from, to), because the group was reset.
        follow: committed offsets of the group to set to the positions of the ledger.
        differences: the differences between ledger and group, whatever was decided.
        identities: the topics of ``next_offsets``, as far as they are known.
        states: the states of ``next_offsets`` by the ledger, as far as it contains them.
        resets: the last reset that each position contains after the decision.
        epochs: the ownership epochs that the ledger has accepted.
    """

    next_offsets: Mapping[TopicPartition, int]
    open_at: Mapping[TopicPartition, int]
    move: Mapping[TopicPartition, tuple[int, int]]
    follow: Mapping[TopicPartition, int]
    differences: tuple[LedgerDifference, ...]
    identities: Mapping[TopicPartition, TopicIdentity] = field(default_factory=dict)
    states: States = field(default_factory=dict)
    resets: Mapping[TopicPartition, AppliedReset] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def take_over(
    owned: Mapping[TopicPartition, Owned],
    ledger: Mapping[TopicPartition, int],
    policy: OnRestart,
    identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    resets: Mapping[TopicPartition, AppliedReset] = MappingProxyType({}),
    *,
    group_id: str,
) -> TakeOver:
    """Decides about assigned partitions.

    Args:
        owned: the assigned partitions, with the committed offsets of the group or their starting positions.
        ledger: the positions of the ledger. Partitions without a position are left out.
        policy: which positions apply after the group was reset. A restored savepoint applies under each policy.
        identities: the topics of the ledger's positions, as far as they are known.
        resets: the last reset that each position of the ledger contains.
        group_id: the group, for the text of an error.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every other difference. Under each policy, if the ledger lacks the
            reset of a member's commit.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> decided = take_over({p0: Owned(10), p1: Owned(7)}, {p0: 20}, OnRestart.FAIL, group_id="billing")
    >>> [decided.next_offsets[p] for p in (p0, p1)]
    [20, 7]
    >>> decided.follow[p0], decided.open_at[p1]
    (20, 7)
    """
    differences = tuple(
        LedgerDifference(tp, ledger[tp], owned[tp].next_offset)
        for tp in sorted(owned.keys() & ledger.keys())
        if _differs(owned[tp], ledger[tp], resets.get(tp, NO_RESET))
    )
    of_new_resets = [
        d for d in differences if _is_new(owned[d.topic_partition], resets.get(d.topic_partition, NO_RESET))
    ]
    _reject_set_back([d for d in of_new_resets if owned[d.topic_partition].is_of_member], group_id)
    move = {
        d.topic_partition: (d.ledger_next_offset, d.committed_next_offset)
        for d in of_new_resets
        if policy is OnRestart.GROUP or owned[d.topic_partition].is_restored
    }
    _reject_if(policy, [d for d in differences if d.topic_partition not in move])
    open_at = {tp: o.next_offset for tp, o in owned.items() if tp not in ledger}
    kept = {tp: n for tp, n in ledger.items() if tp in owned and tp not in move}
    moved = {tp: to for tp, (_, to) in move.items()}
    follow = {tp: n for tp, n in {**kept, **open_at}.items() if owned[tp].is_silent or owned[tp].next_offset != n}
    # A reset that the policy declines counts as contained too: otherwise the next owner would decide about it again.
    of_ledger = {tp: resets.get(tp, NO_RESET) for tp in owned}
    now = {tp: of_ledger[tp] if of_ledger[tp].contains(it.reset) else it.reset for tp, it in owned.items()}
    of_group = {tp: owned[tp].identity for tp in (*open_at, *moved)}
    topics = {tp: it for tp, it in identities.items() if tp in kept} | of_group
    known = {tp: it for tp, it in topics.items() if it != UNKNOWN}
    return TakeOver({**kept, **open_at, **moved}, open_at, move, follow, differences, known, resets=now)


def _topic_option(difference: LedgerDifference) -> str:
    tp = difference.topic_partition
    return topic_options([f"{tp.topic}:{tp.partition}"])


def _reject_set_back(differences: Collection[LedgerDifference], group_id: str) -> None:
    """Rejects a ledger that lacks the reset of a member's commit."""
    if differences:
        raise PositionsDiffer(
            f"The ledger of group '{group_id}' lacks an offset reset that members of the group have applied, so it was set back, "
            f"for example by a restored backup: {listed(differences, separator='; ')}.",
            remedy="Reset these partitions of the stopped group to the positions of the ledger, or to other ones: "
            f"{_reset_commands(differences, group_id)}. Then restart once with onRestart=group.",
        )


def _reset_commands(differences: Collection[LedgerDifference], group_id: str) -> str:
    """The commands that reset a group to the positions of its ledger. One for each partition, unless there are many."""
    if len(differences) > MAX_LISTED:
        return (
            f"write a line TOPIC,PARTITION,OFFSET for each of the {len(differences)} partitions to positions.csv, and run: "
            f"streamgroups groups import positions.csv --group {shlex.quote(group_id)} --execute"
        )
    return "; ".join(
        command("groups reset", [group_id], f"{_topic_option(d)} --to-offset {d.ledger_next_offset} --execute")
        for d in differences
    )


def _reject_if(policy: OnRestart, differences: Collection[LedgerDifference]) -> None:
    if policy is OnRestart.FAIL and differences:
        raise PositionsDiffer(
            f"Ledger and group differ: {listed(differences, separator='; ')}.",
            remedy="Restart once with onRestart=group to apply an offset reset of the group to the ledger, "
            "or with onRestart=checkpoint to reset the group to the ledger positions.",
        )


def _differs(owned: Owned, ledger_next_offset: int, ledger_reset: AppliedReset) -> bool:
    if owned.is_silent or owned.next_offset == ledger_next_offset:
        return False
    if _is_new(owned, ledger_reset):
        return True
    # Members commit to the group after the ledger has changed, so their commits may be behind it.
    is_members = owned.origin is not Origin.FOREIGN or owned.kept_reset is not None
    return is_members and _of_offset(owned) == ledger_reset and owned.next_offset > ledger_next_offset


def _is_new(owned: Owned, ledger_reset: AppliedReset) -> bool:
    """Whether a reset that the ledger does not contain has set the offset of the group."""
    return owned.is_unmarked or not ledger_reset.contains(_of_offset(owned))


def _of_offset(owned: Owned) -> AppliedReset:
    """The last reset that has set the offset of the group. A later one can have replaced the state only."""
    return owned.reset if owned.kept_reset is None else owned.kept_reset


def restored_states(
    owned: Mapping[TopicPartition, Owned],
    ledger: Mapping[TopicPartition, int],
    resets: Mapping[TopicPartition, AppliedReset],
) -> States:
    """The states that the ledger takes from the group, for partitions whose position in the ledger does not change.

    A tool has named a state, by a reset that the ledger does not contain: a savepoint was restored. If only the state was
    replaced, the position of the ledger can be after that of the group, because the commit of a killed query is missing. The
    query then reads the records up to the ledger again, without output.

    Args:
        owned: the partitions, with the committed offsets of the group.
        ledger: the positions of the ledger.
        resets: the last reset that each position of the ledger contains.

    Raises:
        PositionsDiffer: if no record in between leads to the position of the ledger.
    """
    found = {
        tp: it.state if it.next_offset == ledger[tp] else later(it.state)
        for tp, it in owned.items()
        if not resets.get(tp, NO_RESET).contains(it.reset)
        and it.state != UNNAMED
        and (it.kept_reset is not None or it.next_offset == ledger[tp])
    }
    wrong = [
        LedgerDifference(tp, ledger[tp], owned[tp].next_offset)
        for tp, state in sorted(found.items())
        if owned[tp].next_offset != ledger[tp] and not (isinstance(state, Earlier) and state.next_offset <= ledger[tp])
    ]
    if wrong:
        raise PositionsDiffer(
            f"The restored state is not one of the position of the ledger: {listed(wrong, separator='; ')}.",
            remedy="Reset these partitions of the group to the positions of the ledger. Then restore, with --state-only, a "
            "savepoint whose offsets are not after them, and that has a state of each of them.",
        )
    return found
