"""The instances of one process: creates them, finds them by their cursors, and ends silent ones.

``group_cursors`` creates it. Names of instances and limits of new groups are checked before an instance joins. Source:
SEMANTICS G1-G3, G6, G14, G15.
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
from streamgroups.cursors.argument_checks import check_name_is_free
from streamgroups.cursors.cursor_tokens import LIFETIME_MS, GroupCursor
from streamgroups.errors import FencedMember, GroupRejected, InvalidCursor
from streamgroups.groups.commit_metadata import is_held_exclusively
from streamgroups.groups.join_policy import MembershipMode, check_may_join
from streamgroups.groups.membership import Origin, Owned
from streamgroups.groups.program import CURSORS, OnOtherProgram, check_program, forms_in
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Member, MetadataStore, Recorder
from streamgroups.positions import Position
from streamgroups.retry import comes_true
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.job_thread import is_collecting
from streamgroups_kafka.cursors.closing import Closed, closed_error
from streamgroups_kafka.cursors.group_cleanup import GroupRetention
from streamgroups_kafka.cursors.group_operations import GroupOperations
from streamgroups_kafka.cursors.instance_session import LEAVE_TIMEOUT_S, InstanceSession, Outside
from streamgroups_kafka.cursors.position_checks import AssignedPositions, TopicIds
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings

logger = logging.getLogger(__name__)

#: The interval of checks for expired leases, and for the assignment of a joining instance.
_POLL_S = 0.2
#: How often an instance applies reset requests between requests of the user. Other members wait for it.
_POLL_RESET_REQUESTS_S = 0.4
#: How often instances that use the same name at the same time leave and retry.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """The parameters of a new instance.

    Args:
        stream: the topic.
        group: the consumer group.
        instance: the name of the member.
        position: the starting position of a new group.
        commit_on_get: whether a request commits the messages of the previous request.
        lease_timeout_ms: the time without requests after which the instance leaves, in milliseconds.
    """

    stream: str
    group: str
    instance: str
    position: Position
    commit_on_get: bool
    lease_timeout_ms: int


class Instances:
    """All instances of one process. Safe to call from any thread.

    Args:
        config: the configuration of the client.
        cluster: provides topics and groups.
        metadata_store: provides the metadata entries of the groups.
        operations: describes groups and resets their offsets.
        retention: counts the groups of a stream and deletes unused ones.
        clock: returns milliseconds since the epoch, without jumps.
        wall_clock: returns the time that other processes have, in milliseconds since the epoch.
        ids: provides topic ids.
        join_timeout_ms: how long an instance waits for its first assignment, in milliseconds.
    """

    def __init__(
        self,
        config: ClientConfig,
        cluster: KafkaCluster,
        metadata_store: MetadataStore,
        operations: GroupOperations,
        retention: GroupRetention,
        clock: Clock,
        wall_clock: Clock,
        ids: TopicIds,
        *,
        join_timeout_ms: int,
    ) -> None:
        self._config, self._cluster, self._metadata_store = config, cluster, metadata_store
        self._clock, self._wall_clock = clock, wall_clock
        self._operations, self._retention, self._ids, self._join_timeout_ms = (
            operations,
            retention,
            ids,
            join_timeout_ms,
        )
        # A signal handler can call close() at each place of the blocks that hold the lock.
        self._lock = threading.RLock()
        self._has_joined = threading.Condition(self._lock)
        # Protected by _lock: names that are joining, with their threads; sessions by id, from before they join until they have
        # left; the errors of ended sessions, with the time to delete them.
        self._joining: dict[tuple[str, str], int] = {}
        self._sessions: dict[str, InstanceSession] = {}
        self._ended: dict[str, tuple[FencedMember, int]] = {}
        self._closing = Closed()
        self._keeper: threading.Thread | None = None

    def create(self, instance_request: InstanceRequest) -> GroupCursor:
        """Creates an instance, and its group if that is new. Returns the first cursor.

        Raises:
            GroupRejected: if the name is in use (G3), the group is incompatible, or the stream has too many groups
                (G14).
            StreamGroupsError: if the broker rejects a request, or :meth:`close` is called meanwhile.
        """
        name = (instance_request.group, instance_request.instance)
        with self._lock:
            if name in self._joining:
                raise _taken(instance_request, "is joining from this process")
            self._joining[name] = threading.get_ident()
        try:
            self._check_free_here(instance_request)
            session = self._join_alone(instance_request)
        finally:
            with self._lock:
                # The wait of a signal handler releases the lock, so another thread can have used the name meanwhile.
                self._joining.pop(name, None)
                self._has_joined.notify_all()
        return session.identity

    def find(self, cursor: GroupCursor) -> InstanceSession:
        """Returns the session of a cursor.

        Raises:
            FencedMember: if the session has ended.
            InvalidCursor: if this process does not have the session.
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

    def close(self) -> bool:
        """Makes all instances leave, and waits until they have left. Instances that are joining leave, too. Returns whether all
        have left.
        """
        self._closing.set()
        with self._lock:
            # A signal handler can call this on a thread that is joining. A finalizer must not wait.
            if not is_collecting():
                self._has_joined.wait_for(
                    lambda: set(self._joining.values()) <= {threading.get_ident()}, LEAVE_TIMEOUT_S
                )
            sessions = list(self._sessions.values())
        for session in sessions:
            session.end(f"Instance '{session.identity.instance}' left: its GroupCursors were closed.")
        for session in sessions:
            session.wait_until_left()
        return not self._joining and all(session.has_departed for session in sessions)

    # ---- creating ----------------------------------------------------------------------------------------------------

    def _check_free_here(self, instance_request: InstanceRequest) -> None:
        """For the instances of this process, the local state is more recent than that of the broker."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            if (session.identity.group, session.identity.instance) != (
                instance_request.group,
                instance_request.instance,
            ):
                continue
            if not session.end_if_silent():
                remaining_ms = session.lease.until_ms - self._clock()
                until = datetime.fromtimestamp((self._wall_clock() + remaining_ms) / 1000, timezone.utc)
                raise _taken(
                    instance_request,
                    f"is live in this process until {until:%H:%M:%S} UTC, and longer if it sends another request",
                )
            session.wait_until_left()

    def _join_alone(self, instance_request: InstanceRequest) -> InstanceSession:
        """Joins with a unique name. If two instances join with one name at the same time, both leave and retry."""
        attempts_left = _ATTEMPTS
        while not self._closing.is_set():
            session = self._new_session(instance_request, self._admit(instance_request))
            attempts_left -= 1
            self._join(instance_request, session)
            try:
                check_name_is_free(self._cluster.describe(instance_request.group), instance_request.instance, own=1)
            except BaseException as e:
                session.end(
                    f"Instance '{instance_request.instance}' left group '{instance_request.group}': another member uses its name."
                )
                session.wait_until_left()
                if not isinstance(e, GroupRejected) or not attempts_left:
                    raise
                comes_true(self._closing.is_set, random.uniform(0.2, 1.5), every_s=0.1)
                continue
            if not self._closing.is_set():
                return session
            session.end(f"Instance '{instance_request.instance}' left: its GroupCursors were closed.")
            session.wait_until_left()
        raise closed_error()

    def _admit(self, instance_request: InstanceRequest) -> dict[TopicPartition, Owned]:
        """Makes all checks that are possible before joining. Returns the starting positions of a new group."""
        partitions = self._operations.partitions(instance_request.stream)
        live = self._cluster.describe(instance_request.group)
        owned = self._cluster.committed(instance_request.group, live.owners)
        committed = self._metadata_store.read(instance_request.group, partitions)
        check_may_join(
            live,
            frozenset({instance_request.stream}),
            by_pattern=False,
            mode=MembershipMode.SHARED,
            held_exclusively=is_held_exclusively(c.metadata for c in owned.values()),
        )
        check_program(
            CURSORS,
            forms_in({tp: it.metadata for tp, it in {**committed, **owned}.items()}),
            OnOtherProgram.FAIL,
            lambda: live,
            is_joining=True,
        )
        check_name_is_free(live, instance_request.instance)
        if committed:
            if live.members or not self._vanished(instance_request, partitions):
                return {}
        elif not live.members:
            self._retention.check_room(instance_request.stream, instance_request.group)
        # The ids are read first: if the topic is recreated now, the positions are rejected.
        identity = self._ids.of([instance_request.stream], fresh=True)[instance_request.stream]
        offsets = self._operations.offsets(instance_request.position, partitions)
        return {tp: Owned(n, Origin.STARTING, identity) for tp, n in offsets.items()}

    def _vanished(self, instance_request: InstanceRequest, partitions: Collection[TopicPartition]) -> bool:
        """Deletes a group that was unused for longer than the retention time of its stream. Returns whether it did
        (G15).
        """
        entries = self._metadata_store.read(members_group_of(instance_request.group), partitions)
        return bool(entries) and self._retention.sweep(instance_request.stream, instance_request.group) == [
            instance_request.group
        ]

    def _new_session(
        self, instance_request: InstanceRequest, starting: Mapping[TopicPartition, Owned]
    ) -> InstanceSession:
        reader = RecordReader(
            self._config,
            group_id=instance_request.group,
            client_id=instance_request.instance,
            offsets=self._cluster,
            ids=self._ids,
        )
        return InstanceSession(
            GroupCursor(
                instance_request.stream, instance_request.group, instance_request.instance, secrets.token_hex(8)
            ),
            self._member_of(instance_request, starting),
            Outside(self._cluster, self._metadata_store, reader, self._clock, self._wall_clock, self._ids),
            lease_timeout_ms=instance_request.lease_timeout_ms,
            commit_on_get=instance_request.commit_on_get,
        )

    def _join(self, instance_request: InstanceRequest, session: InstanceSession) -> None:
        with self._lock:
            siblings = [s for s in self._sessions.values() if s.identity.group == instance_request.group]
            # Before it joins: close() waits until it has left, also if its join was interrupted.
            self._sessions[session.identity.session] = session
            self._keep()
        try:
            session.join(self._join_timeout_ms, self._whether_pointless(instance_request, siblings))
        except BaseException:
            session.end(f"Instance '{instance_request.instance}' could not join group '{instance_request.group}'.")
            raise

    def _whether_pointless(
        self, instance_request: InstanceRequest, siblings: Collection[InstanceSession]
    ) -> Callable[[], bool]:
        """Returns a function that checks whether a joining instance waits for its first assignment in vain."""
        next_poll_s = time.monotonic() + _POLL_S

        def pointless() -> bool:
            nonlocal next_poll_s
            # Another instance may wait for a request of this thread before it releases a partition.
            if self._closing.is_set() or any(s.holds_up for s in siblings):
                return True
            if time.monotonic() < next_poll_s:
                return False
            # An idle instance (G10): under KIP-848 the client does not report an empty assignment.
            idle_members = self._cluster.describe(instance_request.group).has_nothing_for(instance_request.instance)
            next_poll_s = time.monotonic() + _POLL_S
            return idle_members

        return pointless

    def _member_of(
        self, instance_request: InstanceRequest, starting: Mapping[TopicPartition, Owned]
    ) -> Callable[[Recorder], Member]:
        positions = AssignedPositions(self._cluster, self._ids, instance_request.group, starting)

        def check_positions(owned: Mapping[TopicPartition, Owned]) -> None:
            forms = {tp: it.form for tp, it in owned.items()}
            check_program(CURSORS, forms, OnOtherProgram.FAIL, lambda: self._cluster.describe(instance_request.group))

        settings = MemberSettings(
            group_id=instance_request.group,
            name=instance_request.instance,
            consumer=self._config.for_member(instance_request.group, client_id=instance_request.instance),
            topics=lambda: [instance_request.stream],
            rebalance_timeout_ms=int(self._config.get("max.poll.interval.ms") or 300_000),
            redact=self._config.redact,
            login_rejection=lambda: self._cluster.login_rejection(),
            take_over=positions.take_over,
            form=CURSORS,
            check_positions=check_positions,
        )
        return lambda record: KafkaMember(settings, positions.first, record)

    # ---- ending silent instances -------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """The caller holds the lock."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._watch, name="streamgroups-leases", daemon=True)
            self._keeper.start()

    def _watch(self) -> None:
        next_reset_poll_s = 0.0
        while not self._closing.is_set():
            time.sleep(_POLL_S)
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
                    # Keep the session until it has left the group, so that other calls can wait for that.
                    if ended is not None and session.has_departed:
                        del self._sessions[name]
                        self._ended[name] = (ended, now_ms + LIFETIME_MS)
                self._ended = {name: e for name, e in self._ended.items() if e[1] >= now_ms}


def _taken(instance_request: InstanceRequest, why: str) -> GroupRejected:
    return GroupRejected(
        f"Instance '{instance_request.instance}' of group '{instance_request.group}' {why}.",
        remedy="Use another name for this instance, or continue with the cursors of the existing one.",
    )
