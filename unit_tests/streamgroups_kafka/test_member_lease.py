"""S8: a member whose batch takes too long leaves a real group, which librdkafka's mock cluster hosts; its partitions go to the other one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from streamgroups.errors import BrokerUnreachable, FencedMember
from streamgroups.fakes import FakeHistory
from streamgroups.groups.batch_lease import LeaseLimits
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import InFlight, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.retry import comes_true
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.batch_watch import BatchWatch
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState, Turn

PARTITIONS = 4
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
LEASE = LeaseLimits(300_000, lease_timeout_ms=10_000)
SHORT = LeaseLimits(300_000, lease_timeout_ms=500)
NO_LEASE = LeaseLimits(300_000)


def wait_for(condition: Callable[[], object], what: str) -> None:
    assert comes_true(condition, 60, every_s=0.02), what


class World:
    """A cluster in this process, and the members of one group."""

    def __init__(self) -> None:
        self._cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "0"})
        (broker,) = self._cluster.list_topics(timeout=10).brokers.values()
        # The mock creates a topic of four partitions on request.
        wait_for(
            lambda: len(self._cluster.list_topics("flights", timeout=10).topics["flights"].partitions) == 4, "topic"
        )
        self._config = ClientConfig.from_options({"bootstrap.servers": f"{broker.host}:{broker.port}"})
        self.members: list[KafkaMember] = []
        self.histories: dict[str, FakeHistory] = {}

    def member(self, name: str, lease: LeaseLimits) -> KafkaMember:
        self.histories[name] = FakeHistory(lambda: time.time_ns() // 1_000_000, "airline", name)
        # The mock cluster ends a rebalance when a session would be over; its first one takes three seconds.
        quick = {"session.timeout.ms": "3500", "heartbeat.interval.ms": "300"}
        settings = MemberSettings(
            "airline",
            name,
            {**self._config.for_member("airline", client_id=name), **quick},
            topics=lambda: ["flights"],
            lease=lease,
            has_others=lambda: True,
        )
        member = KafkaMember(settings, lambda missing: {tp: Owned(0) for tp in missing}, self.histories[name])
        self.members.append(member)
        return member

    def kinds(self, name: str) -> list[Kind]:
        return [event.kind for event in self.histories[name].events]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for member in world.members:
        member.close()


def test_S8_its_partitions_go_to_the_other_member_and_it_joins_again_when_its_batch_ends(world: World) -> None:
    alice, bob = world.member("alice", SHORT), world.member("bob", NO_LEASE)
    joining = [threading.Thread(target=m.join, args=(60_000,)) for m in (alice, bob)]
    for thread in joining:
        thread.start()
    for thread in joining:
        thread.join()
    wait_for(lambda: len(alice.membership.owned) == len(bob.membership.owned) == 2, "each has its half")
    hers = sorted(alice.membership.owned)
    alice.plan(1, [OffsetRange(tp, 0, 5) for tp in hers])
    wait_for(lambda: len(bob.membership.owned) == PARTITIONS, "bob owns everything")
    snapshot = alice.snapshot_to_commit()
    assert snapshot.group_metadata is None, "no sink may commit the batch"
    assert snapshot.in_flight is not None
    assert snapshot.in_flight.ranges == (), "none of it is hers any more"
    assert alice.membership.plannable == {}
    alice.finish(1)
    wait_for(lambda: alice.membership.owned, "alice is a member again")
    assert {o.next_offset for o in alice.membership.owned.values()} == {0}, "the late batch was not committed"
    assert Kind.COMMITTED not in world.kinds("alice")
    (expired,) = [e for e in world.histories["alice"].events if e.kind is Kind.LEASE_EXPIRED]
    assert (sorted(r.topic_partition for r in expired.ranges), expired.batch) == (hers, 1)
    assert Kind.RELEASED not in world.kinds("alice")


class Watched:
    """A state on a clock that the test turns, and what the member's thread does about its batch; no group."""

    def __init__(self, lease: LeaseLimits | None, *, has_others: bool = True) -> None:
        self.now_s, self.is_done, self.has_others = 100.0, False, has_others
        self.requested: list[str] = []
        settings = MemberSettings(
            "airline", "alice", {}, topics=list, lease=lease, has_others=self._others, is_done=self._done
        )
        self.history = FakeHistory(lambda: 0, "airline", "alice")
        self.state = MemberState(settings, self.history, lambda: self.now_s)
        self.state.assign({P0: Owned(5), P1: Owned(7)})
        self.state.group_metadata = ConsumerGroupMetadata("airline", 7, "alice-1")
        self.state.plan(1, [OffsetRange(P0, 5, 9)])
        self.watch = BatchWatch(settings, self.state)

    def _others(self) -> bool:
        self.requested.append("others")
        if self.now_s > 10_000:
            raise BrokerUnreachable("away")
        return self.has_others

    def _done(self, number: int) -> bool:
        self.requested.append(f"done {number}")
        return self.is_done

    def passes(self, s: float) -> Turn:
        """The owner thread takes a turn every two seconds: it is never silent."""
        for _ in range(round(s / 2)):
            self.now_s += 2
            self.state.await_turn(0)
            self.watch.judge()
        return self.state.await_turn(0)


def test_S8_what_has_left_commits_nothing_and_no_sink_writes_it() -> None:
    it = Watched(LEASE)
    assert it.state.snapshot_to_commit().group_metadata is not None
    it.passes(20)
    assert it.state.is_away
    snapshot = it.state.snapshot_to_commit()
    assert (snapshot.group_metadata, snapshot.in_flight) == (None, InFlight(1, ()))
    it.state.finish(1)
    assert (it.state.due(), it.state.membership.plannable, it.state.is_away) == ({}, {}, False)
    assert [e.kind for e in it.history.events][-2:] == [Kind.LEASE_EXPIRED, Kind.FINISHED]


@pytest.mark.parametrize(("has_others", "is_done"), [(False, False), (True, True)])
def test_S8_alone_or_done_it_stays_whatever_the_batch_takes(has_others: bool, is_done: bool) -> None:
    it = Watched(LEASE, has_others=has_others)
    it.is_done = is_done
    it.passes(100)
    assert it.state.membership.plannable == {P0: 5, P1: 7}
    assert it.state.batch_ms == 100_000
    it.state.finish(1)
    assert (it.state.due(), it.state.batch_ms) == ({P0: 9}, None)
    assert ("done 1" in it.requested) == has_others, "a commit log may be far away: it is read only where it matters"


def test_S8_without_a_broker_no_member_can_take_over() -> None:
    it = Watched(LEASE)
    it.now_s = 20_000.0
    it.passes(20)
    assert it.requested
    assert not it.state.is_away


def test_S8_an_exclusive_query_leaves_and_fails() -> None:
    it = Watched(LeaseLimits(300_000, 10_000, is_exclusive=True), has_others=False)
    assert it.passes(20) is Turn.LEAVE_AT_ONCE
    with pytest.raises(FencedMember, match=r"Batch 1 of group 'airline' .* longer than leaseTimeout \(10 s\)"):
        _ = it.state.snapshot_to_commit()
    assert Kind.LEASE_EXPIRED in [e.kind for e in it.history.events]


@pytest.mark.parametrize(
    ("lease", "until"),
    [
        (LEASE, "after 10 s (leaseTimeout) the query loses all partitions"),
        (NO_LEASE, "keeps its other partitions until the batch ends"),
    ],
)
def test_a_batch_that_takes_long_is_warned_of_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture, lease: LeaseLimits, until: str
) -> None:
    it = Watched(LeaseLimits(15_000, lease.lease_timeout_ms))
    with caplog.at_level(logging.WARNING, "streamgroups_kafka.membership.batch_watch"):
        it.passes(4)
        assert not caplog.records
        it.passes(4)
    (result,) = [record.getMessage() for record in caplog.records]
    assert result.startswith("alice: batch 1 of group 'airline' has been in flight for 6 s. A rebalance waits 12 s")
    for option in ("maxOffsetsPerTrigger", "kafka.max.poll.interval.ms", until):
        assert option in result


def test_without_limits_nothing_is_judged() -> None:
    """Group cursors give messages out for as long as the lease of their instance lasts."""
    it = Watched(None)
    it.passes(100)
    assert (it.requested, it.state.batch_ms) == ([], None)
