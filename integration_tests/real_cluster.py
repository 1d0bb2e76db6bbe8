"""A real broker for the contracts of the ports: an ``Outside`` of ``unit_tests.port_contracts``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.exclusive_membership import deleted_partitions
from streamgroups.groups.membership import MoveLedger, TakeOver
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, FirstPositions, Member, MetadataStore, Records
from streamgroups.query.missing_partitions import missing_partitions
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.clock import SteadyClock
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.properties_file import command_config
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_testkit.waits import wait_until


class OpenTransaction:
    """A :class:`~unit_tests.port_contracts.Transaction` of a real producer."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"x-{uuid.uuid4().hex[:8]}"})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()

    def produce(self, topic_partition: TopicPartition, count: int) -> None:
        for _ in range(count):
            self._producer.produce(topic_partition.topic, b"", partition=topic_partition.partition, timestamp=2_000)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


class RealCluster:
    """A real broker for the contracts.

    Args:
        bootstrap: the bootstrap servers.
        admin: the admin client for operations without a port.
        new_topic: creates a topic.
        protocol: the protocol of the groups that members join.
    """

    def __init__(
        self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], protocol: str = "classic"
    ) -> None:
        self._bootstrap, self._admin, self._new_topic, self.protocol = bootstrap, admin, new_topic, protocol
        session_timeout = {"session.timeout.ms": "6000"} if protocol == "classic" else {}
        options = {"bootstrap.servers": bootstrap, "group.protocol": protocol, **session_timeout}
        self._config = ClientConfig.from_options(options)
        self._config_of_committed = ClientConfig.from_options({**options, "isolation.level": "read_committed"})
        self.cluster = KafkaCluster(self._config)
        self.cluster_of_committed = KafkaCluster(self._config_of_committed, read_committed=True)
        self.session = AdminSession(command_config(bootstrap), timeout_s=30)
        self.groups = KafkaGroupAdmin(self.session)
        self.topics = KafkaTopicAdmin(self.session, command_config(bootstrap))
        self.metadata_store: MetadataStore = KafkaMetadataStore(self._config)
        self.other_metadata_store: MetadataStore = AdminMetadataStore(self.groups)
        self._threads = ThreadPoolExecutor(2)

    def close(self) -> None:
        self.metadata_store.close()
        self.other_metadata_store.close()
        self.session.close()
        self._threads.shutdown()

    def swap_metadata_stores(self) -> None:
        self.metadata_store, self.other_metadata_store = self.other_metadata_store, self.metadata_store

    def create_topic(self, partitions: int) -> str:
        # The records of the tests are from 1970, so the topic has no retention limit.
        return self._new_topic(partitions, retention_ms="-1")

    def produce(
        self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int, value: bytes | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "enable.idempotence": True})
        for _ in range(count):
            producer.produce(topic_partition.topic, value, partition=topic_partition.partition, timestamp=timestamp_ms)
        assert producer.flush(30) == 0

    def begin_transaction(self) -> OpenTransaction:
        return OpenTransaction(self._bootstrap)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        tp = KafkaPartition(topic_partition.topic, topic_partition.partition, before_offset)
        self._admin.delete_records([tp])[tp].result(30)

    def new_records(self, *, read_committed: bool = False) -> Records:
        config = self._config_of_committed if read_committed else self._config
        cluster = self.cluster_of_committed if read_committed else self.cluster
        return RecordReader(
            config, group_id="unused", client_id=None, offsets=cluster, ids=TopicIds(cluster, SteadyClock())
        )

    def new_group(self) -> str:
        return f"g-{uuid.uuid4().hex[:8]}"

    @contextmanager
    def member_of(self, group_id: str, topic: str) -> Iterator[None]:
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group_id,
                "client.id": "alice",
                "group.protocol": self.protocol,
                "enable.auto.commit": "false",
            }
        )

        def joined() -> bool:
            member.poll(0.1)
            group = self.groups.describe_groups([group_id])[group_id]
            return group.state == "Stable" and any(m.partitions for m in group.members)

        member.subscribe([topic])
        try:
            wait_until(joined, "the member has joined")
            yield
        finally:
            member.close()

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
    ) -> Member:
        settings = MemberSettings(
            group_id=group_id,
            name=name,
            consumer=self._config.for_member(group_id, client_id=name),
            topics=lambda: [topic],
            assign=assign,
            exclusive=exclusive,
            is_standby=lambda: self.cluster.describe(group_id).has_nothing_for(name),
            has_others=lambda: len(self.cluster.describe(group_id).members) > 1,
            deleted=lambda owned: deleted_partitions(
                owned,
                missing_partitions(self.cluster, owned),
                self.cluster.identities({tp.topic for tp in owned}),
            ),
            is_owner=lambda member_id, partitions: self.cluster.describe(group_id).owns(member_id, partitions),
            take_over=take_over,
            move_ledger=move_ledger,
        )
        return KafkaMember(settings, first_positions)

    def commit_as_a_sink(self, member: Member) -> None:
        assert isinstance(member, KafkaMember)
        # The member returns its consumer group metadata when none of its commits is in progress.
        wait_until(lambda: member.snapshot_to_commit().group_metadata, "the sink has group metadata")
        snapshot = member.snapshot_to_commit()
        assert snapshot.in_flight is not None
        assert snapshot.group_metadata is not None
        mark = CommitMark(self._is_exclusive(member), written=True).encode()
        offsets = {r.topic_partition: Committed(r.end_offset, f"{mark}\0") for r in snapshot.in_flight.ranges}
        with closing(Transactions(self._config, f"x-{uuid.uuid4().hex[:8]}")) as transactions:
            transaction = transactions.begin()
            transactions.commit_offsets(transaction, offsets, snapshot.group_metadata)
            transactions.commit(transaction)
        member.written(snapshot.in_flight.number)

    @staticmethod
    def _is_exclusive(member: KafkaMember) -> bool:
        return member._settings.exclusive

    def in_background(self, job: Callable[[], None]) -> Future[None]:
        return self._threads.submit(job)

    def eventually(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, "it comes true", 30, interval_s=0.05)
