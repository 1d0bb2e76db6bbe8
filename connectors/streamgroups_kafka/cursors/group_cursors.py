"""Group cursors: the consumer groups of OCI Streaming, on Kafka. What a user gets as ``sg.GroupCursors``.

The composition root of cursors: it turns a user's words into claims and positions, finds the session a cursor belongs to, and
has it answer. Threads: any number of the user's; one for each instance (``session``) and one for its member
(``member``); one for partition cursors, one for the board, and one that ends the sessions of silent instances and does nothing
else: it extends no lease. Source: SEMANTICS G1-G16; the document "Using consumer groups" of OCI Streaming.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType

from streamgroups.cursors.admission import check_group_name, check_instance, check_limit
from streamgroups.cursors.session import trim
from streamgroups.cursors.starting_position import CursorType, Time, position_of
from streamgroups.cursors.state import GroupState
from streamgroups.cursors.tokens import Cursor, GroupCursor, PartitionCursor, decode, encode
from streamgroups.errors import InvalidCursor, InvalidOption, StreamGroupsError
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock
from streamgroups.positions import Position
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.group_operations import GroupOperations
from streamgroups_kafka.cursors.instances import InstanceRequest, Instances
from streamgroups_kafka.cursors.positions import REFRESH_MS, TopicIds, checked_cursor
from streamgroups_kafka.cursors.reader import PartitionReaders, RecordReader
from streamgroups_kafka.cursors.retention import GroupRetention

logger = logging.getLogger(__name__)

#: How long an iteration waits before it asks again when there was nothing.
_IDLE_S = 0.1
_SHORTEST_KEY = 16
_LEAVE_TIMEOUT_S = 45.0


class GroupCursors:
    """Reads streams with cursors, alone or as instances of a consumer group.

    Safe to call from any thread; a process may hold many instances. Closing it, which a ``with`` block does, makes all of
    them leave. Nothing is read or committed between requests, and no lease is extended: an instance that makes no request
    for longer than its timeout leaves its group.

    Args:
        bootstrap_servers: where the cluster is, ``host:port`` separated by commas.
        settings: more Kafka settings, by Java's or librdkafka's names, with or without the prefix ``kafka.``. Secrets in
            them never print.
        signing_key: what cursors are signed with, 16 bytes at least. By default a random one, so that no other process
            takes this one's cursors. Give several processes one key to let them read on with each other's partition
            cursors; an instance's cursors work only where the instance is.
        groups_per_stream: how many groups may read one stream (G14).
        join_timeout_ms: how long :meth:`create_group_cursor` waits for the first assignment. After that it returns all the
            same: the instance gets messages as soon as it gets partitions.
        clock: milliseconds since the epoch; by it leases and cursors run out. For tests: :mod:`streamgroups.fakes` has one
            that stands still.

    Raises:
        InvalidOption: names the setting and what to do. No request is sent yet.

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
        groups_per_stream: int = 50,
        join_timeout_ms: int = 30_000,
        clock: Clock | None = None,
    ) -> None:
        given = {name.removeprefix("kafka."): str(value) for name, value in (settings or {}).items()}
        if "group.id" in given or "client.id" in given:
            raise InvalidOption(
                "The settings contain 'group.id' or 'client.id'. The requests that create cursors define "
                "groups and instances.",
                remedy="Leave out 'group.id' and 'client.id'.",
            )
        if signing_key is not None and len(signing_key) < _SHORTEST_KEY:
            raise InvalidOption(
                f"signing_key has {len(signing_key)} bytes; at least {_SHORTEST_KEY} are required.",
                remedy="Create one with secrets.token_bytes(32), and store it with your other secrets.",
            )
        self._config = ClientConfig.from_options({**given, "bootstrap.servers": bootstrap_servers})
        self._key = signing_key or secrets.token_bytes(32)
        self._clock = clock or SteadyClock()
        self._cluster = KafkaCluster(
            self._config,
            read_committed=self._config.isolation_level == "read_committed",
            request_subscriptions=False,
        )
        self._metadata_store = KafkaMetadataStore(self._config)
        self._operations = GroupOperations(self._cluster, self._metadata_store, self._clock)
        self._retention = GroupRetention(self._config, self._clock, most=groups_per_stream)
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
            self._ids,
            join_timeout_ms=join_timeout_ms,
        )
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._reached = False
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
        timeout_ms: int = 30_000,
    ) -> str:
        """Makes an instance, which joins its group; the first one makes the group (G1).

        Args:
            stream: the topic.
            group_name: the consumer group.
            instance_name: the instance: a name that no live member of the group has (G3). Lists show it.
            type: where a new group starts: ``TRIM_HORIZON``, ``AT_TIME`` or ``LATEST``. A group that has committed offsets
                goes on there, and at the oldest record of partitions added since (G2).
            time: for ``AT_TIME``: a datetime with its offset from UTC, ISO 8601, or milliseconds since the epoch.
            commit_on_get: whether a request commits what the one before it returned. Otherwise call
                :meth:`consumer_commit`.
            timeout_ms: how long the instance may make no request before it leaves, in milliseconds (G6).

        Returns:
            A cursor, good for five minutes.

        Raises:
            InvalidOption: if an argument makes no sense.
            GroupRejected: if the name is taken, the group does not fit, or is one too many on its stream (G14).
            UnknownTopic: if there is no such stream.
            StreamGroupsError: if no broker answers, or the broker refuses.
        """
        check_instance(group_name, instance_name, timeout_ms)
        position = position_of(type, time=time, of_group=True)
        self._reach()
        instance_request = InstanceRequest(stream, group_name, instance_name, position, commit_on_get, timeout_ms)
        return self._token(self._instances.create(instance_request))

    def create_cursor(
        self,
        stream: str,
        partition: int,
        type: CursorType | Position | str,
        offset: int | None = None,
        time: Time | None = None,
    ) -> str:
        """Makes a cursor of one partition, which belongs to no group and commits nothing (G16).

        Args:
            stream: the topic.
            partition: its number.
            type: ``TRIM_HORIZON``, ``AT_TIME``, ``LATEST``, ``AT_OFFSET`` or ``AFTER_OFFSET``.
            offset: for ``AT_OFFSET`` and ``AFTER_OFFSET``.
            time: for ``AT_TIME``, as for :meth:`create_group_cursor`.

        Returns:
            A cursor, good for five minutes.

        Raises:
            InvalidOption: if an argument makes no sense, or there is no such offset.
            UnknownTopic: if there is no such stream or partition.
            StreamGroupsError: if no broker answers, or the broker refuses.
        """
        position = position_of(type, time=time, offset=offset, of_group=False)
        self._reach()
        tp = TopicPartition(stream, partition)
        self._operations.check_partition(tp)
        identity = self._ids.of([stream], fresh=True)[stream]
        return self._token(PartitionCursor(stream, partition, self._operations.offsets(position, [tp])[tp], identity))

    def get_messages(self, cursor: str, limit: int | None = None) -> tuple[list[Message], str]:
        """Reads on (G4). One cursor always gives the same messages, until what comes after them is committed.

        Args:
            cursor: what the last request returned. For a group with ``commit_on_get`` this commits what it covers.
            limit: how many messages at most, 1 to 10,000; by default as many as fit one fetch.

        Returns:
            The messages, none if there are none now, and the next cursor.

        Raises:
            InvalidOption: if the limit is none.
            CursorExpired: if the cursor was returned more than five minutes ago (G5).
            InvalidCursor: if it was altered, or is not this process's.
            FencedMember: if the instance is no longer in its group (G6, G7).
            DataLoss: if what is to be read is gone, or belongs to another topic or cluster.
            StreamGroupsError: if no broker answers. The cursor stays good.
        """
        most = check_limit(limit)
        claims = self._claims(cursor)
        if isinstance(claims, PartitionCursor):
            claims = checked_cursor(self._ids, claims)
            tp = TopicPartition(claims.stream, claims.partition)
            messages, next_offset = self._partitions.read(tp, claims.next_offset, most)
            return list(messages), self._token(replace(claims, next_offset=next_offset))
        messages, after = self._instances.find(claims).get(claims, most)
        return list(messages), self._token(after)

    def consumer_heartbeat(self, cursor: str) -> str:
        """Says that the instance still works, without reading or committing (G6).

        Args:
            cursor: of the instance; it stays good, too.

        Returns:
            The same cursor, good for five minutes from now.

        Raises:
            CursorExpired, InvalidCursor, FencedMember: as for :meth:`get_messages`.
        """
        claims = self._group_metadata_of(cursor)
        self._instances.find(claims).heartbeat()
        return self._token(claims)

    def consumer_commit(self, cursor: str) -> str:
        """Commits what the cursor covers, without reading more (G7).

        Args:
            cursor: of the instance.

        Returns:
            The cursor for the next request.

        Raises:
            FencedMember: if the instance is no longer in its group, or something it was given is another's now: that is
                not committed.
            CursorExpired, InvalidCursor: as for :meth:`get_messages`.
            StreamGroupsError: if no broker answers. The cursor stays good.
        """
        claims = self._group_metadata_of(cursor)
        return self._token(self._instances.find(claims).commit(claims))

    def leave_group(self, cursor: str) -> None:
        """The instance leaves now, without anybody waiting for its timeout. What it has not committed is left to the others.

        Args:
            cursor: of the instance.

        Raises:
            CursorExpired, InvalidCursor: as for :meth:`get_messages`.
        """
        claims = self._group_metadata_of(cursor)
        session = self._instances.find(claims)
        session.end(f"Instance '{claims.instance}' left group '{claims.group}' by leave_group.")
        session.wait_until_left(_LEAVE_TIMEOUT_S)

    def messages(
        self,
        stream: str,
        group_name: str,
        instance_name: str,
        type: CursorType | Position | str,
        time: Time | None = None,
        timeout_ms: int = 30_000,
        limit: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> Iterator[Message]:
        """Makes an instance and iterates over its messages. Asking for a message says that the one before it is done.

        When the iteration ends, for whatever reason, what is done is committed and the instance leaves. The message that a
        loop was left with ``break`` at is not done: it comes again.

        Args:
            stream, group_name, instance_name, type, time: as for :meth:`create_group_cursor`.
            timeout_ms: how long one message may take; asking for the next one is a heartbeat.
            limit: how many messages are fetched at once, 1 to 10,000.
            idle_timeout_ms: ends the iteration when nothing came for so long; by default it goes on for ever.

        Returns:
            An iterator. The instance is made now, not when the first message is asked for.

        Raises:
            StreamGroupsError: as for :meth:`create_group_cursor`; and, when iterating, as for :meth:`get_messages`.
        """
        check_limit(limit)
        cursor = self.create_group_cursor(stream, group_name, instance_name, type, time, timeout_ms=timeout_ms)
        return self._iterate(cursor, timeout_ms, limit, idle_timeout_ms)

    # ---- groups ------------------------------------------------------------------------------------------------------

    def get_group(self, stream: str, group_name: str) -> GroupState:
        """Each partition with its committed offset, the instance that holds it and until when (G9).

        Raises:
            UnknownTopic: if there is no such stream.
            StreamGroupsError: if no broker answers, or the broker refuses.
        """
        check_group_name(group_name)
        self._reach()
        return self._operations.describe(stream, group_name)

    def update_group(
        self, stream: str, group_name: str, type: CursorType | Position | str, time: Time | None = None
    ) -> GroupState:
        """Moves every position of a group, also while its instances consume (G8).

        They go on from the new place at their next request. What they were given before it and have not committed is not
        committed any more.

        Args:
            stream: the topic.
            group_name: the group.
            type: ``TRIM_HORIZON``, ``AT_TIME`` or ``LATEST``.
            time: for ``AT_TIME``, as for :meth:`create_group_cursor`.

        Returns:
            The group, with the places its instances have still to move to.

        Raises:
            GroupRejected: if there is no such group, or it has live members that are no instances of group cursors.
            InvalidOption, UnknownTopic, StreamGroupsError: as for :meth:`create_group_cursor`.
        """
        check_group_name(group_name)
        position = position_of(type, time=time, of_group=True)
        self._reach()
        self._operations.move(stream, group_name, position)
        return self._operations.describe(stream, group_name)

    def sweep_groups(self, stream: str) -> list[str]:
        """Deletes the groups that were unused for as long as the stream keeps its messages (G15).

        It also happens by itself: to a group when an instance of it is made, to all of a stream when one more would be
        refused. Only groups that were read with cursors are looked at: of others Kafka notes no use, and forgets them by itself
        after ``offsets.retention.minutes``.

        Returns:
            Their names.
        """
        self._reach()
        return self._retention.sweep(stream)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """All instances leave their groups. Idempotent; it is also done when the interpreter exits."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        atexit.unregister(self.close)
        self._instances.close()
        self._partitions.close()
        self._metadata_store.close()

    def __enter__(self) -> GroupCursors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._config).replace("ClientConfig", "GroupCursors", 1)

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _iterate(self, cursor: str, timeout_ms: int, limit: int | None, idle_ms: int | None) -> Iterator[Message]:
        before = after = cursor
        handled: list[tuple[TopicPartition, int]] = []
        heard_ms = came_ms = self._clock()
        try:
            while True:
                messages, after = self.get_messages(before, limit)
                heard_ms = now_ms = self._clock()
                for message in messages:
                    yield message
                    handled.append((message.topic_partition, message.offset))
                    now_ms = self._clock()
                    if now_ms - heard_ms > timeout_ms // 3:
                        after, heard_ms = self.consumer_heartbeat(after), now_ms
                before, handled = after, []
                if messages:
                    came_ms = now_ms
                elif (idle_ms is not None and now_ms - came_ms >= idle_ms) or self._closed.wait(_IDLE_S):
                    return
        finally:
            self._end_iteration(before, after, handled)

    def _end_iteration(self, before: str, after: str, handled: list[tuple[TopicPartition, int]]) -> None:
        """Commits what is done and leaves; if it cannot, others read it again."""
        try:
            had, got = self._group_metadata_of(before), self._group_metadata_of(after)
            session = self._instances.find(got)
            try:
                if session.ended is None:
                    session.commit(replace(got, covers=trim(had.covers, got.covers, handled)))
            finally:
                self.leave_group(after)
        except StreamGroupsError as e:
            logger.warning("The end of an iteration was not committed: %s", e)

    def _reach(self) -> None:
        """One round trip before anything else: an address where nobody answers is told quickly."""
        self._check_open()
        if not self._reached:
            self._cluster.check_reachable()
            self._reached = True

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StreamGroupsError("These GroupCursors are closed.", remedy="Create new ones.")

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
        return RecordReader(self._config, group_id="streamgroups", client_id=None, offsets=self._cluster)
