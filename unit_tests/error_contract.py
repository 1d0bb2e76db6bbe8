"""The contract of the ports for the error of one topic in a response, for every implementation.

A test module subclasses the contract and provides a fixture ``outside``: the fakes in unit tests, a broker with an
authorizer in integration tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import pytest

from streamgroups.errors import NotAuthorized
from streamgroups.groups.lag import PartitionError
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.ports import Committed
from unit_tests.port_contracts import Outside


class DenyingOutside(Outside, Protocol):
    """A cluster that can deny access to a topic."""

    def deny(self, topic: str) -> None:
        """Denies access to a topic, and returns when the cluster applies it."""
        ...


class ErrorContract:
    """The contract of all ports for a topic that the cluster denies (SEMANTICS G17)."""

    def test_G17_a_committed_offset_that_cannot_be_read_is_not_missing(self, outside: DenyingOutside) -> None:
        group, p0, denied = outside.new_group(), *_partitions(outside)
        stored = {p0: Committed(5, "m"), denied: Committed(1_000, "n")}
        outside.metadata_store.write(group, stored)
        outside.deny(denied.topic)
        reads: list[Callable[..., dict[TopicPartition, Committed]]] = [
            outside.cluster.committed,
            outside.metadata_store.read,
        ]
        for read in reads:
            assert read(group, [p0]) == {p0: Committed(5, "m")}
            for partitions in ([p0, denied], [denied]):
                with pytest.raises(NotAuthorized, match=denied.topic):
                    read(group, partitions)

    def test_G17_all_offsets_omit_a_denied_topic_and_a_request_that_names_it_fails(
        self, outside: DenyingOutside
    ) -> None:
        """The commands about states rely on both: they name the partitions of all states."""
        group, p0, denied = outside.new_group(), *_partitions(outside)
        outside.metadata_store.write(group, {p0: Committed(5, "m"), denied: Committed(1_000, "n")})
        outside.deny(denied.topic)
        assert outside.groups.committed_offsets([group]) == {group: {p0: Committed(5, "m")}}
        with pytest.raises(NotAuthorized, match=denied.topic):
            outside.groups.committed_offsets([group], [denied])
        with pytest.raises(NotAuthorized, match=denied.topic):
            outside.topics.describe_topics([denied.topic])

    def test_G17_a_member_that_cannot_read_its_position_fails(self, outside: DenyingOutside) -> None:
        """Otherwise it would begin at another position, and commit that."""
        group, p0, denied = outside.new_group(), *_partitions(outside)
        outside.metadata_store.write(group, {p0: Committed(5), denied: Committed(1_000)})
        outside.deny(denied.topic)
        decided: list[TopicPartition] = []

        def first_positions(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
            decided.extend(partitions)
            return dict.fromkeys(decided, Owned(0, Origin.STARTING))

        member = outside.new_member(group, "alice", p0.topic, first_positions, assign=(p0, denied))

        def positions() -> object:
            member.join(30_000)
            return member.membership.owned

        try:
            with pytest.raises(NotAuthorized, match=denied.topic):
                positions()
        finally:
            member.close()
        assert decided == []
        assert outside.cluster.committed(group, [p0])[p0].next_offset == 5

    def test_G17_a_denied_topic_is_not_missing(self, outside: DenyingOutside) -> None:
        p0, denied = _partitions(outside)
        outside.deny(denied.topic)
        requests: list[Callable[[], object]] = [
            lambda: outside.cluster.end_offsets([p0, denied]),
            lambda: outside.cluster.beginning_offsets([denied]),
            lambda: outside.cluster.offsets_at_times({p0: 1, denied: 1}),
            lambda: outside.cluster.identities([p0.topic, denied.topic]),
            lambda: outside.topics.identities([p0.topic, denied.topic]),
            lambda: outside.topics.describe_topics([p0.topic, denied.topic]),
            lambda: outside.topics.at_times({p0: 1, denied: 1}),
        ]
        for request in requests:
            with pytest.raises(NotAuthorized, match=denied.topic):
                request()
        assert denied.topic not in outside.topics.describe_topics()
        assert outside.topics.bounds([p0, denied]) == {p0: Bounds(0, 0), denied: PartitionError.NOT_AUTHORIZED}
        assert outside.topics.newest([p0, denied]) == {p0: None}


def _partitions(outside: DenyingOutside) -> tuple[TopicPartition, TopicPartition]:
    return TopicPartition(outside.create_topic(1), 0), TopicPartition(outside.create_topic(1), 0)
