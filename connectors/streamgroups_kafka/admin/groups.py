"""The groups of a cluster, many at a time, with the minimum number of requests.

Implements :class:`streamgroups.ports.GroupAdmin`; created by ``streamgroups_cli``. A group with any number of
partitions is one entry in one request to its coordinator. Source: KIP-709 (OffsetFetch of many groups), KIP-396
(OffsetCommit without a member), KIP-496 (OffsetDelete), KIP-848 (ConsumerGroupDescribe), KIP-1043 (the error code for a
group that does not exist).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka.errors import IncompatibleBrokerVersion

from streamgroups.coordination.commit_parts import commit_parts
from streamgroups.errors import GroupRejected, StreamGroupsError, UnknownGroup
from streamgroups.groups.description import GroupDescription, GroupListing, GroupMember
from streamgroups.json_values import MAX_INT32, string, whole
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups_kafka.admin.connection import GROUPS_PER_REQUEST, AdminSession, portions
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.missing_acls import DELETE, DELETE_OFFSETS, USUAL, Operations
from streamgroups_kafka.client.private_kafka_python import (
    ApiMessage,
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from streamgroups_kafka.client.responses import REQUESTS

#: The errors of a commit without a member while the group has members.
_HAS_MEMBERS = frozenset(
    {Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.STALE_MEMBER_EPOCH}
)
_NO_MEMBER = -1
#: Version 10 of OffsetFetch and OffsetCommit contain topic ids, which an admin client would first have to look up.
_TOPICS_BY_NAME = 9


class ConsumerGroupDescribeRequest(ApiMessage, load_json="streamgroups_kafka.schemas"):  # type: ignore[call-arg,misc]
    """See ``schemas/ConsumerGroupDescribeRequest.json``."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="streamgroups_kafka.schemas"):  # type: ignore[call-arg,misc]
    """See ``schemas/ConsumerGroupDescribeResponse.json``."""


class KafkaGroupAdmin:
    """See :class:`streamgroups.ports.GroupAdmin`.

    Args:
        session: the connection to the cluster. The caller closes it.
    """

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def list_groups(self) -> list[GroupListing]:
        """See :meth:`streamgroups.ports.GroupAdmin.list_groups`."""
        return self._session.run("The groups could not be listed", self._list)

    async def _list(self) -> list[GroupListing]:
        answers = await self._session.send_all({node: ListGroupsRequest() for node in await self._session.broker_ids()})
        listed = []
        for node_id, answer in answers.items():
            self._session.check(answer.error_code, f"Broker {node_id} did not list its groups")
            for g in answer.groups:
                kind = (getattr(g, "group_type", "") or "").lower()
                listed.append(
                    GroupListing(g.group_id, getattr(g, "group_state", "") or "", kind, g.protocol_type, node_id)
                )
        return sorted(listed)

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """See :meth:`streamgroups.ports.GroupAdmin.describe_groups`."""
        if not group_ids:
            return {}
        described = self._session.run(f"{_names(group_ids)} could not be described", self._describe, group_ids)
        unknown = [g for g in group_ids if g not in described]
        if unknown:
            # Share and streams groups are not described here, but their state is not Dead either.
            listed = {g.group_id: g for g in self.list_groups()}
            for group_id in unknown:
                g = listed.get(group_id)
                described[group_id] = (
                    GroupDescription(group_id, "Dead")
                    if g is None
                    else GroupDescription(group_id, g.state, g.type, g.protocol_type, coordinator=g.coordinator)
                )
        return {group_id: described[group_id] for group_id in group_ids}

    async def _describe(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        found: dict[str, GroupDescription] = {}
        coordinators = await self._session.coordinators(group_ids)
        for by_node in _rounds(coordinators):
            for node_id, answer in (await self._describe_new_protocol(by_node)).items():
                found.update(self._consumer_groups(node_id, answer))
            rest = {node: [g for g in ids if g not in found] for node, ids in by_node.items()}
            requests = {node: DescribeGroupsRequest(groups=ids) for node, ids in rest.items() if ids}
            for node_id, answer in (await self._session.send_all(requests)).items():
                found.update(self._classic_groups(node_id, answer))
        return found

    async def _describe_new_protocol(self, by_node: Mapping[int, list[str]]) -> dict[int, Any]:
        requests = {node: ConsumerGroupDescribeRequest(group_ids=ids) for node, ids in by_node.items()}
        try:
            return await self._session.send_all(requests)
        except IncompatibleBrokerVersion:
            return {}

    def _consumer_groups(self, node_id: int, answer: Any) -> Iterable[tuple[str, GroupDescription]]:
        for g in answer.groups:
            if g.error_code in REQUESTS["ConsumerGroupDescribe"].absent:
                continue
            self._session.check(g.error_code, f"Group '{g.group_id}' could not be described", group=g.group_id)
            members = tuple(
                GroupMember(
                    m.client_id,
                    m.client_host,
                    frozenset(
                        TopicPartition(t.topic_name, p) for t in m.assignment.topic_partitions for p in t.partitions
                    ),
                    m.member_id,
                    m.instance_id,
                )
                for m in g.members
            )
            yield (
                g.group_id,
                GroupDescription(
                    g.group_id, g.group_state, "consumer", "consumer", g.assignor_name or "", node_id, members
                ),
            )

    def _classic_groups(self, node_id: int, answer: Any) -> Iterable[tuple[str, GroupDescription]]:
        for g in answer.groups:
            # Before KIP-1043, brokers described a group that does not exist as Dead.
            is_dead = g.error_code == Code.NONE and g.group_state == "Dead"
            if is_dead or g.error_code in REQUESTS["DescribeGroups"].absent:
                continue
            self._session.check(g.error_code, f"Group '{g.group_id}' could not be described", group=g.group_id)
            members = tuple(
                GroupMember(
                    m.client_id, m.client_host, parse_assignment(m.member_assignment), m.member_id, m.group_instance_id
                )
                for m in g.members
            )
            yield (
                g.group_id,
                GroupDescription(
                    g.group_id, g.group_state, "classic", g.protocol_type, g.protocol_data or "", node_id, members
                ),
            )

    def committed_offsets(
        self,
        group_ids: Collection[str],
        partitions: Collection[TopicPartition] | None = None,
        *,
        optional: Collection[str] = (),
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """See :meth:`streamgroups.ports.GroupAdmin.committed_offsets`."""
        if not group_ids:
            return {}
        what = f"The offsets of {_names(group_ids)} could not be read"
        return self._session.run(what, self._committed, group_ids, partitions, frozenset(optional))

    async def _committed(
        self, group_ids: Collection[str], partitions: Collection[TopicPartition] | None, optional: frozenset[str]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = None
        if partitions is not None:
            # For topics that it omits from all offsets, the broker returns an error here.
            numbers = by_topic((tp, tp.partition) for tp in partitions)
            topics = [group.OffsetFetchRequestTopics(name=name, partition_indexes=of) for name, of in numbers.items()]
        coordinators = await self._session.coordinators(group_ids, optional=optional)
        found: dict[str, dict[TopicPartition, Committed]] = {g: {} for ids in coordinators.values() for g in ids}
        for by_node in _rounds(coordinators):
            requests = {
                node: OffsetFetchRequest(
                    groups=[group(group_id=g, topics=topics) for g in ids], min_version=8, max_version=_TOPICS_BY_NAME
                )
                for node, ids in by_node.items()
            }
            for answer in (await self._session.send_all(requests)).values():
                for g in answer.groups:
                    if g.error_code == Code.GROUP_AUTHORIZATION_FAILED and g.group_id in optional:
                        del found[g.group_id]
                    else:
                        found[g.group_id] = self._offsets_of(g)
        return found

    def _offsets_of(self, group: Any) -> dict[TopicPartition, Committed]:
        what, group_id = f"The offsets of group '{group.group_id}' could not be read", group.group_id
        self._session.check(group.error_code, what, group=group_id)
        for t in group.topics:
            for p in t.partitions:
                self._session.check(p.error_code, f"{what}: {t.name}-{p.partition_index}", group=group_id, topic=t.name)
        return {
            TopicPartition(t.name, p.partition_index): Committed(p.committed_offset, _metadata(p.metadata))
            for t in group.topics
            for p in t.partitions
            if p.committed_offset >= 0
        }

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.alter_offsets`."""
        failures: dict[TopicPartition, StreamGroupsError] = {}
        waiting = list(commit_parts(group_id, offsets))
        try:
            while waiting:
                failures |= self._commit(group_id, waiting[0])
                waiting.pop(0)
        except StreamGroupsError as e:
            left = [tp for part in waiting for tp in part]
            if len(left) == len(offsets):
                raise
            failures.update(dict.fromkeys(left, e))
        return failures

    def _commit(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        what = f"The offsets of group '{group_id}' could not be changed"
        topic, partition = (
            OffsetCommitRequest.OffsetCommitRequestTopic,
            OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition,
        )
        rows = by_topic(
            (tp, partition(partition_index=tp.partition, committed_offset=c.next_offset, committed_metadata=c.metadata))
            for tp, c in offsets.items()
        )
        topics = [topic(name=name, partitions=of_topic) for name, of_topic in rows.items()]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=_NO_MEMBER,
            member_id="",
            topics=topics,
            max_version=_TOPICS_BY_NAME,
        )
        answer = self._session.run(what, self._request_coordinator, group_id, what, lambda: request)
        return self._failures(answer, what, group_id)

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.delete_offsets`."""
        what = f"The offsets of group '{group_id}' could not be deleted"
        topic, partition = (
            OffsetDeleteRequest.OffsetDeleteRequestTopic,
            OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition,
        )
        rows = by_topic((tp, partition(partition_index=tp.partition)) for tp in partitions)
        topics = [topic(name=name, partitions=of_topic) for name, of_topic in rows.items()]
        if not topics:
            return {}
        answer = self._session.run(
            what,
            self._request_coordinator,
            group_id,
            what,
            lambda: OffsetDeleteRequest(group_id=group_id, topics=topics),
            DELETE_OFFSETS,
        )
        if answer.error_code in REQUESTS["OffsetDelete"].absent:
            raise _not_there(what, group_id)
        self._session.check(answer.error_code, what, group=group_id, operations=DELETE_OFFSETS)
        return self._failures(answer, what, group_id)

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.delete_groups`."""
        waiting, failures = set(group_ids), dict[str, StreamGroupsError]()
        try:
            if waiting:
                self._session.run(f"{_names(group_ids)} could not be deleted", self._delete, waiting, failures)
        except StreamGroupsError as e:
            if len(waiting) == len(group_ids):
                raise
            failures.update(dict.fromkeys(waiting, e))
        return failures

    async def _delete(self, waiting: set[str], failures: dict[str, StreamGroupsError]) -> None:
        """Deletes the waiting groups. A repeated call continues with the remaining ones."""
        participation = None
        for by_node in _rounds(await self._session.coordinators(waiting, DELETE)):
            requests = {node: DeleteGroupsRequest(groups_names=ids) for node, ids in by_node.items()}
            for answer in (await self._session.send_all(requests)).values():
                for result in answer.results:
                    what = f"Group '{result.group_id}' could not be deleted"
                    error = self._session.error(result.error_code, what, group=result.group_id, operations=DELETE)
                    if result.error_code in REQUESTS["DeleteGroups"].absent:
                        error = _not_there(what, result.group_id)
                    if result.error_code in REQUESTS["DeleteGroups"].moved:
                        participation = error
                        continue
                    waiting.discard(result.group_id)
                    if result.error_code:
                        failures[result.group_id] = error
        if participation is not None:
            raise participation

    async def _request_coordinator(
        self, group_id: str, what: str, request: Callable[[], Any], operations: Operations = USUAL
    ) -> Any:
        (node_id,) = await self._session.coordinators([group_id], operations)
        answer = await self._session.send(request(), node_id)
        # An OffsetCommit response has no top-level error: each partition contains one.
        codes = {getattr(answer, "error_code", 0), *(p.error_code for t in answer.topics for p in t.partitions)}
        for code in codes & REQUESTS["OffsetCommit"].moved:
            self._session.check(code, what, group=group_id)
        return answer

    def _failures(self, answer: Any, what: str, group_id: str) -> dict[TopicPartition, StreamGroupsError]:
        def failure(topic: str, error_code: int) -> StreamGroupsError:
            if error_code in _HAS_MEMBERS:
                return GroupRejected(
                    f"{what}: a member has joined the group.",
                    remedy="Stop its members first (streamgroups groups describe).",
                )
            return self._session.error(error_code, what, group=group_id, topic=topic)

        return {
            TopicPartition(t.name, p.partition_index): failure(t.name, p.error_code)
            for t in answer.topics
            for p in t.partitions
            if p.error_code
        }


def _not_there(what: str, group_id: str) -> UnknownGroup:
    return UnknownGroup(f"{what}: it does not exist.", remedy="See: streamgroups groups list.", group=group_id)


def parse_assignment(assignment: bytes) -> frozenset[TopicPartition]:
    """Parses the partitions in the assignment of a classic member (``ConsumerProtocolAssignment``); empty if it is not
    a consumer.

    >>> sorted(map(str, parse_assignment(bytes.fromhex("0000 00000001 0001 61 00000002 00000000 00000001 ffffffff"))))
    ['a-0', 'a-1']
    >>> parse_assignment(b"connect")
    frozenset()
    """
    if not assignment:
        return frozenset()
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        return frozenset(
            TopicPartition(string(t.topic), whole(p, most=MAX_INT32))
            for t in decoded.assigned_partitions
            for p in t.partitions
        )
    except (struct.error, ValueError, TypeError, AttributeError, IndexError):
        return frozenset()


def _metadata(text: str | None) -> str:
    """Returns the metadata of a commit. confluent-kafka commits the NUL at the end of a C string too, and removes it
    only in its own reads.
    """
    return (text or "").rstrip("\0")


def _rounds(coordinators: Mapping[int, list[str]]) -> Iterable[dict[int, list[str]]]:
    """Splits the groups into rounds. A round has at most one request for each broker."""
    waiting = {node: list(portions(ids, GROUPS_PER_REQUEST)) for node, ids in coordinators.items()}
    while waiting:
        yield {node: ids.pop(0) for node, ids in waiting.items()}
        waiting = {node: ids for node, ids in waiting.items() if ids}


def _names(group_ids: Collection[str]) -> str:
    return f"Group{'' if len(group_ids) == 1 else 's'} {listed(map(repr, sorted(group_ids)))}"
