"""Decides whether a query may join a group. The check comes before the join, so that a rejected query changes nothing.

Called by ``streamgroups.query.join_group`` at the start of a query, and by ``streamgroups_kafka.cursors.instances``, with the
broker's description of the group. In Kafka, members of one group may subscribe to different topics. Here that is always
a mistake: no member would read the records of a topic to which only the other member subscribes. Source: SEMANTICS S1,
S4.
"""

from __future__ import annotations

from enum import Enum

from streamgroups.errors import GroupRejected
from streamgroups.groups.description import GroupDescription
from streamgroups.printable import listed


class MembershipMode(Enum):
    """The option ``membership``."""

    #: Partitions are shared with the other members of the group.
    SHARED = "shared"
    #: One member owns all partitions: for stateful queries, since their state does not move with a partition.
    EXCLUSIVE = "exclusive"


#: The assignor of this library, and the default of the broker under KIP-848.
_ASSIGNORS_THAT_FIT = ("", "cooperative-sticky", "uniform")


def check_may_join(
    group: GroupDescription,
    topics: frozenset[str],
    *,
    by_pattern: bool,
    mode: MembershipMode | None,
    held_exclusively: bool = False,
) -> None:
    """Rejects a query if the current use of the group does not permit it.

    Args:
        group: the current state of the group.
        topics: the topics of the query's subscription, with patterns resolved.
        by_pattern: whether ``topics`` come from a pattern. Other members may not have discovered the newest topic yet.
        mode: the membership of the query; ``None`` if it does not join (the option ``assign``).
        held_exclusively: whether an exclusive member made the last commits
            (:func:`streamgroups.groups.commit_metadata.is_held_exclusively`).

    Raises:
        GroupRejected: if the query may not join. The text names the live members and the remedy.

    >>> from streamgroups.groups.description import GroupMember
    >>> bob = GroupMember("bob", "/10.0.0.2", subscription=frozenset({"orders"}))
    >>> group = GroupDescription("g", "Stable", members=(bob,))
    >>> check_may_join(group, frozenset({"flights"}), by_pattern=False, mode=MembershipMode.SHARED)
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Group 'g' is in use by another subscription: bob (/10.0.0.2) reads orders, this \
query would read flights. Use another group.id, or stop the other members first.
    """
    if not group.members:
        return
    who = listed(group.members)
    if mode is None:
        raise GroupRejected(
            f"Group '{group.group_id}' has live members ({who}), so 'assign' cannot commit to it.",
            remedy="Use 'subscribe' to share the topic with them, or another group.id.",
        )
    for member in group.members:
        partly_seen = by_pattern or member.subscription is None
        fits = member.topics <= topics if partly_seen else member.topics in (topics, frozenset())
        if not fits:
            raise GroupRejected(
                f"Group '{group.group_id}' is in use by another subscription: {member} reads "
                f"{', '.join(sorted(member.topics))}, this query would read {', '.join(sorted(topics))}.",
                remedy="Use another group.id, or stop the other members first.",
            )
    # Under KIP-848 the broker assigns, and all its assignors are incremental.
    if group.type != "consumer" and group.assignor not in _ASSIGNORS_THAT_FIT:
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
    if held_exclusively:
        raise GroupRejected(
            f"Group '{group.group_id}' is used by {who} with membership=exclusive.",
            remedy="Stop that query, or use another group.id.",
        )
