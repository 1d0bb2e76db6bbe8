"""What every implementation of :mod:`streamgroups.ports` must do, written once.

A test module subclasses a contract and gives it a fixture ``outside``: the fakes here, a real broker in the integration
tests. Tests named after SEMANTICS numbers hold both to the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import pytest

from streamgroups.errors import UnknownTopic
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Groups, Log, Member


class Outside(Protocol):
    """A cluster, and what a test does to it."""

    @property
    def log(self) -> Log: ...
    @property
    def groups(self) -> Groups: ...
    def create_topic(self, partitions: int) -> str: ...
    def produce(
        self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int, value: bytes | None = None
    ) -> None: ...
    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None: ...
    def new_group(self) -> str: ...
    def new_member(
        self,
        group_id: str,
        name: str,
        topic: str,
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
    ) -> Member: ...
    def eventually(self, condition: Callable[[], bool]) -> None:
        """Waits, or lets the group settle, until it is so; fails if it never is."""
        ...


class LogContract:
    """:class:`streamgroups.ports.Log`."""

    def test_an_empty_partition_begins_and_ends_at_0(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        assert (outside.log.beginning_offsets([tp]), outside.log.end_offsets([tp])) == ({tp: 0}, {tp: 0})

    def test_topics_are_listed_with_the_number_of_their_partitions(self, outside: Outside) -> None:
        topic = outside.create_topic(3)
        assert outside.log.topics()[topic] == 3

    def test_beginnings_and_ends_follow_what_is_written_and_deleted(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000)
        outside.delete_records(p0, 2)
        assert outside.log.beginning_offsets([p0, p1]) == {p0: 2, p1: 0}
        assert outside.log.end_offsets([p0, p1]) == {p0: 5, p1: 0}

    def test_G1_a_time_means_the_first_record_at_or_after_it(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        for timestamp_ms in (1_000, 2_000, 3_000):
            outside.produce(tp, 2, timestamp_ms=timestamp_ms)
        found = [outside.log.offsets_at_times({tp: time_ms})[tp] for time_ms in (0, 1_001, 2_000, 3_001)]
        assert found == [0, 2, 2, None]

    def test_nothing_asked_nothing_answered(self, outside: Outside) -> None:
        assert outside.log.end_offsets([]) == {}
        assert outside.log.beginning_offsets([]) == {}
        assert outside.log.offsets_at_times({}) == {}

    def test_a_partition_that_does_not_exist_is_an_error(self, outside: Outside) -> None:
        with pytest.raises(UnknownTopic):
            outside.log.end_offsets([TopicPartition(outside.create_topic(1), 7)])

    def test_larger_records_take_more(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000, value=b"x" * 10_000)
        outside.produce(p1, 5, timestamp_ms=1_000, value=b"x")
        stored = outside.log.stored_bytes([p0, p1, TopicPartition(topic, 7)])
        assert stored.keys() == {p0, p1}
        assert stored[p0] > 100 * stored[p1] > 0

    def test_a_size_that_nobody_tells_is_left_out(self, outside: Outside) -> None:
        assert outside.log.stored_bytes([TopicPartition("no-such-topic", 0)]) == {}


class MemberContract:
    """:class:`streamgroups.ports.Member` and :class:`streamgroups.ports.Groups`."""

    @staticmethod
    def oldest(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        return {tp: Owned(0, Origin.STARTING) for tp in partitions}

    def test_a_group_that_nobody_joined_has_no_members_and_no_offsets(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        assert outside.groups.describe(group_id).members == ()
        assert outside.groups.committed(group_id, [TopicPartition(topic, 0)]) == {}

    def test_S1_a_member_alone_owns_everything_and_is_seen(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(3), outside.new_group()
        member = outside.new_member(group_id, "alice", topic, self.oldest)
        member.join(30_000)
        try:
            outside.eventually(lambda: len(member.membership.plannable) == 3)
            outside.eventually(lambda: outside.groups.describe(group_id).settled)
            (seen,) = outside.groups.describe(group_id).members
            assert (seen.client_id, seen.partitions) == ("alice", frozenset(member.membership.owned))
        finally:
            member.close()
        outside.eventually(lambda: not outside.groups.describe(group_id).members)

    def test_S2_a_finished_batch_is_committed_and_an_unfinished_one_is_not(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        member = outside.new_member(group_id, "alice", topic, self.oldest)
        member.join(30_000)
        try:
            outside.eventually(lambda: tp in member.membership.plannable)
            member.plan(1, {tp: (0, 4)})
            member.finish(1)
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 4)
            member.plan(2, {tp: (4, 9)})
        finally:
            member.close()
        assert self.committed(outside, group_id, tp) == 4

    def test_G10_G11_G12_a_partition_is_handed_over_when_its_batch_is_done(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(2), outside.new_group()
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.oldest)
        bob = outside.new_member(group_id, "bob", topic, self.oldest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: len(alice.membership.plannable) == 2)
            alice.plan(1, dict.fromkeys(tps, (0, 5)))
            bob.join(30_000)
            outside.eventually(lambda: len(alice.membership.plannable) == 1)
            assert (len(alice.membership.owned), len(bob.membership.owned)) == (2, 0)
            alice.finish(1)
            outside.eventually(lambda: bool(bob.membership.plannable))
            assert list(bob.membership.plannable.values()) == [5]
            assert not alice.membership.owned.keys() & bob.membership.owned.keys()
        finally:
            alice.close()
            outside.eventually(lambda: len(bob.membership.plannable) == 2)
            bob.close()

    @staticmethod
    def committed(outside: Outside, group_id: str, tp: TopicPartition) -> int | None:
        found = outside.groups.committed(group_id, [tp]).get(tp)
        return found.next_offset if found else None
