"""S4: what a subscription means on a cluster."""

from __future__ import annotations

import re

import pytest

from streamgroups.errors import UnknownTopic
from streamgroups.groups.subscription import Partitions, Pattern, Subscription, Topics, partitions_of, topics_of
from streamgroups.partitions import TopicPartition

EXISTING = {"flights": 2, "flights-2013": 1, "my-flights": 1}


@pytest.mark.parametrize(
    ("subscription", "partitions"),
    [
        (Topics(("flights", "my-flights")), {("flights", 0), ("flights", 1), ("my-flights", 0)}),
        (Pattern(re.compile("light")), {("flights", 0), ("flights", 1), ("flights-2013", 0), ("my-flights", 0)}),
        (Pattern(re.compile("^flights")), {("flights", 0), ("flights", 1), ("flights-2013", 0)}),
        (Pattern(re.compile("^flights$")), {("flights", 0), ("flights", 1)}),
        (Pattern(re.compile("y-f|13$")), {("flights-2013", 0), ("my-flights", 0)}),
        (Pattern(re.compile("Flights")), set()),
        (Partitions((TopicPartition("flights", 1),)), {("flights", 1)}),
    ],
)
def test_S4_partitions_of_a_subscription(subscription: Subscription, partitions: set[tuple[str, int]]) -> None:
    found = partitions_of(subscription, EXISTING)
    assert found == {TopicPartition(*p) for p in partitions}
    assert topics_of(subscription, EXISTING) >= {tp.topic for tp in found}


@pytest.mark.parametrize(
    ("subscription", "what"),
    [
        (Topics(("flights", "fligths", "orders")), "Topic 'fligths', 'orders' does not exist"),
        (Partitions((TopicPartition("flights", 2),)), "Partition 'flights-2' does not exist"),
        (Partitions((TopicPartition("orders", 0),)), "Partition 'orders-0' does not exist"),
    ],
)
def test_S4_what_does_not_exist_is_named_beside_what_does(subscription: Subscription, what: str) -> None:
    with pytest.raises(UnknownTopic, match=re.escape(f"{what} (visible topics: flights, flights-2013, my-flights)")):
        topics_of(subscription, EXISTING)


def test_an_empty_cluster_is_reported_and_a_large_one_is_not_printed_whole() -> None:
    with pytest.raises(UnknownTopic, match="no topic is visible"):
        topics_of(Topics(("flights",)), {})
    with pytest.raises(UnknownTopic, match=r"t0, t1, t10, .*, t17 and 90 more\)"):
        topics_of(Topics(("flights",)), {f"t{i}": 1 for i in range(100)})
