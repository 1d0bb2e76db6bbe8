"""Decides whether a query may join a group. The check comes before the join, so that a rejected query changes nothing.

Called by ``streamgroups.query.join`` at the start of a query, and by ``streamgroups_kafka.cursors.instances``, with the
broker's description of the group. In Kafka, members of one group may subscribe to different topics. Here that is always
a mistake: no member would read the records of a topic to which only the other member subscribes. Source: SEMANTICS S1,
S4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamgroups.errors import GroupRejected
from streamgroups.partitions import TopicPartition
from streamgroups.printable import printable


class MembershipMode(Enum):
    """The option ``membership``."""

    #: Partitions are shared with the other members of the group.
    SHARED = "shared"
    #: One member owns all partitions: for stateful queries, since their state does not move with a partition.
    EXCLUSIVE = "exclusive"


#: The assignor of this library, and the broker's assignor of KIP-848 (where the member does not choose).
_ASSIGNORS_THAT_FIT = ("", "cooperative-sticky", "uniform")


@dataclass(frozen=True, slots=True)
class LiveMember:
    """A member as the broker describes it.

    Args:
        client_id: its name.
        host: its host, according to the broker.
        topics: its subscription. If the broker does not report it, the topics of its partitions.
        partitions: the partitions that it owns.
        subscription_known: whether ``topics`` is its subscription, or only the topics of its partitions.
    """

    client_id: str
    host: str
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]
    subscription_known: bool = True

    def __str__(self) -> str:
        return printable(f"{self.client_id} ({self.host})")


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A group as the broker describes it.

    Args:
        group_id: its name.
        members: the live members.
        assignor: the assignor of the classic protocol; empty if it is unknown or the broker decides.
        held_exclusively: whether an exclusive member made the last commits
            (:mod:`streamgroups.groups.commit_metadata`).
        settled: whether no rebalance is in progress.
    """

    group_id: str
    members: tuple[LiveMember, ...] = ()
    assignor: str = ""
    held_exclusively: bool = False
    settled: bool = True

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions with an owner."""
        return frozenset(tp for m in self.members for tp in m.partitions)

    def has_nothing_for(self, name: str) -> bool:
        """Whether a member of this name is idle because the group has no partition left for it (SEMANTICS G10).

        >>> bob = LiveMember("bob", "/10.0.0.2", frozenset({"orders"}), frozenset())
        >>> LiveGroup("g", (bob,)).has_nothing_for("bob"), LiveGroup("g", (bob,), settled=False).has_nothing_for("bob")
        (True, False)
        """
        return self.settled and any(m.client_id == name and not m.partitions for m in self.members)


def check_may_join(group: LiveGroup, topics: frozenset[str], *, by_pattern: bool, mode: MembershipMode | None) -> None:
    """Rejects a query if the current use of the group does not permit it.

    Args:
        group: the current state of the group.
        topics: the topics of the query's subscription, with patterns resolved.
        by_pattern: whether ``topics`` come from a pattern. Other members may not have discovered the newest topic yet.
        mode: the membership of the query; ``None`` if it does not join (the option ``assign``).

    Raises:
        GroupRejected: if the query may not join. The text names the live members and the remedy.

    >>> bob = LiveMember("bob", "/10.0.0.2", frozenset({"orders"}), frozenset())
    >>> check_may_join(LiveGroup("g", (bob,)), frozenset({"flights"}), by_pattern=False, mode=MembershipMode.SHARED)
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Group 'g' is in use by another subscription: bob (/10.0.0.2) reads orders, this \
query would read flights. Use another group.id, or stop the other members first.
    """
    if not group.members:
        return
    who = ", ".join(map(str, group.members[:5])) + (" …" if len(group.members) > 5 else "")
    if mode is None:
        raise GroupRejected(
            f"Group '{group.group_id}' has live members ({who}), so 'assign' cannot commit to it.",
            remedy="Use 'subscribe' to share the topic with them, or another group.id.",
        )
    for member in group.members:
        partly_seen = by_pattern or not member.subscription_known
        fits = member.topics <= topics if partly_seen else member.topics in (topics, frozenset())
        if not fits:
            raise GroupRejected(
                f"Group '{group.group_id}' is in use by another subscription: {member} reads "
                f"{', '.join(sorted(member.topics))}, this query would read {', '.join(sorted(topics))}.",
                remedy="Use another group.id, or stop the other members first.",
            )
    if group.assignor not in _ASSIGNORS_THAT_FIT:
        raise GroupRejected(
            f"Group '{group.group_id}' is in use by members that assign by '{group.assignor}' ({who}); "
            "streamgroups assigns by 'cooperative-sticky'.",
            remedy="Set partition.assignment.strategy=cooperative-sticky in them, or use another group.id.",
        )
    if mode is MembershipMode.EXCLUSIVE:
        raise GroupRejected(
            f"Group '{group.group_id}' has live members ({who}), but membership=exclusive permits no other member.",
            remedy="Stop them (a killed member counts until its session times out), or use another group.id.",
        )
    if group.held_exclusively:
        raise GroupRejected(
            f"Group '{group.group_id}' is used by {who} with membership=exclusive.",
            remedy="Stop that query, or use another group.id.",
        )
