"""The topics of a cluster and their offsets, with one request per broker for any number of partitions.

Implements :class:`streamgroups.ports.TopicAdmin`; created by ``streamgroups_cli``. A partition without a leader, or a
deleted one, is a result and not an error: operators need this tool most when a cluster has failures. Source: KIP-79,
KIP-734 (ListOffsets), KIP-516 (topic ids).
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import MetadataRequest

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.lag import FirstUnread, PartitionError, UnreadRecords
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import (
    Bounds,
    OffsetRange,
    PartitionDescription,
    StampedOffset,
    TopicDescription,
    TopicPartition,
    by_topic,
)
from streamgroups_kafka.admin.session import AdminSession
from streamgroups_kafka.client.acls import DESCRIBE
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import LEADER_MOVES, Code

_NO_LEADER = -1
_NO_RECORD = -1
_NO_TOPIC = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED)
#: The error codes of ListOffsets while a partition has no leader or a new one. Its end offset is unknown.
_LEADERLESS = LEADER_MOVES | {Code.REPLICA_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE}


class KafkaTopicAdmin:
    """See :class:`streamgroups.ports.TopicAdmin`.

    Args:
        session: the connection to the cluster. The caller closes it.
        config: the configuration for reading records. Its ``isolation.level`` defines the end of a partition.
    """

    def __init__(self, session: AdminSession, config: ClientConfig) -> None:
        self._session = session
        self._config = config
        #: The leaders of the partitions of the last call of ``bounds``.
        self._known_leaders: dict[TopicPartition, int | None] = {}
        self._isolation = 1 if config.isolation_level == "read_committed" else 0

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """See :meth:`streamgroups.ports.TopicAdmin.create_topic`."""
        from streamgroups_kafka.admin.topic_changes import create_topic

        return create_topic(self._config, name, partitions, replication_factor=replication_factor, settings=settings)

    def delete_topics(self, names: Collection[str]) -> dict[str, StreamGroupsError]:
        """See :meth:`streamgroups.ports.TopicAdmin.delete_topics`."""
        from streamgroups_kafka.admin.topic_changes import delete_topics

        return delete_topics(self._config, names)

    def describe_topics(self, names: Collection[str] | None = None) -> dict[str, TopicDescription]:
        """See :meth:`streamgroups.ports.TopicAdmin.describe_topics`."""
        if names is not None and not names:
            return {}
        return self._session.run("The topics could not be described", self._topics, names)

    async def _topics(self, names: Collection[str] | None) -> dict[str, TopicDescription]:
        answer = await self._metadata(names)
        found = {}
        for t in answer.topics:
            if t.error_code in _NO_TOPIC:
                continue
            self._session.check(
                t.error_code, f"Topic '{t.name}' could not be described", topic=t.name, operations=DESCRIBE
            )
            partitions = (
                PartitionDescription(
                    p.partition_index,
                    None if p.leader_id == _NO_LEADER else p.leader_id,
                    tuple(p.replica_nodes),
                    tuple(p.isr_nodes),
                )
                for p in t.partitions
            )
            ordered = tuple(sorted(partitions, key=lambda p: p.partition))
            found[t.name] = TopicDescription(t.name, str(t.topic_id), t.is_internal, ordered)
        return dict(sorted(found.items()))

    async def _metadata(self, names: Collection[str] | None) -> Any:
        asked = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)]
        return await self._session.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.TopicAdmin.identities`."""
        return self._session.run("The ids of topics could not be read", self._identities, topics) if topics else {}

    async def _identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        answer = await self._metadata(topics)
        return {
            t.name: TopicIdentity(answer.cluster_id or None, _encoded(t.topic_id))
            for t in answer.topics
            if t.error_code not in _NO_TOPIC
        }

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        """See :meth:`streamgroups.ports.TopicAdmin.bounds`."""
        return self._session.run("The offsets could not be listed", self._bounds, partitions) if partitions else {}

    async def _bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        leaders = self._known_leaders = await self._leaders({tp.topic for tp in partitions})
        by_leader, found = _split(partitions, leaders)
        beginnings = await self._list(by_leader, lambda _: OffsetSpec.EARLIEST)
        ends = await self._list(by_leader, lambda _: OffsetSpec.LATEST)
        for tp in beginnings.keys() & ends.keys():
            beginning, end = beginnings[tp], ends[tp]
            if isinstance(beginning, PartitionError) or isinstance(end, PartitionError):
                found[tp] = beginning if isinstance(beginning, PartitionError) else end  # type: ignore[assignment]
            else:
                found[tp] = Bounds(beginning.offset, max(beginning.offset, end.offset))
        return found

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.at_times`."""
        what = "The offsets for a time could not be listed"
        return self._session.run(what, self._stamped, times_ms) if times_ms else {}

    def newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.newest`."""
        specs = dict.fromkeys(partitions, int(OffsetSpec.MAX_TIMESTAMP))
        return self._session.run("The latest records could not be listed", self._stamped, specs) if specs else {}

    async def _stamped(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        leaders = await self._leaders({tp.topic for tp in specs})
        by_leader, _ = _split(specs, leaders)
        found = await self._list(by_leader, lambda tp: specs[tp])
        return {
            tp: None if isinstance(stamped, PartitionError) or stamped.offset == _NO_RECORD else stamped
            for tp, stamped in found.items()
        }

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstUnread]:
        """See :meth:`streamgroups.ports.TopicAdmin.first_records`."""
        from streamgroups_kafka.admin.first_records import first_records

        return first_records(self._config, offsets) if offsets else {}

    def count_unread(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, UnreadRecords]:
        """See :meth:`streamgroups.ports.TopicAdmin.count_unread`."""
        what = "The lag could not be counted"
        return self._session.run(what, self._count_unread, ranges, limit_bytes) if ranges else {}

    async def _count_unread(
        self, ranges: Collection[OffsetRange], limit_bytes: int
    ) -> dict[TopicPartition, UnreadRecords]:
        from streamgroups_kafka.admin.lag_counting import count_unread

        # The caller has usually just called ``bounds``.
        leaders = self._known_leaders
        if not leaders.keys() >= {r.topic_partition for r in ranges}:
            leaders = await self._leaders({r.topic_partition.topic for r in ranges})
        return await count_unread(self._session, leaders, ranges, limit_bytes)

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
        is_last: Callable[[Message], bool] = lambda _: False,
    ) -> Iterator[Message]:
        """See :meth:`streamgroups.ports.TopicAdmin.read`."""
        from streamgroups_kafka.admin.stored_records import stored_records

        return stored_records(self._config, starts, ends, is_last)

    async def _leaders(self, topics: Collection[str]) -> dict[TopicPartition, int | None]:
        found = await self._topics(topics)
        return {TopicPartition(name, p.partition): p.leader for name, t in found.items() for p in t.partitions}

    async def _list(
        self, by_leader: Mapping[int, list[TopicPartition]], spec: Any
    ) -> dict[TopicPartition, StampedOffset | PartitionError]:
        topic, partition = (
            ListOffsetsRequest.ListOffsetsTopic,
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        )
        requests = {}
        for leader, partitions in by_leader.items():
            asked = by_topic(
                (tp, partition(partition_index=tp.partition, timestamp=int(spec(tp)))) for tp in partitions
            )
            topics = [topic(name=name, partitions=of_topic) for name, of_topic in asked.items()]
            requests[leader] = ListOffsetsRequest(isolation_level=self._isolation, topics=topics, min_version=2)
        found: dict[TopicPartition, StampedOffset | PartitionError] = {}
        for answer in (await self._session.send_all(requests)).values():
            for t in answer.topics:
                for p in t.partitions:
                    found[TopicPartition(t.name, p.partition_index)] = self._judged(t.name, p)
        return found

    def _judged(self, topic: str, answer: Any) -> StampedOffset | PartitionError:
        if answer.error_code in _LEADERLESS:
            return PartitionError.NO_LEADER
        if answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return PartitionError.NO_PARTITION
        what = f"The offsets of {topic}-{answer.partition_index} could not be listed"
        self._session.check(answer.error_code, what, topic=topic, operations=DESCRIBE)
        return StampedOffset(answer.offset, answer.timestamp)


def _encoded(topic_id: uuid.UUID | None) -> str | None:
    """Formats an id as Kafka's tools do; ``None`` for the placeholder of brokers without topic ids.

    >>> _encoded(uuid.UUID("e7dab7a4-f208-4b64-a4d5-30134aecaaf2")), _encoded(uuid.UUID(int=0))
    ('59q3pPIIS2Sk1TATSuyq8g', None)
    """
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id and topic_id.int else None


def _split(
    partitions: Collection[TopicPartition], leaders: Mapping[TopicPartition, int | None]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, Bounds | PartitionError]]:
    """The partitions by leader, and the errors of partitions without one."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    rejected: dict[TopicPartition, Bounds | PartitionError] = {}
    for tp in partitions:
        leader = leaders.get(tp)
        if leader is not None:
            by_leader[leader].append(tp)
        else:
            rejected[tp] = PartitionError.NO_LEADER if tp in leaders else PartitionError.NO_PARTITION
    return by_leader, rejected
