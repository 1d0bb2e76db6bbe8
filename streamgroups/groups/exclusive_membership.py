"""Decides whether a query with ``membership=exclusive`` continues without partitions that it has owned.

Called by ``streamgroups_kafka.membership.consumer_thread``, and by the member in memory. Partitions also leave a member
without another member: their topic was deleted or recreated. With the classic protocol librdkafka reports such partitions as
lost, and with KIP-848 the broker revokes them. Source: SEMANTICS S1, S9, S11; KIP-429, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.errors import FencedMember, GroupRejected
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition


def check_revoked(group_id: str, *, has_others: bool) -> None:
    """Rejects the revocation of partitions of an exclusive member by another member.

    A member that joined and left again has owned none of the partitions: they are not released before this decision.

    Args:
        group_id: the group.
        has_others: whether the group has another member now.

    Raises:
        GroupRejected: if it has.

    >>> check_revoked("billing", has_others=False)
    """
    if has_others:
        raise GroupRejected(
            f"Another member joined group '{group_id}', but membership=exclusive requires that this query is the only member.",
            remedy="Use another group.id for the other member, or membership=shared for stateless queries.",
        )


def check_lost(group_id: str, lost: Collection[TopicPartition], deleted: Collection[TopicPartition]) -> None:
    """Rejects the loss of partitions that still exist.

    The state must not continue if other members have read past it, or if it would count the batch in flight twice. No
    member reads a deleted topic.

    Args:
        group_id: the group.
        lost: the partitions that the member has lost.
        deleted: those of deleted topics.

    Raises:
        FencedMember: if another partition is lost.

    >>> p0 = TopicPartition("flights", 0)
    >>> check_lost("billing", [p0], deleted=[p0])
    """
    if not set(lost) <= set(deleted):
        raise FencedMember(
            f"Group '{group_id}' fenced this query, although membership=exclusive requires that it is the only member.",
            remedy="Restart the query. It continues from its checkpoint, if no other query is in the group.",
        )


def deleted_partitions(
    owned: Mapping[TopicPartition, Owned], missing: Collection[TopicPartition], now: Mapping[str, TopicIdentity]
) -> frozenset[TopicPartition]:
    """Returns the partitions whose topic was deleted, also if a topic of the same name exists again.

    Args:
        owned: the partitions, with the topics of their positions.
        missing: those that do not exist. One list of all topics without them is no proof.
        now: the ids of their topics now.

    >>> then, p0 = TopicIdentity("c", "t1"), TopicPartition("flights", 0)
    >>> [len(deleted_partitions({p0: Owned(5, identity=then)}, [], {"flights": TopicIdentity("c", it)})) for it in ("t1", "t2")]
    [0, 1]
    >>> len(deleted_partitions({p0: Owned(5, identity=then)}, [p0], {}))
    1
    """
    return frozenset(
        tp for tp, it in owned.items() if tp in missing or it.identity.differs_from(now.get(tp.topic, UNKNOWN))
    )
