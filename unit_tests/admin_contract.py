"""The contract of the administration ports, for every implementation.

A test module subclasses the contract and provides a fixture ``outside``: the fakes in unit tests, a real broker in
integration tests.
"""

from __future__ import annotations

import pytest

from streamgroups.errors import GroupRejected, InvalidOption, UnknownTopic
from streamgroups.groups.lag import CountedLag, NoLag, PartitionError
from streamgroups.partitions import Bounds, OffsetRange, StampedOffset, TopicPartition
from streamgroups.ports import Committed
from unit_tests.port_contracts import Outside


class AdminContract:
    """The contract of :class:`streamgroups.ports.GroupAdmin` and :class:`streamgroups.ports.TopicAdmin`."""

    def test_a_group_that_does_not_exist_is_dead_and_not_listed(self, outside: Outside) -> None:
        group = outside.new_group()
        assert group not in [g.group_id for g in outside.groups.list_groups()]
        assert outside.groups.describe_groups([group])[group].state == "Dead"
        assert outside.groups.committed_offsets([group]) == {group: {}}

    def test_offsets_are_committed_with_their_metadata_and_make_the_group(self, outside: Outside) -> None:
        topic, group = outside.create_topic(2), outside.new_group()
        offsets = {TopicPartition(topic, 0): Committed(3, "m"), TopicPartition(topic, 1): Committed(0, "")}
        assert outside.groups.alter_offsets(group, offsets) == {}
        assert outside.groups.committed_offsets([group]) == {group: offsets}
        (listed,) = [g for g in outside.groups.list_groups() if g.group_id == group]
        assert (listed.state, listed.type) == ("Empty", "classic")
        described = outside.groups.describe_groups([group])[group]
        assert (described.state, described.members, described.coordinator) == ("Empty", (), listed.coordinator)

    def test_a_partition_that_does_not_exist_fails_alone(self, outside: Outside) -> None:
        topic, group = outside.create_topic(1), outside.new_group()
        there, missing = TopicPartition(topic, 0), TopicPartition(topic, 7)
        failures = outside.groups.alter_offsets(group, {there: Committed(1), missing: Committed(1)})
        assert [(tp, type(e)) for tp, e in failures.items()] == [(missing, UnknownTopic)]
        assert outside.groups.committed_offsets([group])[group] == {there: Committed(1)}

    def test_O1_a_group_with_members_is_shown_and_rejects_every_change(self, outside: Outside) -> None:
        topic, group = outside.create_topic(2), outside.new_group()
        tps = frozenset(TopicPartition(topic, p) for p in range(2))
        with outside.member_of(group, topic):
            described = outside.groups.describe_groups([group])[group]
            assert [(m.client_id, m.partitions) for m in described.members] == [("alice", tps)]
            assert (described.state, frozenset(described.owners)) == ("Stable", tps)
            before = outside.groups.committed_offsets([group])
            altered = outside.groups.alter_offsets(group, dict.fromkeys(tps, Committed(1)))
            assert {type(e) for e in altered.values()} == {GroupRejected}
            deleted = outside.groups.delete_offsets(group, tps)
            assert {type(e) for e in deleted.values()} == {GroupRejected}
            assert {type(e) for e in outside.groups.delete_groups([group]).values()} == {GroupRejected}
            assert outside.groups.committed_offsets([group]) == before

    def test_offsets_can_be_forgotten_one_by_one(self, outside: Outside) -> None:
        topic, group = outside.create_topic(2), outside.new_group()
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.groups.alter_offsets(group, {p0: Committed(1), p1: Committed(2)})
        assert outside.groups.delete_offsets(group, [p0]) == {}
        assert outside.groups.committed_offsets([group])[group] == {p1: Committed(2)}

    def test_groups_can_be_deleted(self, outside: Outside) -> None:
        topic, group, other = outside.create_topic(1), outside.new_group(), outside.new_group()
        outside.groups.alter_offsets(group, {TopicPartition(topic, 0): Committed(1)})
        assert list(outside.groups.delete_groups([group, other])) == [other]
        assert outside.groups.describe_groups([group])[group].state == "Dead"

    def test_many_groups_are_answered_together(self, outside: Outside) -> None:
        topic = outside.create_topic(1)
        tp = TopicPartition(topic, 0)
        groups = {outside.new_group(): n for n in range(20)}
        for group, n in groups.items():
            outside.groups.alter_offsets(group, {tp: Committed(n)})
        committed = outside.groups.committed_offsets(list(groups))
        assert {group: offsets[tp].next_offset for group, offsets in committed.items()} == groups
        assert {d.state for d in outside.groups.describe_groups(list(groups)).values()} == {"Empty"}

    def test_S11_ids_of_topics(self, outside: Outside) -> None:
        topic = outside.create_topic(1)
        found = outside.topics.identities([topic, "no-such-topic"])
        assert found == outside.cluster.identities([topic])
        assert None not in (found[topic].cluster_id, found[topic].topic_id)
        assert outside.topics.identities([]) == {}

    def test_topics_are_described_by_name_and_missing_ones_left_out(self, outside: Outside) -> None:
        topic = outside.create_topic(3)
        found = outside.topics.describe_topics([topic, "nobody-made-this"])
        assert list(found) == [topic]
        assert [p.partition for p in found[topic].partitions] == [0, 1, 2]
        assert topic in outside.topics.describe_topics()

    def test_bounds_and_what_has_none(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1, missing = (TopicPartition(topic, p) for p in (0, 1, 7))
        outside.produce(p0, 5, timestamp_ms=1_000)
        outside.delete_records(p0, 2)
        assert outside.topics.bounds([p0, p1, missing]) == {
            p0: Bounds(2, 5),
            p1: Bounds(0, 0),
            missing: PartitionError.NO_PARTITION,
        }

    def test_times(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        for timestamp_ms in (1_000, 3_000, 2_000):
            outside.produce(p0, 1, timestamp_ms=timestamp_ms)
        assert outside.topics.at_times({p0: 1_500, p1: 1_500}) == {p0: StampedOffset(1, 3_000), p1: None}
        assert outside.topics.at_times({p0: 3_001}) == {p0: None}
        assert outside.topics.newest([p0, p1]) == {p0: StampedOffset(1, 3_000), p1: None}

    def test_O3_the_first_record_at_an_offset_or_its_absence(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        for timestamp_ms in (1_000, 2_000):
            outside.produce(p0, 1, timestamp_ms=timestamp_ms)
        assert outside.topics.first_records({p0: 1, p1: 0}) == {p0: StampedOffset(1, 2_000), p1: NoLag()}
        assert outside.topics.first_records({p0: 2}) == {p0: NoLag()}

    def test_records_are_read_from_an_offset_to_before_another(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000)
        outside.produce(p1, 2, timestamp_ms=2_000)
        outside.delete_records(p0, 1)
        found = list(outside.topics.read({p0: 1, p1: 0}, {p0: 4, p1: 2}))
        assert sorted((r.topic_partition, r.offset, r.timestamp_ms) for r in found) == [
            *((p0, n, 1_000) for n in (1, 2, 3)),
            *((p1, n, 2_000) for n in (0, 1)),
        ]
        assert list(outside.topics.read({p0: 5}, {p0: 5})) == []

    def test_metadata_is_as_large_as_a_broker_takes(self, outside: Outside) -> None:
        topic, group = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        assert outside.groups.alter_offsets(group, {tp: Committed(1, "x" * 4_096)}) == {}
        assert list(outside.groups.alter_offsets(group, {tp: Committed(2, "x" * 4_097)})) == [tp]
        assert outside.groups.committed_offsets([group])[group][tp].next_offset == 1

    def test_offsets_that_are_larger_than_one_commit(self, outside: Outside) -> None:
        topic, group = outside.create_topic(300), outside.new_group()
        offsets = {TopicPartition(topic, p): Committed(p, "x" * 4_000) for p in range(300)}
        assert outside.groups.alter_offsets(group, offsets) == {}
        assert outside.groups.committed_offsets([group]) == {group: offsets}

    def test_O3_records_are_counted_within_a_range_and_what_the_limit_leaves_out_is_a_bound(
        self, outside: Outside
    ) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        for tp in (p0, p1):
            outside.produce(tp, 3, timestamp_ms=1_000)
        ranges = [OffsetRange(p0, 1, 3), OffsetRange(p1, 3, 3)]
        assert outside.topics.count_lag(ranges, 1 << 20) == {p0: CountedLag(2), p1: CountedLag(0)}
        assert outside.topics.count_lag(ranges[:1], 0).get(p0, CountedLag(2, is_exact=False)).records == 2

    def test_an_empty_request_has_an_empty_response(self, outside: Outside) -> None:
        assert outside.topics.bounds([]) == {}
        assert outside.topics.at_times({}) == {}
        assert outside.topics.newest([]) == {}
        assert outside.topics.first_records({}) == {}
        assert outside.topics.count_lag([], 1) == {}
        assert outside.topics.describe_topics([]) == {}
        assert outside.groups.describe_groups([]) == {}
        assert outside.groups.committed_offsets([]) == {}
        assert outside.groups.delete_groups([]) == {}

    def test_a_topic_is_created_once(self, outside: Outside) -> None:
        topic = f"{outside.new_group()}-topic"
        assert outside.topics.create_topic(topic, 3)
        assert not outside.topics.create_topic(topic, 5)
        assert len(outside.topics.describe_topics([topic])[topic].partitions) == 3

    def test_a_topic_with_more_replicas_than_brokers_is_rejected(self, outside: Outside) -> None:
        topic = f"{outside.new_group()}-topic"
        with pytest.raises(InvalidOption, match=f"Topic '{topic}' could not be created"):
            outside.topics.create_topic(topic, 1, 9)
        assert outside.topics.describe_topics([topic]) == {}
