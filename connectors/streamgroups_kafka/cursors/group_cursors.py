"""Group cursors: the consumer groups of OCI Streaming, on Kafka. The public name is ``sg.cursors.GroupCursors``.

The composition root of cursors, called by the user: it decodes arguments and tokens, and forwards each request to the
session of the cursor. Threads: any number of threads of the user; one for each instance (``instance_session``) and one for its
member (``instance_member``). One thread reads for partition cursors, one uses the metadata groups, and one ends the sessions of
silent instances. The last one never extends a lease. Source: SEMANTICS G1-G16; the document "Using consumer groups" of
OCI Streaming.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from weakref import WeakSet

from streamgroups.cursors.argument_checks import MAX_GROUPS_PER_TOPIC, check_group_name, check_instance, check_limit
from streamgroups.cursors.cursor_tokens import Cursor, GroupCursor, PartitionCursor, decode, encode
from streamgroups.cursors.group_state import GroupState
from streamgroups.cursors.starting_position import CursorType, Time, position_of
from streamgroups.errors import InvalidCursor, InvalidOption, StreamGroupsError
from streamgroups.message import Message
from streamgroups.option_values import folded, without_prefix
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock
from streamgroups.positions import Position
from streamgroups.printable import listed
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock, now_ms
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.closing import ClosableMetadataStore, Closed, closed_error
from streamgroups_kafka.cursors.group_cleanup import GroupRetention
from streamgroups_kafka.cursors.group_operations import GroupOperations
from streamgroups_kafka.cursors.instances import InstanceRequest, Instances
from streamgroups_kafka.cursors.iteration import Iteration
from streamgroups_kafka.cursors.position_checks import REFRESH_MS, TopicIds, checked_cursor
from streamgroups_kafka.cursors.reader import PartitionReaders, RecordReader

_SHORTEST_KEY = 16


class GroupCursors:
    """Reads streams with cursors, alone or as instances of a consumer group.

    Safe to call from any thread; a process may have many instances. When it is closed, also at the end of a ``with``
    block, all instances leave their groups. Between requests it reads nothing, commits nothing and extends no lease. An
    instance that sends no request for longer than its timeout leaves its group.

    Args:
        bootstrap_servers: the brokers, as ``host:port`` separated by commas.
        settings: further Kafka settings with their Java or librdkafka names, with or without the prefix ``kafka.``.
            Their secrets are never printed.
        signing_key: the key that signs cursors, at least 16 bytes. The default is a random key, so other processes
            reject the cursors. With a common key, several processes can use the same partition cursors. The cursors of
            an instance are valid only in its process.
        groups_per_stream: the maximum number of groups that read one stream (G14).
        join_timeout_ms: how long :meth:`create_group_cursor` waits for the first assignment, in milliseconds. After the
            timeout it returns a cursor too: the instance gets messages as soon as it gets partitions.
        clock: returns milliseconds since the epoch. Leases and cursors expire by this clock. :mod:`streamgroups.fakes`
            has a manual clock for tests.

    Raises:
        InvalidOption: if a setting is invalid. The error contains the setting and a remedy. No request has been sent.

    >>> GroupCursors("localhost:9092", {"sesion.timeout.ms": "6000"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.sesion.timeout.ms' is unknown. Did you mean 'kafka.session.timeout.ms'?
    """

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        signing_key: bytes | None = None,
        groups_per_stream: int = MAX_GROUPS_PER_TOPIC,
        join_timeout_ms: int = 30_000,
        clock: Clock | None = None,
    ) -> None:
        given = folded((name, str(it)) for name, it in without_prefix((settings or {}).items()))
        if defined := given.keys() & {"group.id", "client.id", "group.instance.id"}:
            raise InvalidOption(
                f"The settings contain {listed(map(repr, sorted(defined)))}. The requests that create cursors define "
                "groups and instances.",
                remedy="Leave them out.",
            )
        for name, value, least in (
            ("groups_per_stream", groups_per_stream, 1),
            ("join_timeout_ms", join_timeout_ms, 0),
        ):
            if type(value) is not int or value < least:
                raise InvalidOption(f"{name} is {value!r}.", remedy=f"It must be a whole number of at least {least}.")
        if signing_key is not None and len(signing_key) < _SHORTEST_KEY:
            raise InvalidOption(
                f"signing_key has {len(signing_key)} bytes; at least {_SHORTEST_KEY} are required.",
                remedy="Create one with secrets.token_bytes(32), and store it with your other secrets.",
            )
        self._config = ClientConfig.from_options({**given, "bootstrap.servers": bootstrap_servers})
        self._key = signing_key or secrets.token_bytes(32)
        self._clock = clock or SteadyClock()
        wall_clock = clock or now_ms
        self._cluster = KafkaCluster(
            self._config,
            read_committed=self._config.isolation_level == "read_committed",
            request_subscriptions=False,
        )
        self._closed = Closed()
        self._metadata_store = ClosableMetadataStore(KafkaMetadataStore(self._config), self._closed)
        self._operations = GroupOperations(self._cluster, self._metadata_store, wall_clock)
        self._retention = GroupRetention(self._config, wall_clock, most=groups_per_stream)
        refresh_ms = int(self._config.get("topic.metadata.refresh.interval.ms") or REFRESH_MS)
        self._ids = TopicIds(self._cluster, self._clock, refresh_ms=refresh_ms)
        self._partitions = PartitionReaders(self._new_reader)
        self._instances = Instances(
            self._config,
            self._cluster,
            self._metadata_store,
            self._operations,
            self._retention,
            self._clock,
            wall_clock,
            self._ids,
            join_timeout_ms=join_timeout_ms,
        )
        # A signal handler can call close() while this thread holds the lock.
        self._lock = threading.RLock()
        # Protected by _lock.
        self._iterations: WeakSet[Iteration] = WeakSet()
        self._reached = False
        # A forked process has a copy of this object, but none of its threads.
        self._process = os.getpid()
        atexit.register(self.close)

    # ---- cursors -----------------------------------------------------------------------------------------------------

    def create_group_cursor(
        self,
        stream: str,
        group_name: str,
        instance_name: str,
        type: CursorType | Position | str,
        time: Time | None = None,
        commit_on_get: bool = True,
        lease_timeout_ms: int = 30_000,
    ) -> str:
        """Creates an instance, which joins its group. The first instance creates the group (G1).

        Args:
            stream: the topic.
            group_name: the consumer group.
            instance_name: the name of the instance, unique among the live members of the group (G3): 1 to 249 printable
                characters, at most 1,494 bytes as JSON. Kafka's tools show it.
            type: the starting position of a new group: ``TRIM_HORIZON``, ``AT_TIME`` or ``LATEST``. A group with
                committed offsets continues there. Partitions that were added since start at the earliest offset (G2).
            time: for ``AT_TIME``: a datetime, ISO 8601, or milliseconds since the epoch. Without a time zone it is UTC.
            commit_on_get: whether a request commits the messages of the previous request. Otherwise call
                :meth:`consumer_commit`.
            lease_timeout_ms: the time without requests after which the instance leaves its group, in milliseconds (G6).

        Returns:
            A cursor that is valid for five minutes.

        Raises:
            InvalidOption: if an argument is invalid.
            GroupRejected: if the name is in use, the group is incompatible, or the stream has too many groups (G14).
            UnknownTopic: if the stream does not exist.
            StreamGroupsError: if no broker responds, or the broker rejects the request.
        """
        check_instance(group_name, instance_name, lease_timeout_ms)
        position = position_of(type, time=time, of_group=True)
        self._reach()
        instance_request = InstanceRequest(stream, group_name, instance_name, position, commit_on_get, lease_timeout_ms)
        return self._token(self._instances.create(instance_request))

    def create_cursor(
        self,
        stream: str,
        partition: int,
        type: CursorType | Position | str,
        offset: int | None = None,
        time: Time | None = None,
    ) -> str:
        """Creates a cursor of one partition, which belongs to no group and commits nothing (G16).

        Args:
            stream: the topic.
            partition: the number of the partition.
            type: ``TRIM_HORIZON``, ``AT_TIME``, ``LATEST``, ``AT_OFFSET`` or ``AFTER_OFFSET``.
            offset: for ``AT_OFFSET`` and ``AFTER_OFFSET``.
            time: for ``AT_TIME``, as for :meth:`create_group_cursor`.

        Returns:
            A cursor that is valid for five minutes.

        Raises:
            InvalidOption: if an argument is invalid, or the offset does not exist.
            UnknownTopic: if the stream or the partition does not exist.
            StreamGroupsError: if no broker responds, or the broker rejects the request.
        """
        position = position_of(type, time=time, offset=offset, of_group=False)
        self._reach()
        tp = TopicPartition(stream, partition)
        self._operations.check_partition(tp)
        identity = self._ids.of([stream], fresh=True)[stream]
        return self._token(PartitionCursor(stream, partition, self._operations.offsets(position, [tp])[tp], identity))

    def get_messages(self, cursor: str, limit: int | None = None) -> tuple[list[Message], str]:
        """Reads the next messages (G4).

        The same cursor of an instance returns the same messages, until later messages are committed. A partition cursor reads
        from its offset each time, also messages that have arrived since.

        Args:
            cursor: the cursor that the last request returned. With ``commit_on_get``, the request commits the messages
                that it covers.
            limit: the maximum number of messages, 1 to 10,000. The default is as many as one fetch contains.

        Returns:
            The messages, possibly an empty list, and the next cursor.

        Raises:
            InvalidOption: if the limit is invalid.
            CursorExpired: if the cursor was returned more than five minutes ago (G5).
            InvalidCursor: if the cursor was altered, or belongs to another process.
            FencedMember: if the instance is no longer in its group (G6, G7).
            DataLoss: if the messages were deleted, or the cursor belongs to another topic or cluster.
            StreamGroupsError: if no broker responds. The cursor stays valid.
        """
        most = check_limit(limit)
        claims = self._claims(cursor)
        if isinstance(claims, PartitionCursor):
            claims = checked_cursor(self._ids, claims)
            tp = TopicPartition(claims.stream, claims.partition)
            messages, next_offset = self._partitions.read(tp, claims.identity, claims.next_offset, most)
            return list(messages), self._token(replace(claims, next_offset=next_offset))
        messages, after = self._instances.find(claims).get(claims, most)
        return list(messages), self._token(after)

    def consumer_heartbeat(self, cursor: str) -> str:
        """Extends the lease of the instance, without reading or committing (G6).

        Args:
            cursor: a cursor of the instance. It stays valid, too.

        Returns:
            The same cursor, valid for five minutes from now.

        Raises:
            CursorExpired, InvalidCursor, FencedMember: as for :meth:`get_messages`.
        """
        claims = self._group_metadata_of(cursor)
        self._instances.find(claims).heartbeat()
        return self._token(claims)

    def consumer_commit(self, cursor: str) -> str:
        """Commits the messages that the cursor covers, without reading (G7).

        Args:
            cursor: a cursor of the instance.

        Returns:
            The cursor for the next request.

        Raises:
            FencedMember: if the instance is no longer in its group. Or if another instance owns some of its partitions,
                or their offsets were reset: their messages are not committed, and the cursor stays valid for
                :meth:`get_messages`.
            CursorExpired, InvalidCursor: as for :meth:`get_messages`.
            StreamGroupsError: if no broker responds. The cursor stays valid.
        """
        claims = self._group_metadata_of(cursor)
        return self._token(self._instances.find(claims).commit(claims))

    def leave_group(self, cursor: str) -> None:
        """Makes the instance leave its group now, before its timeout. Other instances read its uncommitted messages.

        Args:
            cursor: a cursor of the instance.

        Raises:
            CursorExpired, InvalidCursor: as for :meth:`get_messages`.
        """
        claims = self._group_metadata_of(cursor)
        session = self._instances.find(claims)
        session.end(f"Instance '{claims.instance}' left group '{claims.group}' by leave_group.")
        session.wait_until_left()

    def messages(
        self,
        stream: str,
        group_name: str,
        instance_name: str,
        type: CursorType | Position | str,
        time: Time | None = None,
        lease_timeout_ms: int = 30_000,
        limit: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> Iterator[Message]:
        """Creates an instance and iterates over its messages. The request for a message marks the previous message as
        processed.

        When the iteration ends, for any reason, the instance commits the processed messages and leaves. If a loop ends
        with ``break``, its last message is not processed: it is read again. :meth:`close` in another thread ends the
        iteration, too: with the next request for a message it has no more messages. An iterator that the program no longer
        uses ends when Python deletes it. If the garbage collector deletes it, the instance leaves in the background.

        Args:
            stream, group_name, instance_name, type, time: as for :meth:`create_group_cursor`.
            lease_timeout_ms: the maximum processing time of one message, in milliseconds. The request for the next
                message is a heartbeat.
            limit: the maximum number of messages in one fetch, 1 to 10,000.
            idle_timeout_ms: the time without messages after which the iteration ends, in milliseconds. By default it
                does not end.

        Returns:
            An iterator. This call creates the instance, before the first message is requested.

        Raises:
            StreamGroupsError: as for :meth:`create_group_cursor`; during the iteration, as for :meth:`get_messages`.
        """
        most = check_limit(limit)
        cursor = self.create_group_cursor(
            stream, group_name, instance_name, type, time, lease_timeout_ms=lease_timeout_ms
        )
        iteration = Iteration(
            self._instances.find(self._group_metadata_of(cursor)),
            limit=most,
            idle_timeout_ms=idle_timeout_ms,
            clock=self._clock,
            closed=self._closed,
        )
        with self._lock:
            self._iterations.add(iteration)
        return iteration.messages()

    # ---- groups ------------------------------------------------------------------------------------------------------

    def get_group(self, stream: str, group_name: str) -> GroupState:
        """Returns each partition with its committed offset, its owner, and the end of the owner's lease (G9).

        Raises:
            UnknownTopic: if the stream does not exist.
            StreamGroupsError: if no broker responds, or the broker rejects the request.
        """
        check_group_name(group_name)
        self._reach()
        return self._operations.describe(stream, group_name)

    def update_group(
        self, stream: str, group_name: str, type: CursorType | Position | str, time: Time | None = None
    ) -> GroupState:
        """Resets all offsets of a group, also while its instances consume (G8).

        The instances continue at the new positions with their next request. Messages that they have read and not
        committed before can no longer be committed.

        Args:
            stream: the topic.
            group_name: the group.
            type: ``TRIM_HORIZON``, ``AT_TIME`` or ``LATEST``.
            time: for ``AT_TIME``, as for :meth:`create_group_cursor`.

        Returns:
            The group, with the positions that its instances have not applied yet.

        Raises:
            GroupRejected: if the group does not exist, has live members that do not apply reset requests, or is rebalancing for
                longer than 3 s.
            InvalidOption, UnknownTopic, StreamGroupsError: as for :meth:`create_group_cursor`.
        """
        check_group_name(group_name)
        position = position_of(type, time=time, of_group=True)
        self._reach()
        self._operations.move(stream, group_name, position)
        return self._operations.describe(stream, group_name)

    def sweep_groups(self, stream: str) -> list[str]:
        """Deletes the groups that were unused for longer than the retention time of the stream (G15).

        Other requests do this too: a new instance checks its own group, and a new group checks all groups of a full
        stream. Only groups whose offsets were committed by instances are deleted. Kafka deletes the offsets of other groups,
        such as those of stopped Spark queries, after ``offsets.retention.minutes``.

        Returns:
            The names of the deleted groups.
        """
        self._reach()
        return self._retention.sweep(stream)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Makes all instances leave their groups. An iteration commits its processed messages first. A further call waits for
        instances that have not left yet. The exit of the interpreter calls it too, and commits in the same way.

        A signal handler can call it, also during a request or another call of it. That request raises an error or returns as
        usual, and an iteration has no more messages. The call waits up to 45 s for each instance. In a forked process it does
        nothing.
        """
        if self._process != os.getpid():
            return
        self._closed.set()
        with self._lock:
            iterations = list(self._iterations)
        for iteration in iterations:
            iteration.end()
        have_left = self._instances.close()
        if self._partitions.close(self._metadata_store.close) and have_left:
            # Until then, the exit of the interpreter waits.
            atexit.unregister(self.close)

    def __enter__(self) -> GroupCursors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._config).replace("ClientConfig", "GroupCursors", 1)

    # ---- private -----------------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        """Makes one round trip first, so that an unreachable address fails fast."""
        self._check_open()
        if not self._reached:
            self._cluster.check_reachable()
            self._reached = True

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()
        if self._process != os.getpid():
            raise StreamGroupsError(
                "These GroupCursors belong to another process.", remedy="Create new ones in this process."
            )

    def _claims(self, cursor: str) -> Cursor:
        self._check_open()
        return decode(cursor, self._key, self._clock())

    def _group_metadata_of(self, cursor: str) -> GroupCursor:
        claims = self._claims(cursor)
        if isinstance(claims, GroupCursor):
            return claims
        raise InvalidCursor(
            f"This cursor of partition {claims.stream}-{claims.partition} belongs to no group.",
            remedy="It needs no heartbeat and no commit. To join a group, use create_group_cursor.",
        )

    def _token(self, cursor: Cursor) -> str:
        return encode(cursor, self._key, self._clock())

    def _new_reader(self) -> RecordReader:
        return RecordReader(self._config, group_id="streamgroups", client_id=None, offsets=self._cluster, ids=self._ids)
