"""F4, X9: a process that was frozen and continues later changes no dead letter and no ledger of dead letters.

In each story alice is frozen, the group assigns her partition to bob, and alice continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import letters_group_of
from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.limits import LetterLimits
from streamgroups.dlq.written_letters import Ranges
from streamgroups.errors import BrokerUnreachable, FencedBatch, FencedMember, PositionsDiffer
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeLedger, FakeMember
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.fences import fences
from streamgroups.metadata_entries import write_entry
from streamgroups.partitions import OffsetRange
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_spark.messages.batch import BatchFacts
from streamgroups_spark.sinks import group_offsets
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.letters import before_output as letters_first
from streamgroups_spark.sinks.letters.before_output import finish, write_first
from streamgroups_spark.sinks.letters.of_batch import LetterOutput
from streamgroups_spark.sinks.sink_options import parse_sink
from unit_tests.streamgroups_spark.test_letters_first import P0, Table, letter
from unit_tests.transaction_broker import FakeTransactionBroker, connected, encoded

CONFIG = ClientConfig.from_options({"bootstrap.servers": "nowhere:1"})
DEAD = parse_sink({"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "checkpointLocation": "/tmp/none"})
FIRST, SECOND = OffsetRange(P0, 0, 10), OffsetRange(P0, 10, 20)


@dataclass
class Story:
    """A group with one partition, and letters in a table or a topic."""

    output: LetterOutput
    cluster: FakeCluster
    group: FakeGroup
    ids: Callable[[], list[str]]
    broker: FakeTransactionBroker | None = None
    members: dict[str, FakeMember] = field(default_factory=dict)
    batches: dict[str, BatchInfo] = field(default_factory=dict)

    def reads(self, name: str, r: OffsetRange, topic: TopicIdentity = UNKNOWN) -> None:
        """The member reads a range. The other one has left, or was removed."""
        member = self.members.get(name) or FakeMember(
            self.group,
            name,
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned.new(0, Origin.EARLIEST) for tp in missing},
        )
        if name not in self.members:
            member.join(0)
            self.members[name] = member
        owned = replace(member.membership.owned[P0], next_offset=r.next_offset, identity=topic)
        held = member.snapshot.group_metadata
        assert held is not None
        source = BatchFacts(
            {"of": name},
            "billing",
            name,
            (r,),
            (r,),
            (),
            ConsumerGroupMetadata("billing", held.generation, str(held.member_id)),
            MembershipMode.SHARED,
            True,
            owned={P0: owned},
            marks={P0: owned.mark(r.next_offset, exclusive=False, written=True).encode()},
        )
        self.batches[name] = BatchInfo((source,), 3)

    def freeze_alice(self) -> None:
        """The group removes alice, who does not notice it."""
        self.group.fence("alice")

    def confirm(self, name: str) -> BatchInfo:
        """The facts of the batch, as ``batch_info(confirmed=True)`` returns them."""
        metadata = self.batches[name].sources[0].group_metadata
        assert metadata is not None
        if not self.group.has_member(int(metadata.member_id)):
            raise FencedMember("The group has removed the member.", remedy="Restart the query.")
        return self.batches[name]

    def write(self, name: str, *offsets: int) -> frozenset[str]:
        letters = [letter(n) for n in offsets]
        return write_first(self.output, letters, self.batches[name], lambda _: name, lambda: self.confirm(name))

    def finish(self, name: str) -> None:
        finish(self.output, self.batches[name], lambda _: name, ["billing"], lambda: self.confirm(name))


@contextmanager
def in_a_table(cluster: FakeCluster, group: FakeGroup) -> Iterator[Story]:
    table = Table()
    yield Story(LetterOutput(table, LetterLimits(), ("billing",), False), cluster, group, lambda: table.ids)


@contextmanager
def in_a_topic(cluster: FakeCluster, group: FakeGroup) -> Iterator[Story]:
    broker = FakeTransactionBroker(group)

    def write(letters: Sequence[DeadLetter], client: Any, dead: Any, transaction: OpenTransaction) -> None:
        rows = [(it.origin.topic_partition, it.origin.offset) for it in letters if it.origin is not None]
        if rows:
            writer = TransactionWriter(CONFIG, transaction, retry_timeout_s=0)
            writer.write("out", [encoded(writer.producer, 0, rows)])

    class Store(AdminMetadataStore):
        def close(self) -> None:
            """Does nothing."""

    with (
        connected(broker),
        patch.object(letters_first, "write_to_topic", write),
        patch.object(letters_first, "KafkaMetadataStore", lambda _: Store(FakeAdmin(cluster))),
        patch.object(group_offsets, "_NEXT_GENERATION_S", 0),
    ):
        output = LetterOutput(DEAD, LetterLimits(), ("billing",), False)
        yield Story(output, cluster, group, lambda: [str(offset) for _, offset in broker.visible], broker)


@pytest.fixture(params=[in_a_table, in_a_topic])
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with request.param(cluster, FakeGroup(cluster, "billing")) as found:
        yield found


def test_F4_X9_letters_of_a_frozen_driver_are_not_written_again(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is frozen between the read of the ledger and the write of the letters."""
    story.reads("alice", FIRST)
    missing_letters = letters_first.missing_letters

    def frozen(letters: Collection[DeadLetter], ranges: Collection[OffsetRange], written: Ranges) -> list[DeadLetter]:
        monkeypatch.setattr(letters_first, "missing_letters", missing_letters)
        story.freeze_alice()
        story.reads("bob", FIRST)
        story.write("bob", 3)
        story.finish("bob")
        return missing_letters(letters, ranges, written)

    monkeypatch.setattr(letters_first, "missing_letters", frozen)
    with pytest.raises(FencedMember):
        story.write("alice", 3)
    assert story.ids() == ["3"]


@pytest.mark.parametrize("version", ['"v":2', '"v":"'])
def test_G17_X9_letters_are_not_written_again_if_their_entry_is_unreadable(version: str) -> None:
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_topic(cluster, FakeGroup(cluster, "billing")) as story:
        story.reads("alice", FIRST)
        group = letters_group_of("billing")
        entry = write_entry({"begin": 0, "epoch": 1, "topic": ""}).replace('"v":1', version)
        cluster.commit(group, {P0: 10}, entry)
        with pytest.raises(PositionsDiffer, match="Only these entries show which dead letters"):
            story.write("alice", 3)
        story.finish("alice")
        assert (story.ids(), cluster.all_committed(group)[P0].metadata) == ([], entry)
        cluster.forget(group)
        story.write("alice", 3)
        assert story.ids() == ["3"]


def test_F4_X9_a_frozen_driver_does_not_replace_the_range_of_the_next_owner(story: Story) -> None:
    """It is frozen between the commit of its output and the record of it."""
    story.reads("alice", FIRST)
    story.write("alice", 3)
    story.freeze_alice()
    story.reads("bob", SECOND)
    story.write("bob", 15)
    story.finish("alice")
    # Bob is killed before the commit of his output.
    story.group.kill("bob")
    story.reads("carol", SECOND)
    story.write("carol", 15)
    assert story.ids() == ["3", "15"]


def test_F4_X9_the_owner_of_a_group_that_begins_at_generation_1_again_writes(story: Story) -> None:
    for _ in range(3):
        story.group.generation += 1
    story.reads("alice", FIRST)
    story.write("alice", 3)
    story.finish("alice")
    story.freeze_alice()
    story.group.generation = 0
    story.reads("bob", SECOND)
    story.write("bob", 15)
    with pytest.raises(FencedMember):
        story.write("alice", 3)
    assert story.ids() == ["3", "15"]


def test_F4_X9_a_table_compares_the_ranges_in_the_transaction_that_writes() -> None:
    """The response to the first attempt is lost, so the same owner writes again."""
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_table(cluster, FakeGroup(cluster, "billing")) as story:
        story.reads("alice", FIRST)
        missing_letters = letters_first.missing_letters
        attempts = []

        def delayed(*given: Any) -> list[DeadLetter]:
            attempts.append(given)
            if len(attempts) == 1:
                story.write("alice", 3)
            return missing_letters(*given)

        with patch.object(letters_first, "missing_letters", delayed):
            story.write("alice", 3)
        assert story.ids() == ["3"]


def test_F4_X9_the_transaction_of_letters_commits_the_offsets_of_the_group_unchanged() -> None:
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_topic(cluster, FakeGroup(cluster, "billing")) as story:
        story.reads("alice", SECOND)
        mark = story.batches["alice"].sources[0].marks[P0]
        for change in (lambda: story.write("alice", 15), lambda: story.finish("alice")):
            cluster.forget("billing")
            change()
            committed = cluster.committed("billing", [P0])[P0]
            assert (committed.next_offset, committed.metadata) == (10, mark)
        entry = cluster.committed(letters_group_of("billing"), [P0])[P0]
        assert (entry.next_offset, entry.metadata) == (20, '{"v":1,"begin":20,"epoch":1,"topic":""}')


def test_F4_X9_a_letter_is_fenced_by_each_group_that_the_batch_reads() -> None:
    """The letter belongs to the group airline, whose member is alive. The group billing has removed alice."""
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_topic(cluster, FakeGroup(cluster, "billing")) as story:
        story.reads("alice", FIRST)
        (of_alice,) = story.batches["alice"].sources
        story.freeze_alice()
        story.reads("bob", FIRST)
        (of_bob,) = story.batches["bob"].sources
        batch = BatchInfo((replace(of_bob, group_id="airline"), of_alice), 3)
        letters = [replace(letter(3), group_id="airline", origin=None)]
        with pytest.raises(FencedMember):
            write_first(story.output, letters, batch, lambda _: "alice", lambda: batch)
        assert cluster.committed(letters_group_of("airline"), [P0]) == {}


def test_X9_letters_of_a_recreated_topic_are_written(story: Story) -> None:
    """Alice is killed before the commit of her output. The offsets of the new topic begin at 0 again."""
    story.reads("alice", FIRST, TopicIdentity("c1", "t1"))
    story.write("alice", 3, 5)
    for _ in range(2):
        story.reads("alice", FIRST, TopicIdentity("c1", "t2"))
        story.write("alice", 5)
    assert story.ids() == ["3", "5", "5"]


def test_F4_X9_letters_of_a_batch_whose_position_was_changed_are_not_written() -> None:
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_topic(cluster, FakeGroup(cluster, "billing")) as story:
        story.reads("alice", FIRST)
        (source,) = story.batches["alice"].sources
        story.batches["alice"] = BatchInfo((replace(source, marks={}),), 3)
        with pytest.raises(FencedBatch, match="were changed while a batch read flights-0"):
            story.write("alice", 3)
        assert story.ids() == []


def test_F1_X9_letters_in_the_transaction_of_the_output_are_fenced_with_it() -> None:
    ledger: FakeLedger[list[str]] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance({P0: 0, **fences({P0: Owned(0, epoch=8)})})
    with pytest.raises(FencedBatch, match="was taken over by another owner"):
        commit_batch(ledger, {"billing": [FIRST]}, ["output", "letter"], epochs={"billing": {P0: 7}})
    assert ledger.written == []


def test_F4_X9_the_error_of_letters_is_not_replaced_by_that_of_their_abort(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of the abort can be retried, and the first one cannot."""
    monkeypatch.setattr(letters_first, "_RETRY_TIMEOUT_S", 0)
    monkeypatch.setattr(letters_first, "Transactions", partial(Transactions, retry_timeout_s=0))
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights")
    with in_a_topic(cluster, FakeGroup(cluster, "billing")) as story:
        broker = story.broker
        assert broker is not None

        def does_not_answer() -> None:
            broker.before["EndTxn"] = does_not_answer
            raise BrokerUnreachable("No answer.", remedy="Try again.")

        broker.before["EndTxn"] = does_not_answer
        story.reads("alice", FIRST)
        story.freeze_alice()
        with pytest.raises(FencedMember):
            story.write("alice", 3)
    assert "stays open until the next one begins" in caplog.text
