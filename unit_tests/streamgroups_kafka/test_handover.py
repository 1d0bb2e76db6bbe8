"""G11, S3: what a member's own thread does before it gives partitions back; its Kafka consumer follows a script.

librdkafka calls the callbacks from inside ``poll``, and so does the script. The same with real members on a broker: ``MemberContract`` and
``integration_tests/test_members_share_a_topic.py``.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.fakes import FakeHistory
from streamgroups.groups.audit import uncommitted
from streamgroups.groups.history import Event, Kind
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.retry import comes_true
from streamgroups_kafka.membership import consumer_thread as member_thread
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
BATCH = [OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8)]


class ScriptedConsumer:
    """As much of ``confluent_kafka.Consumer`` as a member uses; the test decides what the group does."""

    def __init__(self) -> None:
        self.script: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.rejections: list[int] = []
        self.given_up: list[TopicPartition] = []
        #: Each turn of the owner thread begins with this question, those in which it waits for a batch included.
        self.turns = 0

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self._callbacks = callbacks
        self.call_back("on_assign", P0, P1)

    def call_back(self, callback: str, *partitions: TopicPartition) -> None:
        """The group assigns partitions, revokes them, or has assigned them to another member."""
        to_confluent = [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions]
        self.script.put(lambda: self._callbacks[callback](self, to_confluent))

    def poll(self, timeout_s: float) -> None:
        try:
            then = self.script.get(timeout=timeout_s)
        except queue.Empty:
            return
        then()

    def committed(self, to_confluent: list[confluent_kafka.TopicPartition], timeout: float) -> list[Any]:
        return to_confluent

    def commit(self, *, offsets: list[confluent_kafka.TopicPartition], asynchronous: bool) -> list[Any]:
        if self.rejections:
            raise KafkaException(KafkaError(self.rejections.pop(0)))
        return offsets

    def incremental_assign(self, _other: list[confluent_kafka.TopicPartition]) -> None: ...

    def incremental_unassign(self, to_confluent: list[confluent_kafka.TopicPartition]) -> None:
        self.given_up += [TopicPartition(p.topic, p.partition) for p in to_confluent]

    def pause(self, _other: list[confluent_kafka.TopicPartition]) -> None: ...

    def list_topics(self, _topic: str, timeout: float) -> None: ...

    def unsubscribe(self) -> None: ...

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        return []

    def consumer_group_metadata(self) -> None:
        self.turns += 1

    def close(self) -> None: ...


class Handover:
    """A member with a batch in flight, and its history."""

    def __init__(self, consumer: ScriptedConsumer, rebalance_timeout_ms: int = 300_000) -> None:
        self.consumer, self.history = consumer, FakeHistory(lambda: 0, "airline", "alice")
        settings = MemberSettings(
            "airline", "alice", {}, topics=lambda: ["flights"], rebalance_timeout_ms=rebalance_timeout_ms
        )
        starts = {P0: Owned(5, Origin.STARTING), P1: Owned(7, Origin.STARTING)}
        self.member = KafkaMember(settings, lambda missing: {tp: starts[tp] for tp in missing}, self.history)
        self.member.join(10_000)
        self.member.plan(1, BATCH)

    def did(self, *kinds: Kind) -> list[Event]:
        return [e for e in self.history.events if e.kind in kinds]

    def wait_for(self, kind: Kind) -> Event:
        assert comes_true(lambda: bool(self.did(kind)), 10, every_s=0.001), f"{kind} is never recorded"
        return self.did(kind)[0]

    def revoke(self, *partitions: TopicPartition) -> None:
        """The group revokes partitions; returns when the member waits for its batch, or has released them."""
        self.consumer.call_back("on_revoke", *partitions)
        self.wait_for(Kind.REVOKING)
        turns = self.consumer.turns
        assert comes_true(lambda: self.consumer.turns > turns + 1 or bool(self.consumer.given_up), 10, every_s=0.001)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> ScriptedConsumer:
    scripted = ScriptedConsumer()
    monkeypatch.setattr(member_thread, "Consumer", lambda _config: scripted)
    return scripted


@pytest.fixture
def handover(consumer: ScriptedConsumer) -> Iterator[Handover]:
    made = Handover(consumer)
    yield made
    made.member.close()


def test_G11_a_partition_is_released_when_its_batch_is_finished_and_committed(handover: Handover) -> None:
    handover.revoke(P0)
    assert handover.consumer.given_up == []
    handover.member.finish(1)
    released = handover.wait_for(Kind.RELEASED)
    assert (released.offsets, released.ranges) == ({P0: 9}, ())
    kinds = [Kind.PLANNED, Kind.REVOKING, Kind.FINISHED, Kind.COMMITTED, Kind.RELEASED]
    assert [e.kind for e in handover.did(*kinds) if e.kind is not Kind.COMMITTED or P0 in e.offsets][-5:] == kinds
    assert uncommitted(handover.history.events) == []


def test_G11_a_commit_that_the_rebalance_rejects_is_repeated_first(handover: Handover) -> None:
    handover.revoke(P0, P1)
    handover.consumer.rejections = [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION]
    handover.member.finish(1)
    assert handover.wait_for(Kind.RELEASED).offsets == {P0: 9, P1: 8}
    assert handover.consumer.rejections == []
    assert uncommitted(handover.history.events) == []


def test_G11_a_partition_without_a_batch_is_released_at_once(handover: Handover) -> None:
    handover.member.finish(1)
    assert comes_true(lambda: {P0: 9, P1: 8} in [e.offsets for e in handover.did(Kind.COMMITTED)], 10, every_s=0.001)
    handover.member.plan(2, [OffsetRange(P1, 8, 20)])
    handover.consumer.call_back("on_revoke", P0)
    assert handover.wait_for(Kind.RELEASED).offsets == {P0: 9}


def test_S3_what_is_lost_waits_for_no_batch_and_is_not_committed(handover: Handover) -> None:
    handover.consumer.call_back("on_lost", P0)
    assert [(r.topic_partition, r.next_offset) for r in handover.wait_for(Kind.LOST).ranges] == [(P0, 5)]
    handover.member.finish(1)
    assert comes_true(lambda: {P1: 8} in [e.offsets for e in handover.did(Kind.COMMITTED)], 10, every_s=0.001)
    assert not [e for e in handover.did(Kind.COMMITTED) if e.offsets.get(P0, 0) > 5]


def test_S8_a_handover_waits_no_longer_than_the_group_does(
    consumer: ScriptedConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    hung = Handover(consumer, rebalance_timeout_ms=1)
    consumer.call_back("on_revoke", P0)
    assert [r.topic_partition for r in hung.wait_for(Kind.RELEASED).ranges] == [P0]
    assert comes_true(lambda: consumer.given_up == [P0], 10, every_s=0.001)
    assert "another member will read these offsets again" in caplog.text
    hung.member.close()
