"""A real member of a real Kafka group, which never fetches.

Created by ``streamgroups_spark.micro_batches`` on the driver; implements :class:`streamgroups.ports.Member`. What it knows
is a :class:`~streamgroups.groups.membership.Membership`; this module only translates between it and librdkafka. Source:
KIP-62 (background heartbeats), KIP-429 (cooperative rebalance), KIP-848; SEMANTICS G2, G11, S1-S3.

Threads: the *owner* thread alone touches the consumer. It polls, answers assign, revoke and lost, and commits. The query's
thread changes the shared state under one lock and never waits for the broker, except in :meth:`KafkaMember.join` and
:meth:`KafkaMember.close`. In the revoke callback the owner thread waits for the batch in flight, which the query's thread
reports done; it goes on committing meanwhile and is bounded by the rebalance timeout.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from streamgroups.errors import FencedMember, GroupRefused, StreamGroupsError
from streamgroups.groups.history import Kind
from streamgroups.groups.joining import EXCLUSIVE_MARK, SHARED_MARK
from streamgroups.groups.membership import InFlight, Membership, Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Recorder
from streamgroups_kafka.errors import CommitVerdict, commit_verdict, to_streamgroups_error
from streamgroups_kafka.history import no_history
from streamgroups_kafka.member_settings import MemberSettings

logger = logging.getLogger(__name__)

#: How often the owner thread polls when nothing happens. A rebalance is answered within this time.
_POLL_INTERVAL_S = 0.05
#: After a silence this long (the process was stopped or starved) the group may have gone on without us: nothing is planned
#: until a commit has been accepted again.
_SILENCE_S = 3.0
#: Of the rebalance timeout, the part that a hand-over may wait for the batch in flight. The rest is for the commit.
_HAND_OVER_PART = 0.8
#: How often a member that waits for its first assignment says so.
_TELL_EVERY_S = 10.0
#: How many refreshes in a row may find that a topic is gone before the query fails: a cluster's metadata may lag behind.
_REFRESHES_WITHOUT_TOPIC = 3
#: How long a leaving member tries to commit what is done.
_LAST_COMMIT_S = 5.0
_CLOSE_TIMEOUT_S = 30.0
_COMMITTED_TIMEOUT_S = 10.0
_A_BUG = "This is a bug in streamgroups; the log has the details. Restarting the query is safe."
#: Of several refusals in one commit, the gravest decides.
_GRAVITY = {CommitVerdict.RETRY_WHILE_OWNED: 0, CommitVerdict.FENCED: 1, CommitVerdict.FATAL: 2}
#: An assignment that cannot learn its positions fails the query, so it tries for as long as a broker takes to restart.
_RETRYING = Retrying(
    retry=retry_if_exception(lambda e: isinstance(e, StreamGroupsError) and e.retriable),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.2),
    reraise=True,
)


class KafkaMember:
    """See :class:`streamgroups.ports.Member`.

    Args:
        settings: how to be a member.
        first_positions: asks for the position of partitions the group has no committed offset for. It runs on the owner
            thread, inside an assignment.
        record: takes note of everything that happens.
    """

    def __init__(
        self,
        settings: MemberSettings,
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        record: Recorder = no_history,
    ) -> None:
        self._settings = settings
        self._first_positions = first_positions
        self._record = record
        self._changed = threading.Condition()
        # All below is read and written under _changed.
        self._membership = Membership()
        self._to_commit: dict[TopicPartition, int] = {}
        self._failure: StreamGroupsError | None = None
        self._closing = False
        self._doubtful = False
        self._last_seen_s = _awake_s()
        # The owner thread's own.
        self._consumer: Consumer | None = None
        self._subscribed: frozenset[str] = frozenset()
        self._next_refresh_s = 0.0
        self._refreshes_failed = 0
        self._last_trouble = ""
        self._mark = EXCLUSIVE_MARK if settings.exclusive else SHARED_MARK
        self._thread = threading.Thread(target=self._own, name=f"streamgroups-{settings.name}", daemon=True)

    # ---- the query's thread ------------------------------------------------------------------------------------------

    def join(self, timeout_ms: int) -> None:
        """See :meth:`streamgroups.ports.Member.join`."""
        self._record(Kind.JOINING)
        self._thread.start()
        began_s = time.monotonic()
        with self._changed:
            while not (self._failure or self._membership.assignments):
                waited_s = time.monotonic() - began_s
                if waited_s * 1000 > timeout_ms:
                    raise GroupRefused(
                        f"Group '{self._settings.group_id}' gave '{self._settings.name}' no assignment within "
                        f"{waited_s:.0f} s{self._trouble()}.",
                        remedy="A rebalance waits for every live member: look at their state with "
                        "kafka-consumer-groups.sh --describe --members, and try again.",
                    )
                if not self._changed.wait(min(_TELL_EVERY_S, timeout_ms / 1000 - waited_s + 0.01)):
                    logger.warning(
                        "%s: still waiting for group '%s' to assign partitions%s: a rebalance waits for the batches of "
                        "other members, and for a member that was killed until its session times out",
                        self._settings.name,
                        self._settings.group_id,
                        self._trouble(),
                    )
            self._raise_failure()

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        with self._changed:
            self._raise_failure()
            if self._doubtful or _awake_s() - self._last_seen_s > _SILENCE_S:
                # Nothing may be planned on what may no longer be ours.
                return replace(self._membership, releasing=frozenset(self._membership.owned))
            return self._membership

    def finish(self, number: int) -> None:
        """See :meth:`streamgroups.ports.Member.finish`."""
        with self._changed:
            had = self._membership.in_flight
            self._membership, to_commit = self._membership.finish(number)
            if had is not self._membership.in_flight:
                self._record(Kind.FINISHED, offsets=to_commit, batch=number)
            self._commit_soon(to_commit)

    def move(self, next_offsets: Mapping[TopicPartition, int], *, note: str) -> None:
        """See :meth:`streamgroups.ports.Member.move`."""
        with self._changed:
            self._membership = self._membership.move(next_offsets)
            moved = {tp: n for tp, n in next_offsets.items() if tp in self._membership.owned}
            if note:
                logger.warning("%s: %s", self._settings.name, note)
            self._commit_soon(moved)

    def plan(self, number: int, ranges: Mapping[TopicPartition, tuple[int, int]]) -> InFlight:
        """See :meth:`streamgroups.ports.Member.plan`."""
        with self._changed:
            wanted = (OffsetRange(tp, first, end) for tp, (first, end) in ranges.items())
            batch = InFlight(number, self.membership.readable(wanted))
            self._membership = self._membership.plan(batch)
            self._record(Kind.PLANNED, ranges=batch.ranges, batch=number)
            return batch

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Member.close`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                logger.error(
                    "%s: could not leave group '%s' within %.0f s; the group will time the member out",
                    self._settings.name,
                    self._settings.group_id,
                    _CLOSE_TIMEOUT_S,
                )

    def _commit_soon(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        self._to_commit.update(next_offsets)
        self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    def _trouble(self) -> str:
        return f" (last trouble: {self._last_trouble})" if self._last_trouble else ""

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def _own(self) -> None:
        try:
            self._consumer = Consumer({**self._settings.consumer, "error_cb": self._on_trouble})
            if self._settings.assign is not None:
                self._on_assign(self._consumer, [_theirs(tp) for tp in self._settings.assign])
            while self._serve():
                pass
        except StreamGroupsError as e:
            self._fail(e)
        except KafkaException as e:
            self._fail(self._translated(e.args[0]))
        except Exception as e:
            logger.exception("%s: the member's thread failed", self._settings.name)
            self._fail(
                StreamGroupsError(f"The member '{self._settings.name}' failed: {type(e).__name__}: {e}.", remedy=_A_BUG)
            )
        finally:
            self._leave()

    def _serve(self) -> bool:
        """One turn: commit what is due, answer the group. Returns whether to go on."""
        assert self._consumer is not None
        with self._changed:
            self._changed.wait_for(lambda: self._to_commit or self._closing, _POLL_INTERVAL_S)
            closing = self._closing
            if self._failure:
                # The query will fail; until Spark hears of it, the partitions are better in other hands.
                return False
            self._note_silence()
        committed = self._commit_due(self._consumer)
        if closing:
            self._commit_last(self._consumer)
            return False
        if self._settings.assign is None and time.monotonic() >= self._next_refresh_s:
            self._refresh_subscription(self._consumer)
        message = self._consumer.poll(0 if committed else _POLL_INTERVAL_S)
        error = message.error() if message is not None else None
        if error is not None:
            self._on_error(error)
        return True

    def _commit_last(self, consumer: Consumer) -> None:
        """Before leaving: a commit refused because of a rebalance is tried again, for a moment."""
        deadline_s = time.monotonic() + _LAST_COMMIT_S
        while not self._commit_due(consumer) and time.monotonic() < deadline_s:
            consumer.poll(_POLL_INTERVAL_S)

    def _note_silence(self) -> None:
        now_s = _awake_s()
        if now_s - self._last_seen_s > _SILENCE_S and self._membership.owned and self._settings.assign is None:
            self._doubtful = True
            logger.warning(
                "%s: was silent for %.1f s; nothing is planned until the group accepts a commit again",
                self._settings.name,
                now_s - self._last_seen_s,
            )
            for tp, owned in self._membership.owned.items():
                self._to_commit.setdefault(tp, owned.next_offset)
        self._last_seen_s = now_s

    def _refresh_subscription(self, consumer: Consumer) -> None:
        # As Java's: never again.
        never = self._settings.refresh_ms <= 0
        self._next_refresh_s = math.inf if never else time.monotonic() + self._settings.refresh_ms / 1000
        try:
            topics = frozenset(self._settings.topics())
        except StreamGroupsError as e:
            self._refreshes_failed += not e.retriable
            if not e.retriable and (not self._subscribed or self._refreshes_failed >= _REFRESHES_WITHOUT_TOPIC):
                raise
            self._last_trouble = str(e)
            logger.warning("%s: %s", self._settings.name, e)
            return
        self._refreshes_failed = 0
        if not topics and not self._subscribed:
            # A pattern that matches nothing yet: a member of nothing, which waits.
            with self._changed:
                self._membership = self._membership if self._membership.assignments else self._membership.assign({})
                self._changed.notify_all()
        if topics and topics != self._subscribed:
            consumer.subscribe(
                sorted(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._subscribed = topics

    def _on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        tps = [TopicPartition(p.topic, p.partition) for p in partitions]
        positions = self._positions(consumer, tps)
        theirs = [_theirs(tp, owned.next_offset) for tp, owned in positions.items()]
        if self._settings.assign is None:
            consumer.incremental_assign(theirs)
        else:
            consumer.assign(theirs)
        consumer.pause(theirs)
        with self._changed:
            self._membership = self._membership.assign(positions)
            if positions:
                self._record(Kind.ASSIGNED, offsets={tp: o.next_offset for tp, o in positions.items()})
            # What has just been decided is committed at once: the next to ask must not decide anew (G2).
            self._to_commit.update({tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.STARTING})
            self._changed.notify_all()

    def _positions(self, consumer: Consumer, tps: list[TopicPartition]) -> dict[TopicPartition, Owned]:
        if not tps:
            return {}
        committed: list[confluent_kafka.TopicPartition] = _RETRYING(self._committed, consumer, tps)
        found = {TopicPartition(p.topic, p.partition): p for p in committed if p.offset >= 0}
        known = {tp: Owned.committed(p.offset, p.metadata or "") for tp, p in found.items()}
        with self._changed:
            # The mark of a member of the other kind that has left would refuse those who may join now.
            stale = [tp for tp, o in known.items() if o.origin is Origin.COMMITTED and found[tp].metadata != self._mark]
            self._to_commit.update({tp: known[tp].next_offset for tp in stale})
        missing = [tp for tp in tps if tp not in known]
        return {**known, **(self._first_positions(missing) if missing else {})}

    def _committed(self, consumer: Consumer, tps: list[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
        try:
            return consumer.committed([_theirs(tp) for tp in tps], timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as e:
            raise self._translated(e.args[0]) from e

    def _on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        tps = [TopicPartition(p.topic, p.partition) for p in partitions]
        with self._changed:
            self._membership = self._membership.ask_back(tps)
            offsets = {tp: o.next_offset for tp, o in self._membership.owned.items() if tp in tps}
            self._record(Kind.ASKED_BACK, offsets=offsets)
            if self._settings.exclusive and not self._closing and {tp.topic for tp in tps} & self._subscribed:
                self._fail(
                    GroupRefused(
                        f"Another member joined group '{self._settings.group_id}', which this query needs alone "
                        "(membership=exclusive).",
                        remedy="Give the other member another group.id, or use membership=shared for stateless queries.",
                    )
                )
        self._wait_for_batch(consumer, tps)
        self._let_go(consumer, partitions, Kind.RELEASED)

    def _wait_for_batch(self, consumer: Consumer, tps: Collection[TopicPartition]) -> None:
        """Waits until no batch in flight reads the partitions and what was read is committed."""
        deadline_s = time.monotonic() + self._settings.rebalance_timeout_ms / 1000 * _HAND_OVER_PART
        while True:
            with self._changed:
                self._last_seen_s = _awake_s()
                finished = all(map(self._membership.may_release, tps))
                settled = finished and not any(tp in self._to_commit for tp in tps)
                if settled or self._closing or self._failure or time.monotonic() > deadline_s:
                    break
                self._changed.wait_for(lambda: self._to_commit or self._closing, _POLL_INTERVAL_S)
            if not self._commit_due(consumer):
                with self._changed:
                    self._changed.wait(_POLL_INTERVAL_S)
        self._commit_due(consumer)

    def _on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._fail_if_exclusive()
        self._let_go(consumer, partitions, Kind.LOST)

    def _fail_if_exclusive(self) -> None:
        """State that others have read past, or that would count the batch in flight twice, must not go on."""
        if self._settings.exclusive and not self._closing:
            self._fail(
                FencedMember(
                    f"Group '{self._settings.group_id}' went on without this query, which needs it alone "
                    "(membership=exclusive).",
                    remedy="Restart it: it goes on from its checkpoint, if no other query holds the group.",
                )
            )

    def _let_go(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition], kind: Kind) -> None:
        tps = [TopicPartition(p.topic, p.partition) for p in partitions]
        with self._changed:
            offsets = {tp: o.next_offset for tp, o in self._membership.owned.items() if tp in tps}
            self._membership, abandoned = self._membership.release(tps)
            for tp in tps:
                self._to_commit.pop(tp, None)
            self._doubtful = self._doubtful and bool(self._membership.owned)
            # Recorded before the group hears of it, so that histories never show two owners where there was one.
            self._record(kind, offsets=offsets, ranges=abandoned)
            self._changed.notify_all()
        if abandoned:
            logger.warning(
                "%s: %s while a batch was reading %s; another member will read these offsets again",
                self._settings.name,
                "partitions were lost" if kind is Kind.LOST else "partitions had to be given back",
                ", ".join(map(str, abandoned)),
            )
        consumer.incremental_unassign(partitions)

    def _commit_due(self, consumer: Consumer) -> bool:
        """Commits, fenced by the member's generation, what is due and still owned. Returns whether nothing is due."""
        with self._changed:
            due = {tp: n for tp, n in self._to_commit.items() if tp in self._membership.owned}
            self._to_commit = dict(due)
        if not due:
            return True
        try:
            results = consumer.commit(offsets=[_theirs(tp, n, self._mark) for tp, n in due.items()], asynchronous=False)
            errors = [r.error for r in results or () if r.error is not None]
        except KafkaException as e:
            errors = [e.args[0]]
        if errors:
            return self._on_commit_refused(due, max(errors, key=lambda e: _GRAVITY[commit_verdict(e)]))
        with self._changed:
            self._doubtful = False
            for tp, n in due.items():
                if self._to_commit.get(tp) == n:
                    del self._to_commit[tp]
            self._record(Kind.COMMITTED, offsets=due)
            self._changed.notify_all()
        return True

    def _on_commit_refused(self, due: Mapping[TopicPartition, int], error: KafkaError) -> bool:
        verdict = commit_verdict(error)
        if verdict is CommitVerdict.RETRY_WHILE_OWNED:
            self._last_trouble = error.name()
            return False
        self._record(Kind.REFUSED, offsets=due, note=error.name())
        refusal = self._translated(error)
        if verdict is CommitVerdict.FATAL or self._settings.assign is not None:
            self._fail(refusal)
            return True
        # Fenced: the group went on without us. What it had is gone; librdkafka joins again as a new member.
        logger.warning("%s: %s", self._settings.name, refusal)
        self._fail_if_exclusive()
        with self._changed:
            lost = {tp: o.next_offset for tp, o in self._membership.owned.items()}
            self._membership, abandoned = self._membership.release(lost)
            self._to_commit.clear()
            self._doubtful = False
            self._record(Kind.LOST, offsets=lost, ranges=abandoned, note="fenced")
        return True

    def _on_error(self, error: KafkaError) -> None:
        """An error that poll() returned. librdkafka mends most by itself; some say that the group will never have us."""
        translated = self._translated(error)
        self._last_trouble = str(translated)
        if error.fatal() or not (translated.retriable or isinstance(translated, FencedMember)):
            if error.code() in (
                KafkaError._MAX_POLL_EXCEEDED,
                KafkaError._PARTITION_EOF,
                KafkaError._AUTO_OFFSET_RESET,
            ):
                return
            self._fail(translated)

    def _translated(self, error: KafkaError) -> StreamGroupsError:
        group_id = self._settings.group_id
        return to_streamgroups_error(error, f"Group '{group_id}'", group=group_id, redact=self._settings.redact)

    def _on_trouble(self, error: KafkaError) -> None:
        self._last_trouble = self._settings.redact(error.str())
        if error.fatal():
            self._fail(self._translated(error))

    def _fail(self, failure: StreamGroupsError) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _leave(self) -> None:
        if self._consumer is not None:
            try:
                self._consumer.close()
            except Exception as e:
                # The group will time the member out; nothing is lost by that.
                logger.warning("%s: leaving the group failed: %s", self._settings.name, e)
        self._record(Kind.CLOSED)


#: Goes on while the machine sleeps, where there is such a clock: a laptop's lid is a silence too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _awake_s() -> float:
    return time.clock_gettime(_CLOCK)


def _theirs(
    tp: TopicPartition, next_offset: int = confluent_kafka.OFFSET_INVALID, metadata: str = ""
) -> confluent_kafka.TopicPartition:
    if metadata:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition, next_offset, metadata)
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, next_offset)
