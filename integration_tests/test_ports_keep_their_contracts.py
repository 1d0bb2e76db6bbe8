"""On a real broker the ports do the same as in memory: the contracts of ``unit_tests.port_contracts``, without
Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from component_tests.waits import wait_until
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, Groups, Log, Member, MetadataStore, Records
from streamgroups_kafka.admin.admin_metadata_store import AdminMetadataStore
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.admin.session import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.properties_file import command_config
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.settings import MemberSettings
from streamgroups_kafka.transactions.coordinator import Transactions
from unit_tests.port_contracts import LogContract, MemberContract, MetadataStoreContract, RecordsContract, TakeOver

#: Raised inside librdkafka's binding, which has no other interface to read subscriptions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


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


class Real:
    """A real broker for the contracts.

    Args:
        bootstrap: the bootstrap servers.
        admin: the admin client for operations without a port.
        new_topic: creates a topic.
        session: the admin session for the metadata store of the command line.
        protocol: the protocol of the groups that members join.
    """

    def __init__(
        self,
        bootstrap: str,
        admin: AdminClient,
        new_topic: Callable[..., str],
        session: AdminSession,
        protocol: str = "classic",
    ) -> None:
        self._bootstrap, self._admin, self._new_topic, self._protocol = bootstrap, admin, new_topic, protocol
        session_timeout = {"session.timeout.ms": "6000"} if protocol == "classic" else {}
        options = {"bootstrap.servers": bootstrap, "group.protocol": protocol, **session_timeout}
        self._config = ClientConfig.from_options(options)
        self._config_of_committed = ClientConfig.from_options({**options, "isolation.level": "read_committed"})
        self._cluster = KafkaCluster(self._config)
        self._cluster_of_committed = KafkaCluster(self._config_of_committed, read_committed=True)
        self._threads = ThreadPoolExecutor(2)
        self._metadata_stores: list[MetadataStore] = [
            KafkaMetadataStore(self._config),
            AdminMetadataStore(KafkaGroupAdmin(session)),
        ]

    def close(self) -> None:
        for metadata_store in self._metadata_stores:
            metadata_store.close()
        self._threads.shutdown()

    def swap_metadata_stores(self) -> None:
        self._metadata_stores.reverse()

    @property
    def log(self) -> Log:
        return self._cluster

    @property
    def log_of_committed(self) -> Log:
        return self._cluster_of_committed

    @property
    def groups(self) -> Groups:
        return self._cluster

    @property
    def metadata_store(self) -> MetadataStore:
        return self._metadata_stores[0]

    @property
    def other(self) -> MetadataStore:
        return self._metadata_stores[1]

    def create_topic(self, partitions: int) -> str:
        # The records of the tests are from 1970, so the topic has no retention limit.
        return self._new_topic(partitions, retention_ms="-1")

    def produce(
        self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int, value: bytes | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
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
        cluster = self._cluster_of_committed if read_committed else self._cluster
        return RecordReader(config, group_id="unused", client_id=None, offsets=cluster)

    def new_group(self) -> str:
        return f"g-{uuid.uuid4().hex[:8]}"

    @contextmanager
    def member_of(self, group_id: str, topic: str) -> Iterator[None]:
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group_id,
                "group.protocol": self._protocol,
                "enable.auto.commit": "false",
            }
        )

        def joined() -> bool:
            member.poll(0.1)
            return bool(member.assignment())

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
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        *,
        exclusive: bool = False,
        assign: tuple[TopicPartition, ...] | None = None,
        take_over: TakeOver = dict,
    ) -> Member:
        settings = MemberSettings(
            group_id=group_id,
            name=name,
            consumer=self._config.for_member(group_id, client_id=name),
            topics=lambda: [topic],
            assign=assign,
            exclusive=exclusive,
            is_surplus=lambda: self._cluster.describe(group_id).has_nothing_for(name),
            take_over=take_over,
        )
        return KafkaMember(settings, first_positions)

    def commit_as_a_sink(self, member: Member) -> None:
        assert isinstance(member, KafkaMember)
        # The member returns its consumer group metadata when none of its commits is in progress.
        wait_until(lambda: member.snapshot_to_commit().group_metadata, "the sink has a claim", 30)
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


@pytest.fixture(scope="module")
def session(bootstrap: str) -> Iterator[AdminSession]:
    opened = AdminSession(command_config(bootstrap), timeout_s=30)
    yield opened
    opened.close()


@pytest.fixture
def outside(bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], session: AdminSession) -> Iterator[Real]:
    with closing(Real(bootstrap, admin, new_topic, session)) as real:
        yield real


@pytest.fixture
def outside_metadata_store(outside: Real) -> Real:
    return outside


class TestKafkaCluster(LogContract):
    pass


class TestRecordReader(RecordsContract):
    pass


class TestKafkaMetadataStore(MetadataStoreContract):
    pass


class TestAdminMetadataStore(MetadataStoreContract):
    """The metadata store of the command line; the members read its entries with theirs."""

    @pytest.fixture
    def outside_metadata_store(self, outside: Real) -> Real:
        outside.swap_metadata_stores()
        return outside


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
class TestKafkaMember(MemberContract):
    @pytest.fixture
    def outside(
        self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], session: AdminSession, protocol: str
    ) -> Iterator[Real]:
        with closing(Real(bootstrap, admin, new_topic, session, protocol)) as real:
            yield real
