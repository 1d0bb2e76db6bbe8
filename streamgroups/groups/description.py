"""Groups as operators list and describe them.

Created by ``streamgroups_kafka.admin.groups`` (and by :mod:`streamgroups.fakes`), shown by the command line. Source:
Kafka's ListGroups (KIP-518, KIP-848), DescribeGroups and ConsumerGroupDescribe (KIP-848). The states are those of
Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from streamgroups.errors import GroupRejected
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed, printable

#: The states of a group without members, in which a tool may reset it. ``kafka-consumer-groups.sh`` uses the same rule.
INACTIVE_STATES = frozenset({"Empty", "Dead"})

#: How long a group can take to remove a killed member, in seconds. Kafka's default session timeout is 45 s.
REMOVED_WITHIN_S = 60.0

#: The types of groups with committed offsets, which these commands can describe and reset.
TYPES_WITH_OFFSETS = frozenset({"classic", "consumer", ""})


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    """One line of a listing.

    Args:
        group_id: the name of the group.
        state: its state in Kafka's terms; empty if the broker does not report it (before 2.6).
        type: ``classic``, ``consumer``, ``share`` or ``streams``; empty if the broker does not report it (before 3.8).
        protocol_type: the protocol type of its members: ``consumer``, ``connect``; empty if the group never had
            members.
        coordinator: the id of its coordinator broker.
    """

    group_id: str
    state: str
    type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One live member.

    Args:
        client_id: its ``client.id``.
        host: its host, according to the broker.
        partitions: the partitions that it owns.
        member_id: its id in Kafka, a new one after every join.
        instance_id: its ``group.instance.id``, if it is a static member.
        subscription: the topics that it subscribes to; ``None`` if they are not known.
    """

    client_id: str
    host: str
    partitions: frozenset[TopicPartition] = frozenset()
    member_id: str = ""
    instance_id: str | None = None
    subscription: frozenset[str] | None = None

    @property
    def topics(self) -> frozenset[str]:
        """Its subscription, or else the topics of its partitions."""
        return frozenset(tp.topic for tp in self.partitions) if self.subscription is None else self.subscription

    def __str__(self) -> str:
        return printable(f"{self.client_id} ({self.host})")


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The description of one group.

    Args:
        group_id: the name of the group.
        state: its state in Kafka's terms; ``Dead`` if it does not exist.
        type: see :class:`GroupListing`.
        protocol_type: see :class:`GroupListing`.
        assignor: the assignor; empty if the group has no members.
        coordinator: the id of its coordinator broker.
        members: the live members.
    """

    group_id: str
    state: str
    type: str = ""
    protocol_type: str = ""
    assignor: str = ""
    coordinator: int | None = None
    members: tuple[GroupMember, ...] = ()

    @property
    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The owner of each assigned partition."""
        return {tp: member for member in self.members for tp in member.partitions}

    @property
    def is_settled(self) -> bool:
        """Whether no rebalance is in progress."""
        return self.state == "Stable" or self.state in INACTIVE_STATES

    def readers(self) -> Callable[[TopicPartition], str | None]:
        """Returns the id of the member that may read a partition: ``None`` if no member reads it, empty if it is not known.

        While a group rebalances, a broker describes no owners. A partition without an owner can still be read, if a member
        subscribes to its topic: in a rebalance of the classic protocol the group is stable already while the former owner finishes
        its batch.

        >>> p0, p1, orders = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("orders", 0)
        >>> bob = GroupMember("bob", "/10.0.0.2", frozenset([p0]), member_id="bob-1", subscription=frozenset(["flights"]))
        >>> reader = GroupDescription("g", "Stable", members=(bob,)).readers()
        >>> reader(p0), reader(p1), reader(orders)
        ('bob-1', '', None)
        """
        owners = {tp: member.member_id for tp, member in self.owners.items()}
        topics = {topic for member in self.members for topic in member.topics}
        is_subscribed_by_all = any(member.subscription is None for member in self.members)

        def reader(tp: TopicPartition) -> str | None:
            if not self.is_settled:
                return ""
            return owners.get(tp, "" if tp.topic in topics or is_subscribed_by_all else None)

        return reader

    def may_read(self, topic: str) -> bool:
        """Whether a member may read a topic: it owns a partition or subscribes. While the group rebalances, any topic counts.

        A broker does not report the subscriptions of all members (KIP-848). So a single partition without an owner counts if
        a member owns another one of its topic.

        >>> bob = GroupMember("bob", "/10.0.0.2", frozenset([TopicPartition("flights", 0)]))
        >>> [GroupDescription("g", "Stable", members=(bob,)).may_read(topic) for topic in ("flights", "orders")]
        [True, False]
        """
        return not self.is_settled or any(topic in member.topics for member in self.members)

    def has_nothing_for(self, name: str) -> bool:
        """Whether a member of this name is idle because the group has no partition left for it (SEMANTICS G10).

        >>> bob = GroupMember("bob", "/10.0.0.2")
        >>> [GroupDescription("g", state, members=(bob,)).has_nothing_for("bob") for state in ("Stable", "Assigning")]
        [True, False]
        """
        return self.is_settled and any(m.client_id == name and not m.partitions for m in self.members)

    def owns(self, member_id: str, partitions: Collection[TopicPartition]) -> bool:
        """Whether a member is in the group, and no other member owns one of these partitions.

        The broker assigns a partition after its former owner has released it, so an owner sees no other one.

        >>> p0, bob = TopicPartition("flights", 0), GroupMember("bob", "/10.0.0.2", member_id="bob-1")
        >>> group = GroupDescription("g", "Stable", members=(bob,))
        >>> group.owns("bob-1", [p0]), group.owns("alice-1", [p0])
        (True, False)
        """
        is_member = any(m.member_id == member_id for m in self.members)
        owners = self.owners
        return is_member and all(tp not in owners or owners[tp].member_id == member_id for tp in partitions)


def is_active(group: GroupDescription) -> bool:
    """Whether the group has members. Then only they may commit to it."""
    return group.state not in INACTIVE_STATES


def require_inactive(groups: Iterable[GroupDescription], *, doing: str) -> None:
    """Rejects groups with members, all at once and before anything changes.

    Args:
        groups: their current descriptions.
        doing: the rejected operation, to end the sentence ``cannot be ...``.

    Raises:
        GroupRejected: if a group is active. The text names each active group, its state and its members.

    >>> bob = GroupMember("bob", "/10.0.0.2")
    >>> require_inactive([GroupDescription("orders", "Stable", members=(bob,))], doing="reset")
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Group 'orders' is Stable with 1 member, bob (/10.0.0.2): it cannot be reset. \
Stop its members first (a killed one counts until its session times out); nothing was changed.
    """
    rejected = []
    for group in groups:
        if group.type not in TYPES_WITH_OFFSETS:
            raise GroupRejected(
                f"Group '{group.group_id}' is a {group.type} group: it cannot be {doing} here; nothing was changed.",
                remedy=f"Use kafka-{group.type}-groups.sh.",
            )
        if is_active(group):
            count = len(group.members)
            members = f"{count} member{'' if count == 1 else 's'}" + (f", {listed(group.members)}" if count else "")
            rejected.append(f"Group '{group.group_id}' is {group.state} with {members}: it cannot be {doing}.")
    if rejected:
        raise GroupRejected(
            " ".join(rejected),
            remedy="Stop its members first (a killed one counts until its session times out); nothing was changed.",
        )
