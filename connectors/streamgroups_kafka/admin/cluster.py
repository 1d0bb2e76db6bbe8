"""The topics and groups of a cluster, through librdkafka's admin API.

Implements :class:`streamgroups.ports.Cluster`; created on the driver by ``streamgroups_spark``. One request per broker
contains all partitions. ``groups`` and ``topics`` send similar requests through kafka-python: librdkafka has no
OffsetFetch of many groups and no OffsetDelete (see ``connection_settings``). A query uses librdkafka here too, because
its members and readers do. Source: KIP-396 (ListOffsets, OffsetFetch), KIP-222 (DescribeGroups),
KIP-1043 (the error code for a group that does not exist).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from tenacity import stop_after_attempt, stop_after_delay, stop_all

from streamgroups.errors import BrokerUnreachable, GroupRejected, LoginRejected, StreamGroupsError, UnknownTopic
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import LogEnds, TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.retry import retrying
from streamgroups_kafka.admin.leader_offsets import is_there, refreshed_leaders, request_offsets, retried, topics_in
from streamgroups_kafka.admin.rejected_login import RejectedLogin, is_response
from streamgroups_kafka.admin.replaced_client import ReplacedClient
from streamgroups_kafka.admin.requested_identities import RequestedIdentities
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.described_group import request_descriptions, response
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.client.partition_conversion import committed_offsets, from_confluent
from streamgroups_kafka.client.responses import PartRejected, topics_of

#: The timeout of one request, including the connection. A user waits this long for the error of an unreachable broker.
REQUEST_TIMEOUT_S = 10.0

#: Requests of a running query are retried for at least this time, so that the restart of a broker does not fail the
#: query.
_OUTAGE_S = 60.0

#: The number of consecutive metadata responses without a partition before it counts as missing. Brokers receive new
#: partitions one after the other.
_POLLS_WITHOUT_PARTITION = 3

#: After these errors requests of the same client can fail for minutes, although the brokers are up again. librdkafka keeps the
#: coordinator of a group for ``metadata.max.age.ms``, also when it responds that it is not the coordinator any more.
_NEEDS_NEW_CLIENT = (KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR)
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_T = TypeVar("_T")


class KafkaCluster:
    """The topics and groups of a cluster.

    Args:
        config: the configuration of the client.
        read_committed: whether end offsets are last stable offsets.
        attempts: the minimum number of attempts after transient errors. Requests are retried for at least ``outage_s`` in
            any case.
        retry_interval_ms: the time between two attempts, in milliseconds.
        request_subscriptions: whether to request all subscriptions of the members of a classic group. It is one more
            request, through an API that confluent-kafka deprecates without a replacement.
        outage_s: the minimum time for which requests are retried, in seconds.

    Raises:
        InvalidOption: if librdkafka rejects the configuration.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        read_committed: bool = False,
        attempts: int = 4,
        retry_interval_ms: int = 1000,
        request_subscriptions: bool = True,
        outage_s: float = _OUTAGE_S,
    ) -> None:
        self._config, self._has_subscriptions = config, request_subscriptions
        self._clients = ReplacedClient(config)
        #: Consumers that :meth:`connect` has created, each for the first call of :meth:`committed`.
        self._connected: dict[str, Consumer] = {}
        self._log = client_log(config.get("bootstrap.servers"))
        self._login = RejectedLogin(config)
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._retry_interval_s = retry_interval_ms / 1000
        self._retrying = retrying(
            stop_all(stop_after_attempt(attempts), stop_after_delay(outage_s)), every_s=self._retry_interval_s
        )

    def connect(self, group_id: str) -> None:
        """Opens the connections for the first requests about a group, without waiting for them.

        librdkafka connects in threads of its own, while the process of a query imports modules.
        """
        # The requests themselves report errors.
        with suppress(KafkaException):
            request_descriptions(self._clients.current, [group_id])
            self._connected[group_id] = self._new_consumer(group_id)

    def login_rejection(self) -> LoginRejected | None:
        """Returns why all brokers reject the login of a new client; ``None`` if one may accept it."""
        return self._login.rejection()

    def check_reachable(self) -> None:
        """Makes one round trip without retries: at the start of a query, an unreachable broker means a wrong address.

        Raises:
            BrokerUnreachable: if no broker responds before the timeout.
            LoginRejected: if authentication fails, or the TLS handshake.
            GroupRejected: if the brokers do not support the group protocol.
        """
        what = f"The cluster at {self._config.get('bootstrap.servers')}"
        try:
            metadata = self._once(what, lambda admin: admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        except BrokerUnreachable:
            # One address of several can be wrong at a start.
            rejection = self._login.first_rejection()
            if rejection is None:
                raise
        else:
            if self._config.group_protocol == "consumer":
                # Queries with the protocol 'classic' do not need this module.
                from streamgroups_kafka.admin.group_protocol import check_group_protocol

                check_group_protocol(self._config, [(str(it.host), it.port) for it in metadata.brokers.values()])
            return
        raise rejection

    def topics(self) -> Mapping[str, int]:
        """See :meth:`streamgroups.ports.Cluster.topics`."""

        def request(admin: AdminClient) -> dict[str, int]:
            found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
            return {name: len(topic.partitions) for name, topic in found.items() if is_there(name, topic)}

        return {name: n for name, n in self._try("The list of topics", request).items() if name not in _INTERNAL_TOPICS}

    def cluster_id(self) -> str:
        """The cluster id."""
        metadata = self._try("The cluster's id", lambda admin: admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        return metadata.cluster_id or ""

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.Cluster.identities`."""
        names = sorted(set(topics))
        return self._try(f"The ids of {listed(names)}", lambda admin: self._identities(admin, names))

    def _identities(self, admin: AdminClient, names: list[str]) -> dict[str, TopicIdentity]:
        if not names:
            return {}
        try:
            return RequestedIdentities(admin, names, REQUEST_TIMEOUT_S).result()
        except PartRejected as e:
            raise self._translated(e.args[0], f"Topic '{e.topics}' could not be described", topic=e.topics) from None

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.beginning_offsets`."""
        return self._list_offsets(dict.fromkeys(partitions, _EARLIEST))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.end_offsets`."""
        return self._list_offsets(dict.fromkeys(partitions, _LATEST))

    def log_ends(self, partitions: Collection[TopicPartition]) -> LogEnds:
        """See :meth:`streamgroups.ports.Cluster.log_ends`."""
        found = self._listed(dict.fromkeys(partitions, _LATEST))
        epochs = {tp: it.leader_epoch for tp, it in found.items() if it.leader_epoch is not None}
        return LogEnds({tp: it.offset for tp, it in found.items()}, epochs)

    def epoch_ends(
        self, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.epoch_ends`. librdkafka has no such request."""
        if not leader_epochs:
            return {}
        with KAFKA_PYTHON:
            from streamgroups_kafka.admin.unsupported_requests import epoch_ends

        # Without a response, this truncation would never be detected. So a login that is rejected for a moment is retried too.
        what = f"The leader epochs of {topics_in(leader_epochs)}"
        return self._try(what, lambda _: epoch_ends(self._config, leader_epochs, current))

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.high_watermarks`."""
        return self._list_offsets(dict.fromkeys(partitions, _LATEST), IsolationLevel.READ_UNCOMMITTED)

    def offsets_at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See :meth:`streamgroups.ports.Cluster.offsets_at_times`."""
        found = self._list_offsets({tp: OffsetSpec.for_timestamp(ms) for tp, ms in times_ms.items()})
        return {tp: None if offset < 0 else offset for tp, offset in found.items()}

    def _list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        return {tp: it.offset for tp, it in self._listed(specs, isolation).items()}

    def _listed(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        if not specs:
            return {}
        n_missed = 0

        def request(admin: AdminClient) -> dict[TopicPartition, ListOffsetsResultInfo]:
            nonlocal n_missed
            try:
                return request_offsets(admin, specs, isolation or self._isolation, REQUEST_TIMEOUT_S)
            except PartRejected as e:
                missing = refreshed_leaders(admin, e, specs, REQUEST_TIMEOUT_S)
                n_missed += bool(missing)
                # The list of all topics does not contain a topic that this user may not describe.
                self._identities(admin, sorted({tp.topic for tp in missing}))
                if n_missed >= _POLLS_WITHOUT_PARTITION:
                    raise UnknownTopic(
                        f"The cluster has no partition {listed(sorted(missing))}.",
                        remedy="Check the names. If the topic was deleted, restart without it.",
                    ) from None
                raise retried(e) from None

        return self._try(f"The offsets of {topics_in(specs)}", request)

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.Cluster.committed`.

        Uses a consumer that does not join: see :func:`~streamgroups_kafka.client.partition_conversion.committed_offsets`.
        """
        connected = self._connected.pop(group_id, None)
        if not partitions:
            if connected is not None:
                connected.close()
            return {}

        def request(_: AdminClient) -> dict[TopicPartition, Committed]:
            nonlocal connected
            consumer, connected = connected or self._new_consumer(group_id), None
            try:
                return committed_offsets(consumer, partitions, REQUEST_TIMEOUT_S)
            finally:
                consumer.close()

        return self._try(f"The offsets of group '{group_id}'", request, group_id)

    def _new_consumer(self, group_id: str) -> Consumer:
        return Consumer(self._config.for_offsets(group_id))

    def stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.stored_bytes`."""
        if not partitions:
            return {}
        # The start of a query does not wait for the import of kafka-python. It takes longer than all other modules of a
        # running query.
        with KAFKA_PYTHON:
            from streamgroups_kafka.admin.unsupported_requests import stored_bytes

        return stored_bytes(self._config, partitions)

    def group_ids(self) -> frozenset[str]:
        """The names of the consumer groups of all brokers, as far as this user may see them.

        Raises:
            StreamGroupsError: if a broker does not return its groups. A broker that is down delays a start only once.
        """

        def request(admin: AdminClient) -> frozenset[str]:
            listed = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
            for error in listed.errors:
                raise error if isinstance(error, KafkaException) else KafkaException(error)
            return frozenset(it.group_id for it in listed.valid)

        found: frozenset[str] = retrying(REQUEST_TIMEOUT_S, every_s=self._retry_interval_s)(
            lambda: self._once("The groups", request)
        )
        return found

    def describe(self, group_id: str) -> GroupDescription:
        """See :meth:`streamgroups.ports.Cluster.describe`."""

        def request(admin: AdminClient) -> Any:
            try:
                return response(request_descriptions(admin, [group_id])[group_id], REQUEST_TIMEOUT_S)
            except KafkaException as e:
                if e.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise

        description = self._try(f"Group '{group_id}'", request, group_id)
        if description is None or not description.members:
            return GroupDescription(group_id, "Empty")
        subscriptions = self._subscriptions(group_id) if self._has_subscriptions else {}
        members = tuple(
            GroupMember(
                m.client_id,
                m.host,
                frozenset(map(from_confluent, m.assignment.topic_partitions)),
                m.member_id,
                m.group_instance_id,
                subscriptions.get(m.member_id),
            )
            for m in description.members
        )
        # librdkafka does not define all states of the new protocol.
        state = "Stable" if description.state == ConsumerGroupState.STABLE else "PreparingRebalance"
        assignor = description.partition_assignor or ""
        type_ = "consumer" if description.type == ConsumerGroupType.CONSUMER else "classic"
        return GroupDescription(group_id, state, type_, assignor=assignor, members=members)

    def _subscriptions(self, group_id: str) -> dict[str, frozenset[str]]:
        """The subscriptions of the members of a classic group; empty for others (KIP-848 does not return them here)."""

        def request(admin: AdminClient) -> list[Any]:
            groups = admin.list_groups(group_id, timeout=REQUEST_TIMEOUT_S)
            for g in groups:
                if g.error is not None:
                    raise KafkaException(g.error)
            return [m for g in groups for m in g.members]

        members = self._try(f"Group '{group_id}'", request, group_id)
        try:
            return {m.id: parse_subscription(m.metadata) for m in members if m.metadata}
        except (struct.error, ValueError) as e:
            raise GroupRejected(
                f"Group '{group_id}' has live members that are not consumers, such as Kafka Connect workers.",
                remedy="Use another group.id.",
            ) from e

    def _try(self, what: str, request: Callable[[AdminClient], _T], group: str | None = None) -> _T:
        result: _T = self._retrying(self._once, what, request, group, is_retried=True)
        return result

    def _translated(
        self, error: KafkaError, what: str, *, group: str | None = None, topic: str | None = None
    ) -> StreamGroupsError:
        return to_streamgroups_error(error, what, group=group, topic=topic, redact=self._config.redact)

    def _once(
        self, what: str, request: Callable[[AdminClient], _T], group: str | None = None, *, is_retried: bool = False
    ) -> _T:
        error: StreamGroupsError
        admin, had_no_response = self._clients.current, True
        try:
            answer = request(admin)
        except KafkaException as e:
            error = self._translated(e.args[0], f"{what} could not be read", group=group, topic=topics_of(e))
            had_no_response = not is_response(e.args[0])
            if e.args[0].code() in _NEEDS_NEW_CLIENT:
                self._clients.replace(admin)
        except (BrokerUnreachable, LoginRejected) as e:
            # The leader is gone, or does not respond. Without a new client, the next request has the same leader.
            error = e
            self._clients.replace(admin)
        else:
            self._log.succeeded()
            return answer
        if isinstance(error, BrokerUnreachable):
            self._log.failed(error.what)
        if is_retried and had_no_response and isinstance(error, BrokerUnreachable | LoginRejected):
            error = self._login.judged(error)
        # Not raised from the client's error, which is not redacted.
        try:
            raise error
        finally:
            # Its traceback contains this frame. Together they would keep the client until the next garbage collection.
            del error, admin


def parse_subscription(metadata: bytes) -> frozenset[str]:
    """Parses the topics in the metadata of a classic member (``ConsumerProtocolSubscription``: version, topics, user
    data).

    Raises:
        ValueError: if these are not the bytes of a consumer.
        struct.error: likewise.

    >>> sorted(parse_subscription(bytes.fromhex("0000 00000002 0001 61 0002 6263 ffffffff")))
    ['a', 'bc']
    """
    (count,) = struct.unpack_from(">i", metadata, 2)
    at, topics = 6, set()
    # Each topic takes at least two bytes, which limits the count.
    if not 0 <= count <= (len(metadata) - at) // 2:
        raise ValueError(f"{count} topics in {len(metadata)} bytes")
    for _ in range(count):
        (length,) = struct.unpack_from(">h", metadata, at)
        if not 0 <= length <= len(metadata) - at - 2:
            raise ValueError(f"a topic of {length} bytes")
        topics.add(metadata[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return frozenset(topics)
