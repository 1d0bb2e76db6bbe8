"""The contracts of :mod:`streamgroups.ports`, for every implementation.

A test module subclasses a contract and provides a fixture ``outside``: the fakes in unit tests, a real broker in
integration tests. Tests with SEMANTICS numbers verify both against the same definition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import pytest

from streamgroups.errors import DataLoss, FencedMember, GroupRejected, SinkUnreachable, StreamGroupsError, UnknownTopic
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, is_held_exclusively
from streamgroups.groups.membership import MoveLedger, NewPosition, Origin, Owned, TakeOver
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import LogEnds, OffsetRange, TopicPartition
from streamgroups.ports import (
    Batch,
    Cluster,
    Committed,
    FirstPositions,
    GroupAdmin,
    Member,
    MetadataStore,
    Records,
    TopicAdmin,
)

#: The prefix of commit metadata (``streamgroups.groups.commit_metadata``).
SHARED_MARK, EXCLUSIVE_MARK, WRITTEN = "streamgroups:shared", "streamgroups:exclusive", ";written"


class Transaction(Protocol):
    """An open transaction of a producer."""

    def produce(self, topic_partition: TopicPartition, count: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class Outside(Protocol):
    """A cluster, and the operations of a test on it."""

    @property
    def protocol(self) -> str:
        """The protocol of the groups that members join: ``classic`` or ``consumer``."""
        ...

    @property
    def cluster(self) -> Cluster: ...
    @property
    def cluster_of_committed(self) -> Cluster:
        """The cluster as a reader of committed records sees it."""
        ...

    @property
    def groups(self) -> GroupAdmin: ...
    @property
    def topics(self) -> TopicAdmin: ...
    @property
    def metadata_store(self) -> MetadataStore: ...
    @property
    def other_metadata_store(self) -> MetadataStore:
        """Another store that reads the entries of :attr:`metadata_store`: another program, possibly with another
        implementation.
        """
        ...

    def create_topic(self, partitions: int) -> str: ...
    def produce(
        self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int, value: bytes | None = None
    ) -> None: ...
    def begin_transaction(self) -> Transaction: ...
    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None: ...
    def new_records(self, *, read_committed: bool = False) -> Records: ...
    def new_group(self) -> str: ...
    def member_of(self, group_id: str, topic: str) -> AbstractContextManager[None]:
        """During the block, a member ``alice`` is in the group and owns all partitions of the topic."""
        ...

    def new_member(
        self,
        group_id: str,
        name: str,
        topic: str,
        first_positions: FirstPositions,
        *,
        exclusive: bool = False,
        assign: tuple[TopicPartition, ...] | None = None,
        take_over: TakeOver = lambda owned, _: owned,
        move_ledger: MoveLedger = frozenset,
    ) -> Member: ...
    def commit_as_a_sink(self, member: Member) -> None:
        """Commits the offsets of the batch in flight in a transaction, as a sink does together with its output."""
        ...

    def in_background(self, job: Callable[[], None]) -> Future[None]:
        """Starts a job that can depend on the next step of the test."""
        ...

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition is true, or lets the group settle; fails after a timeout."""
        ...


class ClusterContract:
    """The contract of :class:`streamgroups.ports.Cluster`."""

    def test_an_empty_partition_begins_and_ends_at_0(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        assert (outside.cluster.beginning_offsets([tp]), outside.cluster.end_offsets([tp])) == ({tp: 0}, {tp: 0})

    def test_topics_are_listed_with_the_number_of_their_partitions(self, outside: Outside) -> None:
        topic = outside.create_topic(3)
        assert outside.cluster.topics()[topic] == 3

    def test_beginnings_and_ends_follow_what_is_written_and_deleted(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000)
        outside.delete_records(p0, 2)
        assert outside.cluster.beginning_offsets([p0, p1]) == {p0: 2, p1: 0}
        assert outside.cluster.end_offsets([p0, p1]) == {p0: 5, p1: 0}

    def test_G1_a_time_means_the_first_record_at_or_after_it(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        for timestamp_ms in (1_000, 2_000, 3_000):
            outside.produce(tp, 2, timestamp_ms=timestamp_ms)
        found = [outside.cluster.offsets_at_times({tp: time_ms})[tp] for time_ms in (0, 1_001, 2_000, 3_001)]
        assert found == [0, 2, 2, None]

    def test_an_empty_request_has_an_empty_response(self, outside: Outside) -> None:
        assert outside.cluster.end_offsets([]) == {}
        assert outside.cluster.beginning_offsets([]) == {}
        assert outside.cluster.offsets_at_times({}) == {}

    def test_a_partition_that_does_not_exist_is_an_error(self, outside: Outside) -> None:
        with pytest.raises(UnknownTopic):
            outside.cluster.end_offsets([TopicPartition(outside.create_topic(1), 7)])

    def test_S7_ends_have_the_epoch_of_the_leader_and_epochs_have_ends(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000)
        ends = outside.cluster.log_ends([p0, p1])
        assert ends.offsets == {p0: 5, p1: 0}
        assert ends.leader_epochs.keys() == {p0, p1}
        assert outside.cluster_of_committed.log_ends([p0, p1]) == ends
        assert outside.cluster.epoch_ends(ends.leader_epochs, ends.leader_epochs) == {p0: 5, p1: 0}
        later = {p0: ends.leader_epochs[p0] + 1}
        assert outside.cluster.epoch_ends(later, {}) == {}, "the log has no such epoch"
        assert (outside.cluster.log_ends([]), outside.cluster.epoch_ends({}, {})) == (LogEnds({}), {})

    def test_larger_records_take_more(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000, value=b"x" * 10_000)
        outside.produce(p1, 5, timestamp_ms=1_000, value=b"x")
        stored = outside.cluster.stored_bytes([p0, p1, TopicPartition(topic, 7)])
        assert stored.keys() == {p0, p1}
        assert stored[p0] > 100 * stored[p1] > 0

    def test_a_size_that_is_not_reported_is_left_out(self, outside: Outside) -> None:
        assert outside.cluster.stored_bytes([TopicPartition("no-such-topic", 0)]) == {}

    def test_an_open_transaction_ends_what_readers_of_committed_records_see(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        outside.produce(tp, 3, timestamp_ms=1_000)
        transaction = outside.begin_transaction()
        transaction.produce(tp, 2)
        assert (outside.cluster.end_offsets([tp]), outside.cluster.high_watermarks([tp])) == ({tp: 5}, {tp: 5})
        assert outside.cluster_of_committed.end_offsets([tp]) == {tp: 3}
        assert outside.cluster_of_committed.high_watermarks([tp]) == {tp: 5}
        assert outside.cluster.offsets_at_times({tp: 1_001}) == {tp: 3}
        assert outside.cluster_of_committed.offsets_at_times({tp: 1_001}) == {tp: None}
        transaction.commit()
        # The marker also has an offset.
        outside.eventually(lambda: outside.cluster_of_committed.end_offsets([tp]) == {tp: 6})
        assert outside.cluster.end_offsets([tp]) == {tp: 6}
        assert outside.cluster_of_committed.offsets_at_times({tp: 1_001}) == {tp: 3}

    def test_what_an_aborted_transaction_wrote_keeps_its_offsets(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        transaction = outside.begin_transaction()
        transaction.produce(tp, 2)
        transaction.abort()
        outside.eventually(lambda: outside.cluster_of_committed.end_offsets([tp]) == {tp: 3})


class RecordsContract:
    """The contract of :class:`streamgroups.ports.Records`."""

    def test_records_are_read_from_the_given_offset(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.produce(p0, 5, timestamp_ms=1_000, value=b"v")
        outside.produce(p1, 3, timestamp_ms=2_000)
        records = outside.new_records()
        try:
            first = records.read({p0: 2, p1: 0}, limit=100)
            assert self.offsets(first) == {p0: [2, 3, 4], p1: [0, 1, 2]}
            assert {(m.timestamp_ms, m.value) for m in first.messages if m.partition == 0} == {(1_000, b"v")}
            assert first.reached == {p0: 5, p1: 3}
            assert records.read({p0: 5, p1: 3}, limit=100) == Batch((), {p0: 5, p1: 3})
            assert self.offsets(records.read({p0: 1}, limit=2)) == {p0: [1, 2]}
        finally:
            records.close()

    def test_G4_a_request_can_be_read_again(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            outside.produce(tp, 50, timestamp_ms=1_000)
        records = outside.new_records()
        try:
            at, chain = dict.fromkeys(tps, 0), list[tuple[dict[TopicPartition, int], Batch]]()
            for _ in range(4):
                chain.append((at, records.read(at, limit=17)))
                at = dict(chain[-1][1].reached)
            for tp in tps:
                outside.produce(tp, 50, timestamp_ms=1_000)
            for at, batch in reversed(chain):
                assert [(m.partition, m.offset) for m in batch.messages] == sorted(
                    (m.partition, m.offset) for m in batch.messages
                )
                assert records.read(at, limit=17, until=batch.reached) == batch
                assert records.read(at, limit=5, until=batch.reached).messages == batch.messages[:5]
        finally:
            records.close()

    def test_no_more_than_the_limit(self, outside: Outside) -> None:
        topic = outside.create_topic(2)
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            outside.produce(tp, 5, timestamp_ms=1_000)
        records = outside.new_records()
        try:
            at, seen = dict.fromkeys(tps, 0), list[tuple[int, int]]()
            while len(seen) < 10:
                batch = records.read(at, limit=3)
                assert 0 < len(batch.messages) <= 3
                seen += [(m.partition, m.offset) for m in batch.messages]
                at = dict(batch.reached)
            assert sorted(seen) == [(p, n) for p in range(2) for n in range(5)]
            assert at == dict.fromkeys(tps, 5)
        finally:
            records.close()

    def test_S7_a_position_outside_the_partition_is_data_loss(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        outside.produce(tp, 5, timestamp_ms=1_000)
        outside.delete_records(tp, 2)
        records = outside.new_records()
        try:
            for gone in (1, 6):
                with pytest.raises(DataLoss, match=rf"{tp}.*{gone}.*\[2, 5\)"):
                    records.read({tp: gone}, limit=10)
            assert self.offsets(records.read({tp: 2}, limit=10)) == {tp: [2, 3, 4]}
        finally:
            records.close()

    def test_G13_offsets_without_a_record_count_as_read(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        transaction = outside.begin_transaction()
        transaction.produce(tp, 2)
        transaction.commit()
        aborted = outside.begin_transaction()
        aborted.produce(tp, 2)
        aborted.abort()
        outside.eventually(lambda: outside.cluster_of_committed.end_offsets([tp]) == {tp: 6})
        records = outside.new_records(read_committed=True)
        try:
            batch = records.read({tp: 0}, limit=10)
            assert (self.offsets(batch), batch.reached) == ({tp: [0, 1]}, {tp: 6})
        finally:
            records.close()

    def test_an_open_transaction_is_the_end_for_a_reader_of_committed_records(self, outside: Outside) -> None:
        tp = TopicPartition(outside.create_topic(1), 0)
        outside.produce(tp, 3, timestamp_ms=1_000)
        transaction = outside.begin_transaction()
        transaction.produce(tp, 2)
        records, of_all = outside.new_records(read_committed=True), outside.new_records()
        try:
            batch = records.read({tp: 1}, limit=10)
            assert (self.offsets(batch), batch.reached) == ({tp: [1, 2]}, {tp: 3})
            # A reader of all records can have reached this position.
            assert records.read({tp: 4}, limit=10) == Batch((), {tp: 4})
            assert self.offsets(of_all.read({tp: 3}, limit=10)) == {tp: [3, 4]}
        finally:
            records.close()
            of_all.close()
            transaction.abort()

    @staticmethod
    def offsets(batch: Batch) -> dict[TopicPartition, list[int]]:
        found = defaultdict[TopicPartition, list[int]](list)
        for m in batch.messages:
            found[TopicPartition(m.topic, m.partition)].append(m.offset)
        return dict(found)


class MetadataStoreContract:
    """The contract of :class:`streamgroups.ports.MetadataStore`."""

    def test_entries_are_read_as_they_were_written_and_others_left_out(self, outside: Outside) -> None:
        group, topic = outside.new_group(), outside.create_topic(3)
        p0, p1, p2 = (TopicPartition(topic, p) for p in range(3))
        written = {p0: Committed(5, '{"to": "Z\u00fcrich \U0001f6eb"}'), p1: Committed(0, "")}
        assert outside.metadata_store.read(group, [p0, p1, p2]) == {}
        outside.metadata_store.write(group, written)
        for metadata_store in (outside.metadata_store, outside.other_metadata_store):
            assert metadata_store.read(group, [p0, p1, p2]) == written
            assert metadata_store.read(group, [p0]) == {p0: written[p0]}
            assert metadata_store.read(group, []) == {}

    def test_an_entry_is_replaced_and_others_stay(self, outside: Outside) -> None:
        group, topic = outside.new_group(), outside.create_topic(2)
        p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
        outside.metadata_store.write(group, {p0: Committed(5, "first"), p1: Committed(6, "stays")})
        outside.metadata_store.write(group, {p0: Committed(3, "second")})
        outside.metadata_store.write(group, {})
        assert outside.metadata_store.read(group, [p0, p1]) == {
            p0: Committed(3, "second"),
            p1: Committed(6, "stays"),
        }

    def test_an_entry_as_large_as_a_broker_takes(self, outside: Outside) -> None:
        """The broker counts the NUL that librdkafka adds to a text."""
        group, tp = outside.new_group(), TopicPartition(outside.create_topic(1), 0)
        largest = "x" * 4_094 + "\u00e9"
        outside.metadata_store.write(group, {tp: Committed(1, largest)})
        assert outside.other_metadata_store.read(group, [tp]) == {tp: Committed(1, largest)}
        with pytest.raises(StreamGroupsError):
            outside.metadata_store.write(group, {tp: Committed(2, largest + "x")})
        assert outside.metadata_store.read(group, [tp]) == {tp: Committed(1, largest)}

    def test_entries_that_are_larger_than_one_commit(self, outside: Outside) -> None:
        """A broker stores a commit as one record batch, of at most 1,048,588 bytes."""
        group, topic = outside.new_group(), outside.create_topic(300)
        entries = {TopicPartition(topic, p): Committed(p, "x" * 4_000) for p in range(300)}
        outside.metadata_store.write(group, entries)
        assert outside.other_metadata_store.read(group, entries) == entries

    def test_a_group_with_members_rejects_entries(self, outside: Outside) -> None:
        group, topic = outside.new_group(), outside.create_topic(1)
        tp = TopicPartition(topic, 0)
        with outside.member_of(group, topic):
            with pytest.raises(GroupRejected):
                outside.metadata_store.write(group, {tp: Committed(1, "entry")})
            assert outside.metadata_store.read(group, [tp]) == {}


class MemberContract:
    """The contract of :class:`streamgroups.ports.Member`, and of groups in :class:`streamgroups.ports.Cluster`."""

    @staticmethod
    def earliest(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        return {tp: Owned(0, Origin.STARTING) for tp in partitions}

    def test_a_group_that_was_never_joined_has_no_members_and_no_offsets(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        assert outside.cluster.describe(group_id).members == ()
        assert outside.cluster.committed(group_id, [TopicPartition(topic, 0)]) == {}

    def test_S1_a_member_alone_owns_everything_and_is_seen(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(3), outside.new_group()
        member = outside.new_member(group_id, "alice", topic, self.earliest)
        member.join(30_000)
        try:
            outside.eventually(lambda: len(member.membership.plannable) == 3)
            outside.eventually(lambda: outside.cluster.describe(group_id).is_settled)
            (seen,) = outside.cluster.describe(group_id).members
            assert (seen.client_id, seen.partitions) == ("alice", frozenset(member.membership.owned))
        finally:
            member.close()
        outside.eventually(lambda: not outside.cluster.describe(group_id).members)

    def test_S2_a_finished_batch_is_committed_and_an_unfinished_one_is_not(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        member = outside.new_member(group_id, "alice", topic, self.earliest)
        member.join(30_000)
        try:
            outside.eventually(lambda: tp in member.membership.plannable)
            member.plan(1, [OffsetRange(tp, 0, 4)])
            member.finish(1)
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 4)
            member.plan(2, [OffsetRange(tp, 4, 9)])
        finally:
            member.close()
        assert self.committed(outside, group_id, tp) == 4

    def test_S6_G10_G11_G12_a_partition_is_handed_over_when_its_batch_is_done(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(2), outside.new_group()
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.earliest)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)

        def described() -> tuple[bool, list[str]]:
            group = outside.cluster.describe(group_id)
            return group.is_settled, [it.client_id for it in group.owners.values()]

        alice.join(30_000)
        try:
            outside.eventually(lambda: len(alice.membership.plannable) == 2)
            alice.plan(1, [OffsetRange(tp, 0, 5) for tp in tps])
            # The first assignment is empty. With KIP-848 it arrives together with the partition.
            joined = outside.in_background(lambda: bob.join(30_000))
            outside.eventually(lambda: len(alice.membership.plannable) == 1)
            # Meanwhile the partition has no owner. A group of the classic protocol is stable.
            outside.eventually(lambda: described() == (outside.protocol == "classic", ["alice"]))
            assert (len(alice.membership.owned), len(bob.membership.owned)) == (2, 0)
            alice.finish(1)
            outside.eventually(lambda: bool(bob.membership.plannable))
            joined.result(30)
            assert list(bob.membership.plannable.values()) == [5]
            assert not alice.membership.owned.keys() & bob.membership.owned.keys()
        finally:
            alice.close()
            outside.eventually(lambda: len(bob.membership.plannable) == 2)
            bob.close()

    def test_a_member_that_closes_waits_for_nothing(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.earliest)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: bool(alice.membership.plannable))
            alice.plan(1, [OffsetRange(tp, 0, 9)])
            bob.join(30_000)
            # The batch in flight has no owner: it is not committed, and is read again.
            alice.close()
            outside.eventually(lambda: bob.membership.plannable == {tp: 0})
        finally:
            alice.close()
            bob.close()

    def test_X2_what_a_sink_has_committed_is_not_committed_again_and_reported(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.earliest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 0 and bool(alice.membership.plannable))
            alice.plan(1, [OffsetRange(tp, 0, 4)])
            outside.commit_as_a_sink(alice)
            alice.finish(1)
            assert alice.membership.plannable == {tp: 4}
        finally:
            alice.close()
        found = outside.cluster.committed(group_id, [tp])[tp]
        # Another version of librdkafka can append bytes to the metadata.
        assert (found.next_offset, found.metadata.startswith(SHARED_MARK + WRITTEN)) == (4, True)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        bob.join(30_000)
        try:
            outside.eventually(lambda: self.without_epochs(bob) == {tp: Owned(4, Origin.WRITTEN)})
            bob.plan(1, [OffsetRange(tp, 4, 6)])
            bob.finish(1)
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 6)
        finally:
            bob.close()
        found = outside.cluster.committed(group_id, [tp])[tp]
        assert found.metadata.startswith(SHARED_MARK)
        assert WRITTEN not in found.metadata

    def test_S5_the_group_follows_a_ledger_before_anything_is_read(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        result: list[Mapping[TopicPartition, Owned]] = []

        def ledger(
            owned: Mapping[TopicPartition, Owned], _: Callable[[Collection[TopicPartition]], bool]
        ) -> Mapping[TopicPartition, Owned]:
            result.append(owned)
            return {
                tp: replace(it, next_offset=6, origin=Origin.WRITTEN, epoch=it.epoch + 9) for tp, it in owned.items()
            }

        member = outside.new_member(group_id, "alice", topic, self.earliest, take_over=ledger)
        member.join(30_000)
        try:
            outside.eventually(lambda: self.without_epochs(member) == {tp: Owned(6, Origin.WRITTEN)})
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 6)
            (text,) = (it[tp] for it in result if it)
            assert text == Owned(0, Origin.STARTING, epoch=text.epoch)
            # F1: the epoch is that of the ledger, where it has a greater one.
            assert member.membership.owned[tp].epoch == text.epoch + 9 > 9
        finally:
            member.close()
        assert outside.cluster.committed(group_id, [tp])[tp].metadata.startswith(SHARED_MARK + WRITTEN)

    def test_a_move_is_committed_and_a_rewind_is_not(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        member = outside.new_member(group_id, "alice", topic, self.earliest)
        member.join(30_000)
        try:
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 0 and bool(member.membership.plannable))
            epoch = member.membership.owned[tp].epoch
            assert member.move({tp: NewPosition(7, epoch)}, detail="") == {tp}
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 7)
            member.rewind({tp: NewPosition(2, epoch)})
            assert member.membership.plannable == {tp: 2}
        finally:
            member.close()
        assert self.committed(outside, group_id, tp) == 7

    def test_F1_if_the_ledger_has_another_owner_no_position_changes(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(2), outside.new_group()
        p0, p1 = (TopicPartition(topic, p) for p in range(2))
        required: list[Mapping[TopicPartition, Owned]] = []

        def move_ledger(positions: Mapping[TopicPartition, Owned]) -> Collection[TopicPartition]:
            required.append(positions)
            return [p1]

        member = outside.new_member(group_id, "alice", topic, self.earliest, move_ledger=move_ledger)
        member.join(30_000)
        try:
            outside.eventually(
                lambda: self.committed(outside, group_id, p1) == 0 and len(member.membership.plannable) == 2
            )
            owned = member.membership.owned
            reset = AppliedReset(1, "5f2c")
            decided = {tp: NewPosition(7, owned[tp].epoch, reset=reset) for tp in (p0, p1)}
            # The member fails, and takes both partitions over again.
            with pytest.raises(FencedMember, match=f"has another owner of {p0}: it rejects"):
                member.move(decided, detail="")
            assert required == [{tp: decided[tp].after(owned[tp]) for tp in (p0, p1)}]
            assert member.membership.plannable == {p0: 0, p1: 0}
            # F2: the position and the reset that has set it are one commit.
            owned_by_ledger = {p1: decided[p1]}
            required.clear()
            assert member.move(owned_by_ledger, detail="") == {p1}
            outside.eventually(lambda: self.committed(outside, group_id, p1) == 7)
            committed = outside.cluster.committed(group_id, [p0, p1])
            marks = {tp: CommitMark.parse(it.metadata) for tp, it in committed.items()}
            assert {tp: it.reset for tp, it in marks.items() if it is not None} == {p0: NO_RESET, p1: reset}
        finally:
            member.close()
        assert self.committed(outside, group_id, p0) == 0

    def test_F3_a_move_that_was_decided_before_a_reassignment_changes_nothing(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(2), outside.new_group()
        required: list[Mapping[TopicPartition, Owned]] = []

        def move_ledger(positions: Mapping[TopicPartition, Owned]) -> Collection[TopicPartition]:
            required.append(positions)
            return positions

        alice = outside.new_member(group_id, "alice", topic, self.earliest, move_ledger=move_ledger)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: len(alice.membership.plannable) == 2)
            before = alice.membership.owned
            bob.join(30_000)
            outside.eventually(lambda: len(bob.membership.plannable) == 1)
            ((tp, of_bob),) = bob.membership.owned.items()
            assert of_bob.epoch > before[tp].epoch
            assert bob.move({tp: NewPosition(5, of_bob.epoch)}, detail="") == {tp}
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 5)
            bob.close()
            outside.eventually(lambda: len(alice.membership.plannable) == 2)
            owned = alice.membership.owned[tp]
            assert owned.epoch > of_bob.epoch
            for epoch in (before[tp].epoch, of_bob.epoch, owned.epoch + 1):
                assert alice.move({tp: NewPosition(7, epoch)}, detail="") == frozenset()
                alice.rewind({tp: NewPosition(2, epoch)})
                alice.identify({tp: replace(owned, identity=TopicIdentity("c", "t"), epoch=epoch)})
            assert alice.membership.owned[tp] == owned
            assert not any(required), "the ledger is unchanged too"
            assert alice.move({tp: NewPosition(7, owned.epoch)}, detail="") == {tp}
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 7)
        finally:
            alice.close()
            bob.close()

    def test_F2_a_commit_of_another_client_receives_a_mark_that_stays(self, outside: Outside) -> None:
        """So each later owner sees whether a ledger or a checkpoint contains this reset."""
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        outside.metadata_store.write(group_id, {tp: Committed(5, "by hand")})
        seen: list[Owned] = []
        for name in ("alice", "bob"):
            member = outside.new_member(group_id, name, topic, self.earliest)
            member.join(30_000)
            try:
                outside.eventually(lambda: member.membership.plannable == {tp: 5})  # noqa: B023
                seen.append(member.membership.owned[tp])
            finally:
                member.close()
        found = outside.cluster.committed(group_id, [tp])[tp]
        mark = ToolMark.parse(found.metadata)
        assert mark is not None
        assert found.next_offset == 5
        assert [(it.origin, it.reset) for it in seen] == [(Origin.FOREIGN, mark.reset)] * 2

    def test_F1_the_group_confirms_who_owns_a_partition(self, outside: Outside) -> None:
        """If the ledger has an epoch that is not lower, the owner requests this before it changes the ledger."""
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        answers: list[bool] = []
        requests: list[Callable[[Collection[TopicPartition]], bool]] = []

        def ledger(
            owned: Mapping[TopicPartition, Owned], is_owner: Callable[[Collection[TopicPartition]], bool]
        ) -> Mapping[TopicPartition, Owned]:
            if owned:
                answers.append(is_owner(owned.keys()))
                requests.append(is_owner)
            return owned

        alice = outside.new_member(group_id, "alice", topic, self.earliest, take_over=ledger)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: tp in alice.membership.plannable)
            assert answers == [True]
            assert alice.member_id != ""
            alice.close()
            bob.join(30_000)
            outside.eventually(lambda: tp in bob.membership.plannable)
            assert not requests[0]([tp])
        finally:
            alice.close()
            bob.close()

    def test_S6_if_the_ledger_cannot_move_no_position_changes(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)

        def away(*_: object) -> frozenset[TopicPartition]:
            raise SinkUnreachable("The database is away.")

        member = outside.new_member(group_id, "alice", topic, self.earliest, move_ledger=away)
        member.join(30_000)
        try:
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 0 and bool(member.membership.plannable))
            with pytest.raises(SinkUnreachable):
                member.move({tp: NewPosition(7, member.membership.owned[tp].epoch)}, detail="")
            assert member.membership.plannable == {tp: 0}
        finally:
            member.close()
        assert self.committed(outside, group_id, tp) == 0

    def test_an_exclusive_member_is_known_by_its_mark_until_another_kind_takes_over(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.earliest, exclusive=True)
        alice.join(30_000)
        try:
            outside.eventually(lambda: bool(alice.membership.plannable))
            alice.plan(1, [OffsetRange(tp, 0, 4)])
            outside.commit_as_a_sink(alice)
            alice.finish(1)
            # The metadata of a sink's commit has additional text after the mark.
            outside.eventually(lambda: self.is_held_exclusively(outside, group_id, tp))
        finally:
            alice.close()
        assert outside.cluster.committed(group_id, [tp])[tp].metadata.startswith(EXCLUSIVE_MARK)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        bob.join(30_000)
        try:
            outside.eventually(lambda: bob.membership.plannable == {tp: 4})
            outside.eventually(lambda: outside.cluster.committed(group_id, [tp])[tp].metadata.startswith(SHARED_MARK))
            assert not self.is_held_exclusively(outside, group_id, tp)
        finally:
            bob.close()

    def test_S4_an_exclusive_member_that_is_joined_fails_and_leaves_at_once(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(2), outside.new_group()
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            outside.produce(tp, 9, timestamp_ms=1_000)
        alice = outside.new_member(group_id, "alice", topic, self.earliest, exclusive=True)
        bob = outside.new_member(group_id, "bob", topic, self.earliest)
        alice.join(30_000)
        try:
            outside.eventually(lambda: len(alice.membership.plannable) == 2)
            alice.plan(1, [OffsetRange(tp, 0, 9) for tp in tps])
            bob.join(30_000)
            # Alice's batch is never finished.
            outside.eventually(lambda: bob.membership.plannable == dict.fromkeys(tps, 0))
            with pytest.raises(GroupRejected, match="membership=exclusive"):
                _ = alice.membership
        finally:
            alice.close()
            bob.close()

    def test_who_is_assigned_by_hand_commits_only_to_a_group_without_members(self, outside: Outside) -> None:
        topic, group_id = outside.create_topic(1), outside.new_group()
        tp = TopicPartition(topic, 0)
        outside.produce(tp, 9, timestamp_ms=1_000)
        lone = outside.new_member(group_id, "lone", topic, self.earliest, assign=(tp,))
        alice = outside.new_member(group_id, "alice", topic, self.earliest)
        lone.join(30_000)
        try:
            outside.eventually(lambda: lone.membership.plannable == {tp: 0})
            lone.plan(1, [OffsetRange(tp, 0, 4)])
            lone.finish(1)
            outside.eventually(lambda: self.committed(outside, group_id, tp) == 4)
            assert outside.cluster.describe(group_id).members == ()
            alice.join(30_000)
            outside.eventually(lambda: alice.membership.plannable == {tp: 4})
            lone.plan(2, [OffsetRange(tp, 4, 9)])
            lone.finish(2)
            outside.eventually(lambda: self.failure_of(lone) is FencedMember)
            assert self.committed(outside, group_id, tp) == 4
        finally:
            lone.close()
            alice.close()

    @staticmethod
    def without_epochs(member: Member) -> dict[TopicPartition, Owned]:
        """The owned partitions, without their ownership epochs, which depend on the group."""
        return {tp: replace(it, epoch=0) for tp, it in member.membership.owned.items()}

    @staticmethod
    def failure_of(member: Member) -> type[StreamGroupsError] | None:
        try:
            _ = member.membership
            return None
        except StreamGroupsError as e:
            return type(e)

    @staticmethod
    def is_held_exclusively(outside: Outside, group_id: str, tp: TopicPartition) -> bool:
        return is_held_exclusively(c.metadata for c in outside.cluster.committed(group_id, [tp]).values())

    @staticmethod
    def committed(outside: Outside, group_id: str, tp: TopicPartition) -> int | None:
        found = outside.cluster.committed(group_id, [tp]).get(tp)
        return found.next_offset if found else None
