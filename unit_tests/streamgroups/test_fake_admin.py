"""The administration in memory keeps the contract of its ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import GroupAdmin, Log, TopicAdmin
from unit_tests.admin_contract import AdminContract


class InMemory:
    """An :class:`~unit_tests.admin_contract.Outside` of fakes."""

    def __init__(self) -> None:
        self._cluster = FakeCluster(FakeClock())
        self._admin = FakeAdmin(self._cluster)
        self._names = 0

    @property
    def groups(self) -> GroupAdmin:
        return self._admin

    @property
    def topics(self) -> TopicAdmin:
        return self._admin

    @property
    def log(self) -> Log:
        return self._cluster

    def create_topic(self, partitions: int) -> str:
        self._cluster.create_topic("flights", partitions)
        return "flights"

    def produce(self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int) -> None:
        self._cluster.produce(topic_partition, count, timestamp_ms=timestamp_ms)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        self._cluster.delete_records(topic_partition, before_offset)

    def new_group(self) -> str:
        self._names += 1
        return f"airline-{self._names}"

    @contextmanager
    def member_of(self, group_id: str, topic: str) -> Iterator[None]:
        group = FakeGroup(self._cluster, group_id)
        member = FakeMember(
            group,
            "alice",
            topics=lambda: [topic],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
        )
        member.join(1_000)
        group.settle()
        yield
        member.close()


@pytest.fixture
def outside() -> InMemory:
    return InMemory()


class TestFakeAdmin(AdminContract):
    pass
