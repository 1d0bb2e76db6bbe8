"""Where a partition is read on when it comes to a member whose sink keeps a ledger.

Called by ``streamgroups.ledgers.commit`` when partitions are assigned, at the start of a query and whenever the group moves one. The
ledger is the truth: it moves with the output. The group's committed offset only follows it, for the tools, and may be behind.
But a tool may also have moved the group on purpose, and then the policy of ``onRestart`` decides. Source: SEMANTICS S5, X4.

Per partition, with the ledger at ``p`` and the group's committed offset ``c``:

=====================  =========================  ==================================================================
``c`` is               ``p`` is                   then
=====================  =========================  ==================================================================
anything               not there                  the ledger is opened at ``c``, or where the partition is to start
none, or ``p``         anything                   read from ``p``
a member's, below      above ``c``                read from ``p``; the group's commit is missing, and is made up for
a member's, above      below ``c``                difference: read from ``p`` all the same, unless the policy is to fail:
                                                  the ledger was set back (a restored backup), and its output with it
a tool's, not ``p``    anything                   difference: the policy decides. ``group``: the ledger is moved to ``c``;
                                                  ``checkpoint``: the group is moved to ``p``; ``fail``: refused
=====================  =========================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import PositionsDiffer
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """A partition for which ledger and group name different positions, and neither is just late."""

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
    """What to do with partitions that came in.

    Args:
        next_offsets: where each is read on.
        open_at: positions to give to a ledger that has none, if it still has none.
        move: positions of the ledger to change, from and to, because a tool's word counts.
        follow: committed offsets of the group to set to the ledger's.
        differences: where ledger and group differed, whatever was decided.
        identities: the topics that ``next_offsets`` are of, as far as they are known.
    """

    next_offsets: Mapping[TopicPartition, int]
    open_at: Mapping[TopicPartition, int]
    move: Mapping[TopicPartition, tuple[int, int]]
    follow: Mapping[TopicPartition, int]
    differences: tuple[LedgerDifference, ...]
    identities: Mapping[TopicPartition, TopicIdentity] = field(default_factory=dict)


def take_over(
    owned: Mapping[TopicPartition, Owned],
    ledger: Mapping[TopicPartition, int],
    policy: OnRestart,
    identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
) -> TakeOver:
    """Decides about partitions that came in.

    Args:
        owned: what came in, with the group's committed offsets, or where to start.
        ledger: where the ledger stands; a partition that it does not know is left out.
        policy: who is right if a tool has moved the group.
        identities: the topics that the ledger's positions are of, as far as they are known.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every difference.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> decided = take_over({p0: Owned(10), p1: Owned(7)}, {p0: 20}, OnRestart.FAIL)
    >>> [decided.next_offsets[p] for p in (p0, p1)]
    [20, 7]
    >>> decided.follow[p0], decided.open_at[p1]
    (20, 7)
    """
    differences = tuple(
        LedgerDifference(tp, ledger[tp], owned[tp].next_offset)
        for tp in sorted(owned.keys() & ledger.keys())
        if _differs(owned[tp], ledger[tp])
    )
    if policy is OnRestart.FAIL and differences:
        raise PositionsDiffer(
            "Ledger and group differ: " + "; ".join(map(str, differences)) + ".",
            remedy="Restart once with onRestart=group to apply an offset reset of the group to the ledger, "
            "or with onRestart=checkpoint to reset the group to the ledger positions.",
        )
    move = {
        d.topic_partition: (d.ledger_next_offset, d.committed_next_offset)
        for d in differences
        if policy is OnRestart.GROUP and owned[d.topic_partition].origin is Origin.FOREIGN
    }
    open_at = {tp: o.next_offset for tp, o in owned.items() if tp not in ledger}
    kept = {tp: n for tp, n in ledger.items() if tp in owned and tp not in move}
    moved = {tp: to for tp, (_, to) in move.items()}
    follow = {tp: n for tp, n in {**kept, **open_at}.items() if owned[tp].is_silent or owned[tp].next_offset != n}
    of_group = {tp: owned[tp].identity for tp in (*open_at, *moved)}
    of_ledger = {tp: it for tp, it in identities.items() if tp in kept}
    known = {tp: it for tp, it in (of_ledger | of_group).items() if it != UNKNOWN}
    return TakeOver({**kept, **open_at, **moved}, open_at, move, follow, differences, known)


def _differs(owned: Owned, ledger_next_offset: int) -> bool:
    if owned.is_silent or owned.next_offset == ledger_next_offset:
        return False
    # Members commit to the group after the ledger has moved, so theirs may lag behind it.
    return owned.origin is Origin.FOREIGN or owned.next_offset > ledger_next_offset
