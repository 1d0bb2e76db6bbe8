"""The topics and groups of a cluster, asked through librdkafka's admin API.

Implements :class:`streamgroups.ports.Log` and :class:`streamgroups.ports.Groups`; created on the driver by
``streamgroups_spark``. All partitions go into one request per broker, whatever their number. Source: KIP-396 (ListOffsets,
OffsetFetch), KIP-222 (DescribeGroups), KIP-1043 (a group that does not exist is an error of its own).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, stop_all, wait_fixed

from streamgroups.errors import BrokerUnreachable, GroupRejected, StreamGroupsError, UnknownTopic
from streamgroups.groups.commit_metadata import is_exclusive
from streamgroups.groups.join_policy import LiveGroup, LiveMember
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.partition_sizes import stored_bytes
from streamgroups_kafka.client.commit_metadata import metadata_of
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.logs import client_log

#: How long one request may take, connecting included. A user waits this long to hear that the broker is not there.
REQUEST_TIMEOUT_S = 10.0

#: Requests of a running query are repeated for at least this long: a broker that restarts is no reason to fail.
_OUTAGE_S = 60.0

#: How many looks in a row may miss a partition before it counts as one that does not exist: brokers hear of new ones one after the other.
_LOOKS_WITHOUT_PARTITION = 3

#: What stands for the id of a topic where the broker has none (before 2.8): the UUID of zeros.
_NO_ID = "A" * 22
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_T = TypeVar("_T")


class KafkaCluster:
    """A cluster's topics and groups.

    Args:
        config: how to reach it.
        read_committed: whether end offsets stop at the last stable offset.
        attempts: how often a request is tried, at least, when the failure may pass; it is tried for a minute in any case.
        retry_interval_ms: how long to wait in between.
        request_subscriptions: whether to ask what members of a classic group subscribe to beyond what they own. It is one more
            request, through an API that confluent-kafka deprecates without having another for it.

    Raises:
        InvalidOption: if librdkafka does not take the configuration.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        read_committed: bool = False,
        attempts: int = 4,
        retry_interval_ms: int = 1000,
        request_subscriptions: bool = True,
    ) -> None:
        self._config, self._ask_subscriptions = config, request_subscriptions
        self._admin = AdminClient(dict(config.for_admin()))
        self._log = client_log(config.get("bootstrap.servers"))
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, StreamGroupsError) and e.retriable),
            stop=stop_all(stop_after_attempt(attempts), stop_after_delay(_OUTAGE_S)),
            wait=wait_fixed(retry_interval_ms / 1000),
            reraise=True,
        )

    def check_reachable(self) -> None:
        """One round trip, tried once: at the start of a query an unreachable broker is a wrong address, not a hiccup.

        Raises:
            BrokerUnreachable: if no broker answers in time.
        """
        where = self._config.get("bootstrap.servers")
        self._once(f"The cluster at {where}", lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))

    def topics(self) -> Mapping[str, int]:
        """See :meth:`streamgroups.ports.Log.topics`."""
        metadata = self._try("The list of topics", lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and name not in _INTERNAL_TOPICS
        }

    def cluster_id(self) -> str:
        """The cluster's own name for itself."""
        metadata = self._try("The cluster's id", lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        return metadata.cluster_id or ""

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.Log.identities`. Both requests are under way at the same time."""
        names = sorted(set(topics))
        return self._try(f"The ids of {', '.join(names[:5])}", lambda: self._identities(names)) if names else {}

    def _identities(self, names: list[str]) -> dict[str, TopicIdentity]:
        described = self._admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S)
        cluster = self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
        found = {}
        for name, future in described.items():
            try:
                topic_id = _printed(future.result().topic_id)
            except KafkaException as e:
                if e.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                if e.args[0].code() != KafkaError._UNSUPPORTED_FEATURE:
                    raise
                topic_id = _NO_ID
            found[name] = None if topic_id == _NO_ID else topic_id
        cluster_id = cluster.result().cluster_id or None
        return {name: TopicIdentity(cluster_id, topic_id) for name, topic_id in found.items()}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Log.beginning_offsets`."""
        return self._list_offsets(dict.fromkeys(partitions, _EARLIEST))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Log.end_offsets`."""
        return self._list_offsets(dict.fromkeys(partitions, _LATEST))

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Log.high_watermarks`."""
        return self._list_offsets(dict.fromkeys(partitions, _LATEST), IsolationLevel.READ_UNCOMMITTED)

    def offsets_at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See :meth:`streamgroups.ports.Log.offsets_at_times`."""
        found = self._list_offsets({tp: OffsetSpec.for_timestamp(ms) for tp, ms in times_ms.items()})
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def _list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        asked = {confluent_kafka.TopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()}
        n_missed = 0

        def ask() -> dict[TopicPartition, int]:
            nonlocal n_missed
            futures = self._admin.list_offsets(
                asked, isolation_level=isolation or self._isolation, request_timeout=REQUEST_TIMEOUT_S
            )
            try:
                found = {
                    TopicPartition(tp.topic, tp.partition): future.result().offset for tp, future in futures.items()
                }
            except KafkaException as e:
                if e.args[0].code() == KafkaError._NOENT:
                    # A partition that is newer than what this client has heard; asking for leaders does not make it listen.
                    topics = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
                    missing = [
                        tp for tp in specs if tp.topic not in topics or tp.partition not in topics[tp.topic].partitions
                    ]
                    n_missed += bool(missing)
                    if n_missed >= _LOOKS_WITHOUT_PARTITION:
                        raise UnknownTopic(
                            f"The cluster has no partition {', '.join(map(str, sorted(missing)[:5]))}.",
                            remedy="Check the names. If the topic was deleted, restart without it.",
                        ) from None
                raise
            # What librdkafka leaves in the answer, without an error, when the connection breaks while it is under way.
            unanswered = [tp for tp, offset in found.items() if offset == confluent_kafka.OFFSET_INVALID]
            if unanswered:
                raise BrokerUnreachable(
                    f"The leaders of {_names(unanswered)} disconnected before they returned the offsets.",
                    remedy="Check that they are up. The request is repeated fetchOffset.numRetries times.",
                )
            return found

        return self._try(f"The offsets of {_names(specs)}", ask)

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.Groups.committed`.

        Asked through a consumer that does not join: the admin API's ListConsumerGroupOffsets ends the process with a
        segmentation fault while a group has no coordinator yet, as on a new cluster (librdkafka#5040).
        """
        if not partitions:
            return {}

        def ask() -> list[confluent_kafka.TopicPartition]:
            consumer = Consumer({**self._config.for_member(group_id), "log_level": "0"})
            try:
                asked = [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions]
                return consumer.committed(asked, timeout=REQUEST_TIMEOUT_S)
            finally:
                consumer.close()

        return {
            TopicPartition(tp.topic, tp.partition): Committed(tp.offset, metadata_of(tp))
            for tp in self._try(f"The offsets of group '{group_id}'", ask)
            if tp.offset >= 0
        }

    def stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Log.stored_bytes`."""
        return stored_bytes(self._config, partitions) if partitions else {}

    def describe(self, group_id: str) -> LiveGroup:
        """See :meth:`streamgroups.ports.Groups.describe`."""

        def ask() -> Any:
            future = self._admin.describe_consumer_groups([group_id], request_timeout=REQUEST_TIMEOUT_S)[group_id]
            try:
                return future.result()
            except KafkaException as e:
                if e.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise

        description = self._try(f"Group '{group_id}'", ask)
        if description is None or not description.members:
            return LiveGroup(group_id)
        subscriptions = self._subscriptions(group_id) if self._ask_subscriptions else {}
        members = []
        for m in description.members:
            owned = frozenset(TopicPartition(tp.topic, tp.partition) for tp in m.assignment.topic_partitions)
            known = m.member_id in subscriptions
            topics = subscriptions[m.member_id] if known else frozenset(tp.topic for tp in owned)
            members.append(LiveMember(m.client_id, m.host, topics, owned, known))
        held = [tp for m in members for tp in m.partitions]
        return LiveGroup(
            group_id,
            tuple(members),
            assignor=description.partition_assignor or "",
            held_exclusively=any(is_exclusive(c.metadata) for c in self.committed(group_id, held).values()),
            settled=description.state == ConsumerGroupState.STABLE,
        )

    def _subscriptions(self, group_id: str) -> dict[str, frozenset[str]]:
        """What the members of a classic group subscribe to; nothing for others (KIP-848 does not tell it here)."""
        groups = self._try(f"Group '{group_id}'", lambda: self._admin.list_groups(group_id, timeout=REQUEST_TIMEOUT_S))
        members: list[Any] = [m for g in groups for m in g.members]
        try:
            return {m.id: parse_subscription(m.metadata) for m in members if m.metadata}
        except (struct.error, ValueError) as e:
            raise GroupRejected(
                f"Group '{group_id}' has live members that are not consumers, such as Kafka Connect workers.",
                remedy="Use another group.id.",
            ) from e

    def _try(self, what: str, ask: Callable[[], _T]) -> _T:
        result: _T = self._retrying(self._once, what, ask)
        return result

    def _once(self, what: str, ask: Callable[[], _T]) -> _T:
        error: StreamGroupsError
        try:
            answer = ask()
        except KafkaException as e:
            error = to_streamgroups_error(e.args[0], f"{what} could not be read", redact=self._config.redact)
        except BrokerUnreachable as e:
            error = e
        else:
            self._log.succeeded()
            return answer
        if isinstance(error, BrokerUnreachable):
            self._log.failed(error.what)
        # Not from the client's own: that is not redacted.
        raise error


def parse_subscription(metadata: bytes) -> frozenset[str]:
    """The topics in a classic member's metadata (``ConsumerProtocolSubscription``: version, topics, user data).

    Raises:
        ValueError: these are not the bytes of a consumer.
        struct.error: likewise.

    >>> sorted(parse_subscription(bytes.fromhex("0000 00000002 0001 61 0002 6263 ffffffff")))
    ['a', 'bc']
    """
    (count,) = struct.unpack_from(">i", metadata, 2)
    at, topics = 6, set()
    # Each topic takes two bytes at least, whatever the count says.
    if not 0 <= count <= (len(metadata) - at) // 2:
        raise ValueError(f"{count} topics in {len(metadata)} bytes")
    for _ in range(count):
        (length,) = struct.unpack_from(">h", metadata, at)
        if not 0 <= length <= len(metadata) - at - 2:
            raise ValueError(f"a topic of {length} bytes")
        topics.add(metadata[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return frozenset(topics)


def _printed(topic_id: object) -> str:
    """An id as Kafka's tools print it. librdkafka prints another alphabet of base64.

    >>> _printed("//7+w")
    '__7-w'
    """
    return str(topic_id).replace("+", "-").replace("/", "_")


def _names(partitions: Collection[TopicPartition]) -> str:
    topics = sorted({tp.topic for tp in partitions})
    return ", ".join(topics[:5]) + (" …" if len(topics) > 5 else "")
