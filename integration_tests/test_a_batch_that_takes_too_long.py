"""S8: a query whose batch hangs loses its partitions; the broker rejects its late output and its late commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.errors import FencedMember
from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.batch_lease import LeaseLimits
from streamgroups.groups.history import Kind, no_history
from streamgroups.groups.membership import Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import read_histories
from streamgroups_testkit.reading import committed_offsets, end_offsets, read_committed
from streamgroups_testkit.waits import wait_until

PARTITIONS = 4
N = 40


@pytest.fixture
def members(bootstrap: str, group: str) -> Iterator[Callable[..., KafkaMember]]:
    """Creates members of one group: ``members("alice", topic, protocol, lease_timeout_ms=500)``."""
    with ExitStack() as open_:

        def make(name: str, topic: str, protocol: str, lease_timeout_ms: int | None = None) -> KafkaMember:
            config = ClientConfig.from_options({"bootstrap.servers": bootstrap, "group.protocol": protocol})
            settings = MemberSettings(
                group,
                name,
                config.for_member(group, client_id=name),
                topics=lambda: [topic],
                lease=LeaseLimits(300_000, lease_timeout_ms),
                has_others=lambda: True,
            )
            member = KafkaMember(settings, lambda missing: {tp: Owned(0) for tp in missing}, no_history)
            open_.callback(member.close)
            return member

        yield make


@EITHER_PROTOCOL
def test_S8_its_partitions_go_to_the_other_member_and_the_broker_rejects_its_late_transaction(
    bootstrap: str, new_topic: Callable[..., str], group: str, members: Callable[..., KafkaMember], protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    alice, bob = members("alice", topic, protocol, 500), members("bob", topic, protocol)
    alice.join(60_000)
    wait_until(lambda: len(alice.membership.plannable) == PARTITIONS, "alice owns everything")
    wait_until(lambda: alice.snapshot.group_metadata is not None, "alice is a member of the group")
    group_metadata = alice.snapshot.group_metadata
    alice.plan(1, [OffsetRange(tp, 0, 5) for tp in tps])
    bob.join(60_000)
    wait_until(lambda: len(bob.membership.plannable) == PARTITIONS, "bob owns everything")
    client = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    with closing(Transactions(client, f"late-{group}", timeout_ms=60_000)) as transactions:
        late = transactions.begin()
        # The behaviour of a sink that received the batch just before the member left.
        assert group_metadata is not None
        with pytest.raises(FencedMember):
            transactions.commit_offsets(late, {tps[0]: Committed(5)}, group_metadata)
        transactions.abort(late)
    alice.finish(1)
    wait_until(lambda: alice.membership.owned, "alice is a member again")
    wait_until(lambda: bob.membership.owned.keys().isdisjoint(alice.membership.owned), "they share")
    assert committed_offsets(bootstrap, group, topic) == {}, "no member has committed"


def _behind(gate: Path, value: bytes) -> bytes:
    """Returns the value after the gate is open."""
    while gate.exists():
        time.sleep(0.05)
    return value


@LONG
def test_S8_a_hung_spark_query_loses_its_partitions_and_its_late_output(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board = new_topic(PARTITIONS), new_topic(2)
    produce(bootstrap, topic, N, partitions=PARTITIONS)
    gate = tmp_path / "gate"
    gate.touch()

    def start(name: str, change: Callable[[DataFrame], DataFrame]) -> StreamingQuery:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "group.id": group,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.client.id": name,
            "historyDir": str(tmp_path / "history"),
            "leaseTimeout": "2s",
        }
        rows = spark.readStream.format("streamgroups").options(**options).load().select("key", "value")
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=board)
        return sg.exactly_once(change(rows), sink=sink, checkpoint=str(tmp_path / name)).start()

    def did(member: str, kind: Kind) -> bool:
        return any(e.member == member and e.kind is kind for e in read_histories(tmp_path))

    # Without type hints, which Spark would read as the type of the function.
    hang = F.udf(lambda value: _behind(gate, value), "binary")
    alice = start("alice", lambda rows: rows.withColumn("value", hang("value")))
    bob = None
    try:
        wait_until(lambda: did("alice", Kind.PLANNED), "alice hangs in her first batch")
        bob = start("bob", lambda rows: rows)
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(
            lambda: committed_offsets(bootstrap, group, topic) == ends, f"bob has read everything: {bob.exception()}"
        )
        assert did("alice", Kind.LEASE_EXPIRED)
        assert alice.isActive, "it hangs still"
        gate.unlink()
        with pytest.raises(StreamingQueryException, match=f"Group '{group}' revoked .* from 'alice'.*leaseTimeout"):
            alice.awaitTermination(60)
        assert bob.isActive
    finally:
        gate.unlink(missing_ok=True)
        alice.stop()
        if bob is not None:
            bob.stop()
    assert Counter(m.value.decode().rstrip(".") for m in read_committed(bootstrap, board)) == Counter(
        map(str, range(N))
    )
    assert committed_offsets(bootstrap, group, topic) == ends
    assert overlaps(ownership_epochs(read_histories(tmp_path))) == []
