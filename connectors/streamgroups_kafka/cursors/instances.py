"""The instances of one process: making them, finding them by their cursors, ending those that are silent.

Made by ``group_cursors``. What an instance is allowed to be called, and whether its group may be new, is decided before anybody
joins. Source: SEMANTICS G1-G3, G6, G14, G15.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from streamgroups.coordination.reset_protocol import members_group_of
from streamgroups.cursors.admission import check_name_is_free
from streamgroups.cursors.tokens import LIFETIME_MS, GroupCursor
from streamgroups.errors import FencedMember, GroupRejected, InvalidCursor
from streamgroups.groups.join_policy import MembershipMode, check_may_join
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Member, MetadataStore, Recorder
from streamgroups.positions import Position
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors.group_operations import GroupOperations
from streamgroups_kafka.cursors.positions import TopicIds, checked
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.cursors.retention import GroupRetention
from streamgroups_kafka.cursors.session import InstanceSession, Outside
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.settings import MemberSettings

logger = logging.getLogger(__name__)

#: How often it is looked for instances that were silent for too long, and for the seat of one that joins.
_POLL_S = 0.2
#: How often an instance follows orders between requests: others wait for it.
_POLL_RESET_REQUESTS_S = 0.4
_LEAVE_TIMEOUT_S = 45.0
#: How often two instances that took one name at the same moment step back and try again.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """An instance that somebody wants.

    Args:
        stream: the topic.
        group: the consumer group.
        instance: the member's name.
        position: where the group starts if it is new.
        commit_on_get: whether a request commits what the one before it returned.
        timeout_ms: how long the instance may be silent.
    """

    stream: str
    group: str
    instance: str
    position: Position
    commit_on_get: bool
    timeout_ms: int


class Instances:
    """All instances of one process. Safe to call from any thread.

    Args:
        config: how to reach the cluster.
        cluster: topics and groups.
        board: the groups' notes.
        desk: groups seen from outside.
        census: which groups read a stream.
        clock: the time now.
        ids: the ids of topics.
        join_timeout_ms: how long the first assignment of an instance is waited for.
    """

    def __init__(
        self,
        config: ClientConfig,
        cluster: KafkaCluster,
        metadata_store: MetadataStore,
        operations: GroupOperations,
        retention: GroupRetention,
        clock: Clock,
        ids: TopicIds,
        *,
        join_timeout_ms: int,
    ) -> None:
        self._config, self._cluster, self._metadata_store, self._clock = config, cluster, metadata_store, clock
        self._operations, self._retention, self._ids, self._join_timeout_ms = (
            operations,
            retention,
            ids,
            join_timeout_ms,
        )
        self._lock = threading.Lock()
        # Under _lock: names being joined; sessions by their own names; why those that ended did, and when to forget it.
        self._joining: set[tuple[str, str]] = set()
        self._sessions: dict[str, InstanceSession] = {}
        self._ended: dict[str, tuple[FencedMember, int]] = {}
        self._closing = threading.Event()
        self._keeper: threading.Thread | None = None

    def create(self, instance_request: InstanceRequest) -> GroupCursor:
        """Makes an instance, and its group if that is new; returns its first cursor.

        Raises:
            GroupRejected: if the name is taken (G3), the group does not fit, or is one too many on its stream (G14).
            StreamGroupsError: if the broker refuses.
        """
        name = (instance_request.group, instance_request.instance)
        self._check_free_here(instance_request)
        with self._lock:
            if name in self._joining:
                raise _taken(instance_request, "is joining from this process")
            self._joining.add(name)
        try:
            session = self._join_alone(instance_request)
        finally:
            with self._lock:
                self._joining.discard(name)
        return session.identity

    def find(self, cursor: GroupCursor) -> InstanceSession:
        """The session that a cursor belongs to.

        Raises:
            FencedMember: if it has ended.
            InvalidCursor: if there is none here.
        """
        with self._lock:
            session = self._sessions.get(cursor.session)
            ended = self._ended.get(cursor.session)
        if session is not None:
            return session
        if ended is not None:
            raise FencedMember(ended[0].what, remedy=ended[0].remedy)
        raise InvalidCursor(
            f"This cursor belongs to instance '{cursor.instance}' of group '{cursor.group}', which does not "
            "run in this process.",
            remedy="Use it in the process that created it, or create an instance here with create_group_cursor.",
        )

    def close(self) -> None:
        """All instances leave. Waits until they have."""
        self._closing.set()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.end(f"Instance '{session.identity.instance}' left: its GroupCursors were closed.")
        for session in sessions:
            session.wait_until_left(_LEAVE_TIMEOUT_S)

    # ---- creating ----------------------------------------------------------------------------------------------------

    def _check_free_here(self, instance_request: InstanceRequest) -> None:
        """The instances of this process are known better than the broker knows them."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            if (session.identity.group, session.identity.instance) != (
                instance_request.group,
                instance_request.instance,
            ):
                continue
            if not session.end_if_silent():
                until = datetime.fromtimestamp(session.lease.until_ms / 1000, timezone.utc)
                raise _taken(
                    instance_request,
                    f"is live in this process until {until:%H:%M:%S} UTC, and longer if it sends another request",
                )
            session.wait_until_left(_LEAVE_TIMEOUT_S)

    def _join_alone(self, instance_request: InstanceRequest) -> InstanceSession:
        """Joins under a name that nobody else has. Two that join at the same moment both step back, and try again."""
        attempts_left = _ATTEMPTS
        while True:
            starting = self._admit(instance_request)
            session = self._join(instance_request, starting)
            attempts_left -= 1
            try:
                check_name_is_free(self._cluster.describe(instance_request.group), instance_request.instance, own=1)
            except BaseException as e:
                session.end(
                    f"Instance '{instance_request.instance}' left group '{instance_request.group}': another member uses its name."
                )
                session.wait_until_left(_LEAVE_TIMEOUT_S)
                if not isinstance(e, GroupRejected) or not attempts_left:
                    raise
                self._closing.wait(random.uniform(0.2, 1.5))
                continue
            with self._lock:
                self._sessions[session.identity.session] = session
            self._keep()
            return session

    def _admit(self, instance_request: InstanceRequest) -> dict[TopicPartition, int]:
        """Checks everything that can be checked before joining; returns where a new group starts."""
        partitions = self._operations.partitions(instance_request.stream)
        live = self._cluster.describe(instance_request.group)
        check_may_join(live, frozenset({instance_request.stream}), by_pattern=False, mode=MembershipMode.SHARED)
        check_name_is_free(live, instance_request.instance)
        if self._metadata_store.read(instance_request.group, partitions):
            if live.members or not self._vanished(instance_request, partitions):
                return {}
        elif not live.members:
            self._retention.check_room(instance_request.stream, instance_request.group)
        return self._operations.offsets(instance_request.position, partitions)

    def _vanished(self, instance_request: InstanceRequest, partitions: Collection[TopicPartition]) -> bool:
        """Whether the group had been unused for as long as its stream keeps messages, and has been deleted therefore (G15)."""
        noted = self._metadata_store.read(members_group_of(instance_request.group), partitions)
        return bool(noted) and self._retention.sweep(instance_request.stream, instance_request.group) == [
            instance_request.group
        ]

    def _join(self, instance_request: InstanceRequest, starting: Mapping[TopicPartition, int]) -> InstanceSession:
        reader = RecordReader(
            self._config,
            group_id=instance_request.group,
            client_id=instance_request.instance,
            offsets=self._cluster,
        )
        session = InstanceSession(
            GroupCursor(
                instance_request.stream, instance_request.group, instance_request.instance, secrets.token_hex(8)
            ),
            self._member_of(instance_request, starting),
            Outside(self._cluster, self._metadata_store, reader, self._clock, self._ids),
            timeout_ms=instance_request.timeout_ms,
            commit_on_get=instance_request.commit_on_get,
        )
        with self._lock:
            siblings = [s for s in self._sessions.values() if s.identity.group == instance_request.group]
        try:
            session.join(self._join_timeout_ms, self._whether_pointless(instance_request, siblings))
        except BaseException:
            session.end(f"Instance '{instance_request.instance}' could not join group '{instance_request.group}'.")
            raise
        return session

    def _whether_pointless(
        self, instance_request: InstanceRequest, siblings: Collection[InstanceSession]
    ) -> Callable[[], bool]:
        """Tells, while an instance waits for its first assignment, when there is nothing to wait for."""
        next_poll_s = time.monotonic() + _POLL_S

        def pointless() -> bool:
            nonlocal next_poll_s
            # A sibling may wait for a request of this very thread before it gives a partition back.
            if any(s.holds_up for s in siblings):
                return True
            if time.monotonic() < next_poll_s:
                return False
            # An instance too many (G10): of an empty assignment the consumer protocol says nothing (KIP-848).
            surplus = self._cluster.describe(instance_request.group).has_nothing_for(instance_request.instance)
            next_poll_s = time.monotonic() + _POLL_S
            return surplus

        return pointless

    def _member_of(
        self, instance_request: InstanceRequest, starting: Mapping[TopicPartition, int]
    ) -> Callable[[Recorder], Member]:
        def first_positions(missing: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
            """Runs on the member's thread. What is not committed in a group that is not new was added later (G2)."""
            added = self._cluster.beginning_offsets([tp for tp in missing if tp not in starting])
            return {tp: Owned(n, Origin.OLDEST) for tp, n in added.items()} | {
                tp: Owned(starting[tp], Origin.STARTING) for tp in missing if tp in starting
            }

        settings = MemberSettings(
            group_id=instance_request.group,
            name=instance_request.instance,
            consumer=self._config.for_member(instance_request.group, client_id=instance_request.instance),
            topics=lambda: [instance_request.stream],
            rebalance_timeout_ms=int(self._config.get("max.poll.interval.ms") or 300_000),
            redact=self._config.redact,
            take_over=lambda owned: checked(
                self._ids.of({tp.topic for tp in owned}, fresh=True), instance_request.group, owned
            ),
        )
        return lambda record: KafkaMember(settings, first_positions, record)

    # ---- ending those that are silent --------------------------------------------------------------------------------

    def _keep(self) -> None:
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._watch, name="streamgroups-leases", daemon=True)
                self._keeper.start()

    def _watch(self) -> None:
        next_reset_poll_s = 0.0
        while not self._closing.wait(_POLL_S):
            with self._lock:
                sessions = dict(self._sessions)
            over = {name: session for name, session in sessions.items() if session.end_if_silent()}
            if time.monotonic() >= next_reset_poll_s:
                next_reset_poll_s = time.monotonic() + _POLL_RESET_REQUESTS_S
                for name in sessions.keys() - over.keys():
                    sessions[name].poll_reset_requests()
            now_ms = self._clock()
            with self._lock:
                for name, session in over.items():
                    ended = session.ended
                    # Until the group has been told, others must be able to wait for that.
                    if ended is not None and session.has_departed:
                        del self._sessions[name]
                        self._ended[name] = (ended, now_ms + LIFETIME_MS)
                self._ended = {name: e for name, e in self._ended.items() if e[1] >= now_ms}


def _taken(instance_request: InstanceRequest, why: str) -> GroupRejected:
    return GroupRejected(
        f"Instance '{instance_request.instance}' of group '{instance_request.group}' {why}.",
        remedy="Use another name for this instance, or continue with the cursors of the existing one.",
    )
