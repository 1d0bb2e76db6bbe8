"""Groups as an operator sees them: what a listing shows, and what a description shows.

Filled in by ``streamgroups_kafka.admin.groups`` (and by :mod:`streamgroups.fakes`), shown by the command line. Source: Kafka's
ListGroups (KIP-518, KIP-848), DescribeGroups and ConsumerGroupDescribe (KIP-848); the states are Kafka's own words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamgroups.errors import GroupRejected
from streamgroups.partitions import TopicPartition
from streamgroups.printable import printable

#: The states in which nobody is in a group, so that a tool may move it: what ``kafka-consumer-groups.sh`` goes by too.
INACTIVE_STATES = frozenset({"Empty", "Dead"})

#: The types of group whose positions are committed offsets, so that these commands can show and move them.
TYPES_WITH_OFFSETS = frozenset({"classic", "consumer", ""})

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    """One line of a listing.

    Args:
        group_id: the group's name.
        state: Kafka's word for it; empty if the broker does not tell (before 2.6).
        type: ``classic``, ``consumer``, ``share`` or ``streams``; empty if the broker does not tell (before 3.8).
        protocol_type: what its members call themselves: ``consumer``, ``connect``; empty if nobody ever joined.
        coordinator: the id of the broker that looks after it.
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
        member_id: Kafka's id of it, new with every join.
        client_id: the name it gave itself.
        host: where it runs, as the broker sees it.
        instance_id: its ``group.instance.id``, if it is a static member.
        partitions: what it owns.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: frozenset[TopicPartition]

    def __str__(self) -> str:
        return printable(f"{self.client_id} ({self.host})")


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group, described.

    Args:
        group_id: the group's name.
        state: Kafka's word for it; ``Dead`` if it does not exist.
        type: see :class:`GroupListing`.
        protocol_type: see :class:`GroupListing`.
        assignor: how partitions are assigned; empty if nobody is in it.
        coordinator: the id of the broker that looks after it.
        members: the live ones.
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
        """Who owns which partition."""
        return {tp: member for member in self.members for tp in member.partitions}


def is_active(group: GroupDescription) -> bool:
    """Whether somebody is in the group, so that nobody else may commit to it."""
    return group.state not in INACTIVE_STATES


def require_inactive(groups: Iterable[GroupDescription], *, doing: str) -> None:
    """Refuses groups whose positions are in use, all at once and before anything changes.

    Args:
        groups: as they are now.
        doing: what is refused, to end the sentence ``cannot be ...``.

    Raises:
        GroupRejected: naming each active group, its state, and who is in it.

    >>> bob = GroupMember("m-1", "bob", "/10.0.0.2", None, frozenset())
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
            who = ", ".join(str(m) for m in group.members[:_NAMES_SHOWN]) + (" …" if count > _NAMES_SHOWN else "")
            members = f"{count} member{'' if count == 1 else 's'}" + (f", {who}" if who else "")
            rejected.append(f"Group '{group.group_id}' is {group.state} with {members}: it cannot be {doing}.")
    if rejected:
        raise GroupRejected(
            " ".join(rejected),
            remedy="Stop its members first (a killed one counts until its session times out); nothing was changed.",
        )
