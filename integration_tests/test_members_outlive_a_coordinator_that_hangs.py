"""G11: a member keeps its partitions, and a new member joins, although the coordinator of their group does not respond.
G2, G13: metadata entries of a group, and cursors, do not depend on it either.

The broker is paused (SIGSTOP), so its connections stay open, as those of a host that hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.three_brokers import three_brokers
from integration_tests.tiers import EITHER_PROTOCOL
from streamgroups.errors import BrokerUnreachable, ReadTimedOut
from streamgroups.groups.batch_lease import LeaseLimits
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

pytestmark = pytest.mark.long

_T = TypeVar("_T")

TOPIC, GROUP = "flights", "board"
PARTITIONS = 4
TPS = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
#: The time until the controller replaces a broker that does not respond (6 s here), and until a member detects it. It is shorter than
#: the session timeout, after which a member loses its partitions.
FAILOVER_S = 40
#: Two sessions of 10 s.
SHORT_SESSIONS_S = 20


class Members:
    """Members of one group, with their events."""

    def __init__(self, bootstrap: str, protocol: str, closed: ExitStack, session_ms: int | None = None) -> None:
        session = {} if session_ms is None else {"session.timeout.ms": str(session_ms)}
        options = {"bootstrap.servers": bootstrap, "group.protocol": protocol, **session}
        self._config = ClientConfig.from_options(options)
        self._closed = closed
        self.events: list[MemberEvent] = []

    def new(self, name: str) -> KafkaMember:
        settings = MemberSettings(
            GROUP,
            name,
            self._config.for_member(GROUP, client_id=name),
            topics=lambda: [TOPIC],
            lease=LeaseLimits(300_000, None),
            has_others=lambda: True,
        )
        member = KafkaMember(settings, lambda missing: {tp: Owned(0) for tp in missing}, self.events.append)
        self._closed.callback(member.close)
        return member


@pytest.fixture
def cluster() -> Iterator[EmbeddedKafka]:
    with three_brokers(TOPIC, partitions=PARTITIONS) as kafka:
        produce(kafka.bootstrap_servers, TOPIC, 40, partitions=PARTITIONS)
        yield kafka


@pytest.fixture
def members(cluster: EmbeddedKafka, protocol: str) -> Iterator[Members]:
    with ExitStack() as closed:
        yield Members(cluster.bootstrap_servers, protocol, closed)


def coordinator(cluster: EmbeddedKafka) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    described = admin.describe_consumer_groups([GROUP], request_timeout=30)[GROUP].result(30)
    return int(described.coordinator.id)


def pause_coordinator(cluster: EmbeddedKafka) -> Callable[[], None]:
    node = coordinator(cluster)
    cluster.pause_node(node)
    return lambda: cluster.resume_node(node)


@EITHER_PROTOCOL
def test_a_member_keeps_its_partitions(cluster: EmbeddedKafka, members: Members) -> None:
    alice = members.new("alice")
    alice.join(60_000)
    wait_until(lambda: len(alice.membership.plannable) == PARTITIONS, "alice owns everything")
    resume = pause_coordinator(cluster)
    try:
        alice.plan(1, [OffsetRange(tp, 0, 5) for tp in TPS])
        alice.finish(1)
        ends = dict.fromkeys(range(PARTITIONS), 5)
        wait_until(
            lambda: committed_offsets(cluster.bootstrap_servers, GROUP, TOPIC) == ends,
            "the offsets are committed",
            timeout_s=FAILOVER_S,
        )
    finally:
        resume()
    assert not lost(members)
    assert len(alice.membership.owned) == PARTITIONS


@EITHER_PROTOCOL
def test_a_new_member_joins(cluster: EmbeddedKafka, members: Members) -> None:
    alice, bob = members.new("alice"), members.new("bob")
    alice.join(60_000)
    wait_until(lambda: len(alice.membership.plannable) == PARTITIONS, "alice owns everything")
    # The batch of alice delays the rebalance. Bob waits for the response to his request to join.
    alice.plan(1, [OffsetRange(tp, 0, 5) for tp in TPS])
    joining = threading.Thread(target=bob.join, args=(60_000,))
    joining.start()
    wait_until(lambda: Kind.REVOKING in {e.kind for e in members.events}, "the rebalance has begun")
    resume = pause_coordinator(cluster)
    try:
        alice.finish(1)
        wait_until(lambda: len(bob.membership.plannable) == PARTITIONS // 2, "they share", timeout_s=FAILOVER_S)
    finally:
        resume()
        joining.join()
    assert len(alice.membership.plannable) == PARTITIONS // 2


def test_a_member_with_a_short_session_keeps_its_partitions_while_another_broker_hangs(cluster: EmbeddedKafka) -> None:
    """Its heartbeats must not wait for this broker."""
    with ExitStack() as closed:
        members = Members(cluster.bootstrap_servers, "classic", closed, session_ms=10_000)
        alice = members.new("alice")
        alice.join(60_000)
        wait_until(lambda: len(alice.membership.plannable) == PARTITIONS, "alice owns everything")
        for node in {*cluster.node_ids} - {coordinator(cluster)}:
            cluster.pause_node(node)
            ends_s = time.monotonic() + SHORT_SESSIONS_S
            try:
                wait_until(lambda end_s=ends_s: time.monotonic() > end_s or lost(members), "two sessions")  # type: ignore[misc]
            finally:
                cluster.resume_node(node)
        assert not lost(members)
        assert len(alice.membership.owned) == PARTITIONS


def lost(members: Members) -> bool:
    return any(e.kind is Kind.LOST for e in members.events)


def test_an_entry_of_a_group_is_written(cluster: EmbeddedKafka) -> None:
    config = ClientConfig.from_options({"bootstrap.servers": cluster.bootstrap_servers})
    with closing(KafkaMetadataStore(config)) as store:
        store.write(GROUP, {TPS[0]: Committed(1)})
        resume = pause_coordinator(cluster)
        try:
            responses(lambda: store.write(GROUP, {TPS[0]: Committed(2)}))
        finally:
            resume()
        assert store.read(GROUP, TPS[:1]) == {TPS[0]: Committed(2)}


def test_a_cursor_reads_from_the_next_leader(cluster: EmbeddedKafka) -> None:
    config = ClientConfig.from_options({"bootstrap.servers": cluster.bootstrap_servers})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    of_topic = KafkaCluster(config)
    ids = TopicIds(of_topic, SteadyClock())
    with closing(RecordReader(config, group_id="unused", client_id=None, offsets=of_topic, ids=ids)) as reader:
        first = reader.read({TPS[0]: 0}, 100)
        cluster.pause_node(leader := admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader)
        try:
            produce(cluster.bootstrap_servers, TOPIC, 40, partitions=PARTITIONS)
            second = responses(lambda: reader.read({TPS[0]: first.reached[TPS[0]]}, 100))
        finally:
            cluster.resume_node(leader)
    assert [m.offset for m in (*first.messages, *second.messages)] == list(range(20))


def responses(request: Callable[[], _T]) -> _T:
    """Sends a request until its response arrives, as a user does after an error with the remedy to try again."""
    found: list[_T] = []

    def arrives() -> bool:
        with suppress(BrokerUnreachable, ReadTimedOut):
            found.append(request())
        return bool(found)

    wait_until(arrives, "a response", timeout_s=FAILOVER_S)
    return found[0]
