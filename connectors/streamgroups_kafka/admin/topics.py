"""The topics of a cluster and their offsets, with one request per broker for any number of partitions.

Implements :class:`streamgroups.ports.TopicAdmin`; created by ``streamgroups_cli``. A partition without a leader, or a
deleted one, is a result and not an error: operators need this tool most when a cluster has failures. Source: KIP-79,
KIP-734 (ListOffsets), KIP-516 (topic ids).
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from streamgroups.groups.lag import CountedLag, FirstOfLag, PartitionError
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
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.missing_acls import DESCRIBE
from streamgroups_kafka.client.private_kafka_python import ListOffsetsRequest, MetadataRequest, OffsetSpec
from streamgroups_kafka.client.responses import REQUESTS

_NO_LEADER = -1
_NO_RECORD = -1
#: The reasons of unknown bounds, which tools show. Any other error is raised.
_UNKNOWN_BOUNDS: Mapping[int, PartitionError] = {
    **dict.fromkeys(REQUESTS["ListOffsets"].moved, PartitionError.NO_LEADER),
    **dict.fromkeys(REQUESTS["ListOffsets"].absent, PartitionError.NO_PARTITION),
    Code.TOPIC_AUTHORIZATION_FAILED: PartitionError.NOT_AUTHORIZED,
}


@dataclass(frozen=True, slots=True)
class _Rejected:
    """The error of a partition.

    Args:
        code: the error code.
    """

    code: int


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
        self._known_leaders: dict[TopicPartition, int | _Rejected] = {}
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

    def describe_topics(
        self, names: Collection[str] | None = None, *, operation: str = "Describe"
    ) -> dict[str, TopicDescription]:
        """See :meth:`streamgroups.ports.TopicAdmin.describe_topics`."""
        if names is not None and not names:
            return {}
        return self._session.run("The topics could not be described", self._topics, names, operation)

    async def _topics(self, names: Collection[str] | None, operation: str) -> dict[str, TopicDescription]:
        answer = await self._metadata(names)
        found = {t.name: _description(t) for t in answer.topics if self._is_there(t, operation)}
        return dict(sorted(found.items()))

    def _is_there(self, topic: Any, operation: str = "Describe") -> bool:
        """Returns whether a topic of a Metadata response exists. Raises its error if that has another meaning."""
        if topic.error_code in REQUESTS["Metadata"].absent:
            return False
        what = f"Topic '{topic.name}' could not be described"
        self._session.check(topic.error_code, what, topic=topic.name, operations={"Topic": operation})
        return True

    async def _metadata(self, names: Collection[str] | None) -> Any:
        requested = (
            None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)]
        )
        return await self._session.send(MetadataRequest(topics=requested, allow_auto_topic_creation=False))

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.TopicAdmin.identities`."""
        return self._session.run("The ids of topics could not be read", self._identities, topics) if topics else {}

    async def _identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        answer = await self._metadata(topics)
        return {
            t.name: TopicIdentity(answer.cluster_id or None, _encoded(t.topic_id))
            for t in answer.topics
            if self._is_there(t)
        }

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        """See :meth:`streamgroups.ports.TopicAdmin.bounds`."""
        return self._session.run("The offsets could not be listed", self._bounds, partitions) if partitions else {}

    async def _bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        leaders = self._known_leaders = await self._leaders(partitions)
        beginnings = await self._list(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)), leaders)
        ends = await self._list(dict.fromkeys(partitions, int(OffsetSpec.LATEST)), leaders)
        return {tp: self._between(tp, beginnings[tp], ends[tp]) for tp in partitions}

    def _between(
        self, tp: TopicPartition, beginning: StampedOffset | _Rejected, end: StampedOffset | _Rejected
    ) -> Bounds | PartitionError:
        for found in (beginning, end):
            if isinstance(found, _Rejected) and found.code in _UNKNOWN_BOUNDS:
                return _UNKNOWN_BOUNDS[found.code]
        first_offset = self._offset(tp, beginning).offset
        return Bounds(first_offset, max(first_offset, self._offset(tp, end).offset))

    def _offset(self, tp: TopicPartition, found: StampedOffset | _Rejected) -> StampedOffset:
        """Returns the offset of a response, or raises its error."""
        if isinstance(found, _Rejected):
            what = f"The offsets of {tp} could not be listed"
            raise self._session.error(found.code, what, topic=tp.topic, operations=DESCRIBE)
        return found

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.at_times`."""
        what = "The offsets for a time could not be listed"
        return self._session.run(what, self._at_times, times_ms) if times_ms else {}

    async def _at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        found = await self._list(times_ms, await self._leaders(times_ms))
        return {tp: _of_a_record(self._offset(tp, it)) for tp, it in found.items()}

    def newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.newest`."""
        what = "The latest records could not be listed"
        return self._session.run(what, self._newest, partitions) if partitions else {}

    async def _newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        latest = dict.fromkeys(partitions, int(OffsetSpec.MAX_TIMESTAMP))
        # Earlier versions of the request have no such time: a broker could take it for a time before all records.
        found = await self._list(latest, await self._leaders(partitions), min_version=7)
        unknown = {tp for tp, it in found.items() if isinstance(it, _Rejected) and it.code in _UNKNOWN_BOUNDS}
        return {tp: _of_a_record(self._offset(tp, it)) for tp, it in found.items() if tp not in unknown}

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstOfLag]:
        """See :meth:`streamgroups.ports.TopicAdmin.first_records`."""
        from streamgroups_kafka.admin.stored_records import first_records

        return first_records(self._config, offsets) if offsets else {}

    def count_lag(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, CountedLag]:
        """See :meth:`streamgroups.ports.TopicAdmin.count_lag`."""
        what = "The lag could not be counted"
        return self._session.run(what, self._count_lag, ranges, limit_bytes) if ranges else {}

    async def _count_lag(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, CountedLag]:
        from streamgroups_kafka.admin.lag_counting import count_lag

        # The caller has usually just called ``bounds``.
        leaders = self._known_leaders
        if not leaders.keys() >= {r.topic_partition for r in ranges}:
            leaders = await self._leaders([r.topic_partition for r in ranges])
        known = {tp: leader for tp, leader in leaders.items() if not isinstance(leader, _Rejected)}
        return await count_lag(self._session, known, ranges, limit_bytes)

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
    ) -> Iterator[Message]:
        """See :meth:`streamgroups.ports.TopicAdmin.read`."""
        from streamgroups_kafka.admin.stored_records import stored_records

        return stored_records(self._config, starts, ends)

    async def _leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | _Rejected]:
        """The leader of each partition, or the error by which it has none."""
        leaders: dict[TopicPartition, int] = {}
        denied = set()
        for t in (await self._metadata({tp.topic for tp in partitions})).topics:
            if t.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
                denied.add(t.name)
            elif self._is_there(t):
                leaders |= {TopicPartition(t.name, p.partition_index): p.leader_id for p in t.partitions}

        def leader(tp: TopicPartition) -> int | _Rejected:
            if tp.topic in denied:
                return _Rejected(Code.TOPIC_AUTHORIZATION_FAILED)
            if tp not in leaders:
                return _Rejected(Code.UNKNOWN_TOPIC_OR_PARTITION)
            return _Rejected(Code.LEADER_NOT_AVAILABLE) if leaders[tp] == _NO_LEADER else leaders[tp]

        return {tp: leader(tp) for tp in partitions}

    async def _list(
        self,
        specs: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int | _Rejected],
        *,
        min_version: int = 2,
    ) -> dict[TopicPartition, StampedOffset | _Rejected]:
        """Sends ListOffsets with the time, or the special time, of each partition to its leader."""
        topic, partition = (
            ListOffsetsRequest.ListOffsetsTopic,
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
        )
        found: dict[TopicPartition, StampedOffset | _Rejected] = {}
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp in specs:
            leader = leaders[tp]
            if isinstance(leader, _Rejected):
                found[tp] = leader
            else:
                by_leader[leader].append(tp)
        requests = {}
        for leader, partitions in by_leader.items():
            requested = by_topic(
                (tp, partition(partition_index=tp.partition, timestamp=specs[tp])) for tp in partitions
            )
            topics = [topic(name=name, partitions=of_topic) for name, of_topic in requested.items()]
            requests[leader] = ListOffsetsRequest(
                isolation_level=self._isolation, topics=topics, min_version=min_version
            )
        for answer in (await self._session.send_all(requests)).values():
            for t in answer.topics:
                for p in t.partitions:
                    listed = _Rejected(p.error_code) if p.error_code else StampedOffset(p.offset, p.timestamp)
                    found[TopicPartition(t.name, p.partition_index)] = listed
        return found


def _of_a_record(listed: StampedOffset) -> StampedOffset | None:
    return None if listed.offset == _NO_RECORD else listed


def _description(topic: Any) -> TopicDescription:
    partitions = (
        PartitionDescription(p.partition_index, tuple(p.replica_nodes), p.leader_id != _NO_LEADER)
        for p in topic.partitions
    )
    return TopicDescription(topic.name, tuple(sorted(partitions, key=lambda p: p.partition)))


def _encoded(topic_id: uuid.UUID | None) -> str | None:
    """Formats an id as Kafka's tools do; ``None`` for the placeholder of brokers without topic ids.

    >>> _encoded(uuid.UUID("e7dab7a4-f208-4b64-a4d5-30134aecaaf2")), _encoded(uuid.UUID(int=0))
    ('59q3pPIIS2Sk1TATSuyq8g', None)
    """
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=") if topic_id and topic_id.int else None
