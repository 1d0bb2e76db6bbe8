"""The subscription of a query, as variants, and the topics that it contains now.

Created by option parsing (``streamgroups_spark.source.source_options``). Resolved by ``streamgroups.query.join_group`` at the start,
and again at run time, so that a pattern discovers new topics. Source: SEMANTICS S4; Spark's ``subscribe``,
``subscribePattern`` and ``assign``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.acls import grant
from streamgroups.errors import UnknownTopic
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed


@dataclass(frozen=True, slots=True)
class Topics:
    """These topics, by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Every topic with a match of a regular expression anywhere in its name, including topics created later."""

    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Partitions:
    """Exactly these partitions, which are not shared with other members."""

    topic_partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | Pattern | Partitions


def topics_of(subscription: Subscription, existing: Mapping[str, int]) -> frozenset[str]:
    """The topics of a subscription now.

    A pattern may match anywhere in a name, as in Spark's own source. ``^`` and ``$`` anchor it.

    Args:
        subscription: the subscription of the user.
        existing: the number of partitions of every topic of the cluster.

    Raises:
        UnknownTopic: if a named topic or partition does not exist. A pattern without a match is valid.

    >>> existing = {"flights-2013": 8, "my-flights-2013": 1, "orders": 4}
    >>> sorted(topics_of(Pattern(re.compile("flights")), existing))
    ['flights-2013', 'my-flights-2013']
    >>> sorted(topics_of(Pattern(re.compile("^flights")), existing))
    ['flights-2013']
    """
    if isinstance(subscription, Pattern):
        return frozenset(name for name in existing if subscription.regex.search(name))
    if isinstance(subscription, Topics):
        missing = sorted(set(subscription.names) - existing.keys())
        if missing:
            raise UnknownTopic(f"Topic {_quoted(missing)} does not exist{_see(existing)}.", remedy=_remedy(missing))
        return frozenset(subscription.names)
    absent = [tp for tp in subscription.topic_partitions if tp.partition >= existing.get(tp.topic, 0)]
    if absent:
        names = sorted({tp.topic for tp in absent})
        raise UnknownTopic(f"Partition {_quoted(absent)} does not exist{_see(existing)}.", remedy=_remedy(names))
    return frozenset(tp.topic for tp in subscription.topic_partitions)


def is_subscribed(subscription: Subscription, topic: str) -> bool:
    """Whether a subscription contains a topic, or will contain it when the topic exists.

    >>> is_subscribed(Topics(("flights",)), "flights"), is_subscribed(Pattern(re.compile("^flights$")), "flights-2013")
    (True, False)
    >>> is_subscribed(Partitions((TopicPartition("flights", 0),)), "flights")
    True
    """
    if isinstance(subscription, Pattern):
        return subscription.regex.search(topic) is not None
    if isinstance(subscription, Topics):
        return topic in subscription.names
    return topic in {tp.topic for tp in subscription.topic_partitions}


def partitions_of(subscription: Subscription, existing: Mapping[str, int]) -> frozenset[TopicPartition]:
    """The partitions of a subscription now.

    Raises:
        UnknownTopic: see :func:`topics_of`.
    """
    topics_of(subscription, existing)
    return existing_partitions(subscription, existing)


def existing_partitions(subscription: Subscription, existing: Mapping[str, int]) -> frozenset[TopicPartition]:
    """The partitions of a subscription that exist now. The policy for data loss decides about the others.

    >>> sorted(map(str, existing_partitions(Topics(("flights", "orders")), {"flights": 2})))
    ['flights-0', 'flights-1']
    >>> sorted(map(str, existing_partitions(Partitions((TopicPartition("flights", 2),)), {"flights": 2})))
    []
    """
    if isinstance(subscription, Partitions):
        return frozenset(tp for tp in subscription.topic_partitions if tp.partition < existing.get(tp.topic, 0))
    topics = [topic for topic in existing if is_subscribed(subscription, topic)]
    return frozenset(TopicPartition(topic, p) for topic in topics for p in range(existing[topic]))


def _remedy(topics: Collection[str]) -> str:
    return f"Create it, or correct its name. If it exists: {grant('Read', 'Topic', topics)}"


def _quoted(names: Iterable[object]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _see(existing: Mapping[str, int]) -> str:
    return f" (visible topics: {listed(sorted(existing))})" if existing else " (no topic is visible)"
