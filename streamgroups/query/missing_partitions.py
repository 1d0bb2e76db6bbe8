"""Decides whether partitions that the list of all topics lacks exist.

Used by ``streamgroups.query.left_partitions``, ``imported_time`` and ``join_group``, and by
``streamgroups_spark.source.running_query`` for an exclusive query. One list is no proof. It omits topics that the user may not
describe, without an error. A broker that has just started can lack metadata for a moment. So a partition counts as missing after
three lists in a row without it, as for the offsets of partitions. A list with all of them is the only request. Source: SEMANTICS G17,
S7; ``docs/response-errors.rst``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from tenacity import stop_after_attempt

from streamgroups.errors import BrokerUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Cluster
from streamgroups.printable import listed
from streamgroups.retry import retrying

#: Topics of the brokers.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class _NotListed(Exception):
    """A partition is neither in the list nor known by its topic id."""


#: Brokers receive metadata one after the other, and a request can reach any of them.
until_listed = retrying(stop_after_attempt(3), every_s=1.0, on=_NotListed)


def not_listed(
    partitions: Collection[TopicPartition], existing: Mapping[str, int], identified: Collection[str] = ()
) -> frozenset[TopicPartition]:
    """Returns the partitions that do not exist, by one list of all topics.

    Args:
        partitions: the partitions.
        existing: the number of partitions of each topic in the list.
        identified: the topics that have an id. If one of them is not in the list, its partitions are unknown.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> sorted(map(str, not_listed([p0, p1], {"flights": 1}, ["flights"])))
    ['flights-1']
    >>> sorted(map(str, not_listed([p0], {}, ["flights"])))
    []
    """
    return frozenset(
        tp
        for tp in partitions
        if tp.partition >= existing.get(tp.topic, 0) and (tp.topic in existing or tp.topic not in identified)
    )


def missing_partitions(cluster: Cluster, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
    """Returns the partitions that do not exist. Waits for two seconds if one of them is not in the first list.

    Args:
        cluster: the topics of the cluster.
        partitions: the partitions.

    Raises:
        NotAuthorized: if this user may not describe the topic of one of them.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    missing = frozenset(partitions)

    def list_again() -> None:
        nonlocal missing
        existing = cluster.topics() if missing else {}
        missing = not_listed(missing, existing)
        if missing:
            missing = not_listed(missing, existing, cluster.identities({tp.topic for tp in missing}))
        if missing:
            raise _NotListed

    with suppress(_NotListed):
        until_listed(list_again)
    return missing


def check_listed(cluster: Cluster, group_id: str, topics: Collection[str], existing: Mapping[str, int]) -> None:
    """Rejects a list of all topics that lacks a topic which exists.

    Args:
        cluster: the topics of the cluster.
        group_id: the group that reads the topics.
        topics: the topics. Those that do not exist are accepted.
        existing: the number of partitions of each topic in the list.

    Raises:
        NotAuthorized: if this user may not describe one of the topics.
        BrokerUnreachable: if the list lacks one of them for another reason.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    # The list of all topics has no internal ones.
    unlisted = {TopicPartition(topic, 0) for topic in topics if topic not in {*existing, *_INTERNAL}}
    there = unlisted - missing_partitions(cluster, unlisted) if unlisted else set()
    if there:
        raise BrokerUnreachable(
            f"A broker has not listed {listed(sorted(tp.topic for tp in there))}, which group '{group_id}' reads, "
            "although it exists.",
            remedy="The broker has possibly just started. The list is read again.",
            group=group_id,
        )
