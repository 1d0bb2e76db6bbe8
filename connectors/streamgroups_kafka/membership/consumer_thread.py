"""What a member's own thread does with its Kafka consumer: it polls, answers assign, revoke and lost, and commits.

The thread is started and ended by :class:`~streamgroups_kafka.membership.member.KafkaMember`. It alone touches the consumer; what it learns and what it
is to do lies in the :class:`~streamgroups_kafka.membership.state.MemberState`. librdkafka calls the ``_on_...`` methods from inside
``poll`` and ``close``, so on this thread too. Source: KIP-62 (background heartbeats), KIP-429 (cooperative rebalance), KIP-848;
SEMANTICS G2, G11, S1-S3.

In the revoke callback the thread waits for the batch in flight, which the query's thread reports done; it goes on committing
meanwhile and is bounded by the rebalance timeout.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, stop_any, wait_fixed
from tenacity.stop import stop_base

from streamgroups.errors import FencedMember, GroupRejected, StreamGroupsError
from streamgroups.groups.batch_lease import HANDOVER_PART
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Recorder
from streamgroups_kafka.client.commit_metadata import metadata_of
from streamgroups_kafka.client.errors import CommitVerdict, commit_verdict, to_streamgroups_error
from streamgroups_kafka.client.logs import MemberLog, client_log
from streamgroups_kafka.membership.batch_watch import BatchWatch
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.settings import MemberSettings
from streamgroups_kafka.membership.state import MemberState, Turn

logger = logging.getLogger(__name__)

#: How often it polls when nothing happens. A rebalance is answered within this time.
_POLL_INTERVAL_S = 0.05
#: How many refreshes in a row may find that a topic is gone before the query fails: a cluster's metadata may lag behind.
_REFRESHES_WITHOUT_TOPIC = 3
#: How long a leaving member tries to commit what is done.
_LAST_COMMIT_S = 5.0
_COMMITTED_TIMEOUT_S = 10.0
_A_BUG = "This is a bug in streamgroups; the log contains the details. You can restart the query safely."
#: Of several refusals in one commit, the gravest decides.
_GRAVITY = {CommitVerdict.RETRY_WHILE_OWNED: 0, CommitVerdict.FENCED: 1, CommitVerdict.FATAL: 2}
#: What librdkafka mends by itself, though it does not say so.
_MENDED = (KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
#: An assignment that cannot learn its positions fails the query, so it tries for as long as a broker takes to restart.
_POSITIONS_S = 60.0


class _StopWhenClosing(stop_base):
    def __init__(self, state: MemberState) -> None:
        self._state = state

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._state.is_closing


class ConsumerOwner:
    """Owns the consumer of one member, from its making to its leaving; used by one thread, the owner thread.

    Args:
        settings: how to be a member.
        first_positions: asks for the position of partitions the group has no committed offset for. It runs on the owner
            thread, inside an assignment.
        state: what is shared with the query's thread.
        record: takes note of what is no change of the state.
    """

    def __init__(
        self,
        settings: MemberSettings,
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        state: MemberState,
        record: Recorder,
    ) -> None:
        self._settings, self._first_positions = settings, first_positions
        self._state, self._record = state, record
        self._consumer: Consumer | None = None
        self._log = client_log(str(settings.consumer.get("bootstrap.servers", "")))
        self._subscribed: frozenset[str] = frozenset()
        self._next_refresh_s = 0.0
        self._refreshes_failed = 0
        self._batches = BatchWatch(settings, state)
        self._retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, StreamGroupsError) and e.retriable),
            # Of a member that is leaving nobody wants to know where it would have begun.
            stop=stop_any(stop_after_delay(_POSITIONS_S), _StopWhenClosing(state)),
            wait=wait_fixed(0.2),
            reraise=True,
        )

    def run(self) -> None:
        """Lives until the query ends or the member fails; leaves the group either way."""
        try:
            consumer = self._consumer = self._new_consumer()
            if self._settings.assign is not None:
                self._on_assign(consumer, [_theirs(tp) for tp in self._settings.assign])
            while self._serve(consumer):
                if self._state.is_away:
                    self._consumer = None
                    if not self._returns(consumer):
                        break
                    consumer = self._consumer = self._new_consumer()
        except StreamGroupsError as e:
            self._state.fail(e)
        except KafkaException as e:
            self._state.fail(self._translated(e.args[0]))
        except Exception as e:
            logger.exception("%s: the member's thread failed", self._settings.name)
            self._state.fail(
                StreamGroupsError(f"The member '{self._settings.name}' failed: {type(e).__name__}: {e}.", remedy=_A_BUG)
            )
        finally:
            self._leave()

    def _serve(self, consumer: Consumer) -> bool:
        """One turn: commit what is due, answer the group. Returns whether to go on."""
        self._renew_group_metadata(consumer)
        # Until its first assignment it waits for the group, which only a poll hears; then for the query.
        joining = self._settings.assign is None and not self._state.has_been_assigned
        turn = self._state.await_turn(0 if joining else _POLL_INTERVAL_S)
        if turn is Turn.LEAVE_AT_ONCE:
            return False
        committed = self._commit_due(consumer)
        if turn is Turn.CLOSE:
            self._commit_last(consumer)
            return False
        self._batches.judge()
        if self._state.is_away:
            return True
        if self._settings.assign is None and time.monotonic() >= self._next_refresh_s:
            self._refresh_subscription(consumer)
        message = consumer.poll(0 if committed and not joining else _POLL_INTERVAL_S)
        error = message.error() if message is not None else None
        if error is not None:
            self._on_error(error)
        return True

    def _leave(self) -> None:
        if self._consumer is not None:
            try:
                self._consumer.close()
            except Exception as e:
                # The group will time the member out; nothing is lost by that.
                logger.warning("%s: leaving the group failed: %s", self._settings.name, e)
        self._record(Kind.CLOSED)

    def _new_consumer(self) -> Consumer:
        talk = {"error_cb": self._on_trouble, "logger": MemberLog(self._log, self._settings.redact)}
        return Consumer({**self._settings.consumer, **talk})

    def _returns(self, consumer: Consumer) -> bool:
        """Leaves the group until the batch ends that has taken too long, or the query does. Returns whether it is the batch.

        The client is closed: one that only unsubscribes stays a member while a rebalance is under way, which may be waiting for this batch.
        """
        consumer.close()
        self._subscribed, self._next_refresh_s = frozenset(), 0.0
        while self._state.is_away:
            if self._state.await_turn(_POLL_INTERVAL_S) is not Turn.GO_ON:
                return False
        logger.warning("%s: batch ended; joining group '%s' again", self._settings.name, self._settings.group_id)
        return True

    # ---- joining -----------------------------------------------------------------------------------------------------

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
            self._state.last_error = str(e)
            if e.retriable:
                self._log.failed(str(e))
            else:
                logger.warning("%s: %s", self._settings.name, e)
            return
        self._refreshes_failed = 0
        if not topics and not self._subscribed:
            # A pattern that matches nothing yet: a member of nothing, which waits.
            self._state.assign({})
        if topics and topics != self._subscribed:
            consumer.subscribe(
                sorted(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._subscribed = topics

    def _on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        said = self._positions(consumer, _ours(partitions))
        positions: Mapping[TopicPartition, Owned] = self._retrying(self._settings.take_over, said)
        # A sink's ledger is ahead of the group, whose committed offsets follow.
        self._state.commit_soon(
            {tp: o.next_offset for tp, o in positions.items() if o.next_offset != said[tp].next_offset}
        )
        theirs = [_theirs(tp, owned.next_offset) for tp, owned in positions.items()]
        if self._settings.assign is None:
            consumer.incremental_assign(theirs)
        else:
            consumer.assign(theirs)
        consumer.pause(theirs)
        self._state.assign(positions)

    def _positions(self, consumer: Consumer, tps: list[TopicPartition]) -> dict[TopicPartition, Owned]:
        if not tps:
            return {}
        committed: list[confluent_kafka.TopicPartition] = self._retrying(self._committed, consumer, tps)
        found = {TopicPartition(p.topic, p.partition): p for p in committed if p.offset >= 0}
        metadata = {tp: metadata_of(p) for tp, p in found.items()}
        known = {tp: Owned.committed(p.offset, metadata[tp]) for tp, p in found.items()}
        # The mark of a member of the other kind that has left would refuse those who may join now.
        marks = {tp: CommitMark.parse(metadata[tp]) for tp in known}
        stale = [tp for tp, mark in marks.items() if mark is not None and mark.exclusive != self._settings.exclusive]
        self._state.commit_soon({tp: known[tp].next_offset for tp in stale})
        missing = [tp for tp in tps if tp not in known]
        return {**known, **(self._first_positions(missing) if missing else {})}

    def _committed(self, consumer: Consumer, tps: list[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
        try:
            return consumer.committed([_theirs(tp) for tp in tps], timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as e:
            raise self._translated(e.args[0]) from None

    # ---- handing over ------------------------------------------------------------------------------------------------

    def _on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if self._state.is_away:
            # They were given up before, and the client is being closed.
            consumer.incremental_unassign(partitions)
            return
        tps = _ours(partitions)
        if self._settings.exclusive and {tp.topic for tp in tps} & self._subscribed:
            self._state.fail_unless_closing(
                GroupRejected(
                    f"Another member joined group '{self._settings.group_id}', but membership=exclusive "
                    "requires that this query is the only member.",
                    remedy="Use another group.id for the other member, or membership=shared for stateless queries.",
                )
            )
        self._state.revoke(tps)
        self._wait_for_batch(consumer, tps)
        self._let_go(consumer, partitions, Kind.RELEASED)

    def _wait_for_batch(self, consumer: Consumer, tps: Collection[TopicPartition]) -> None:
        """Waits until no batch in flight reads the partitions and what was read is committed."""
        deadline_s = time.monotonic() + self._settings.rebalance_timeout_ms / 1000 * HANDOVER_PART
        while not self._state.may_let_go(tps) and time.monotonic() <= deadline_s:
            # The rebalance is the group's next generation: only with that one a sink can still commit the batch.
            self._renew_group_metadata(consumer)
            self._batches.judge()
            self._state.await_due(_POLL_INTERVAL_S)
            if not self._commit_due(consumer):
                self._state.await_change(_POLL_INTERVAL_S)
        self._commit_due(consumer)

    def _on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._fail_if_exclusive()
        self._let_go(consumer, partitions, Kind.LOST)

    def _fail_if_exclusive(self) -> None:
        """State that others have read past, or that would count the batch in flight twice, must not go on."""
        if self._settings.exclusive:
            self._state.fail_unless_closing(
                FencedMember(
                    f"Group '{self._settings.group_id}' fenced this query, although membership=exclusive "
                    "requires that it is the only member.",
                    remedy=("Restart the query. It continues from its checkpoint, if no other query is in the group."),
                )
            )

    def _let_go(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition], kind: Kind) -> None:
        abandoned: tuple[OffsetRange, ...] = self._state.let_go(_ours(partitions), kind)
        if abandoned:
            logger.warning(
                "%s: %s while a batch was reading %s; another member will read these offsets again",
                self._settings.name,
                "partitions were lost" if kind is Kind.LOST else "partitions were revoked",
                ", ".join(map(str, abandoned)),
            )
        consumer.incremental_unassign(partitions)

    def _renew_group_metadata(self, consumer: Consumer) -> None:
        """Who the member is to the broker now, for sinks that commit its offsets with their output (KIP-447)."""
        if self._settings.assign is None and (metadata := consumer.consumer_group_metadata()) is not None:
            group_metadata = ConsumerGroupMetadata.parse(metadata)
            # While it joins, a member has no generation. A broker accepts offsets without one from any run.
            self._state.group_metadata = None if group_metadata.generation is None else group_metadata

    # ---- committing --------------------------------------------------------------------------------------------------

    def _commit_due(self, consumer: Consumer) -> bool:
        """Commits, fenced by the member's generation, what is due and still owned. Returns whether nothing is due."""
        due = self._state.due()
        if not due:
            return True
        try:
            offsets = [_theirs(tp, n, self._state.mark_of(tp, n).encode()) for tp, n in due.items()]
            results = consumer.commit(offsets=offsets, asynchronous=False)
            errors = [r.error for r in results or () if r.error is not None]
        except KafkaException as e:
            errors = [e.args[0]]
        if not errors:
            self._log.succeeded()
        if errors:
            return self._on_commit_rejected(due, max(errors, key=lambda e: _GRAVITY[commit_verdict(e)]))
        self._state.committed(due)
        return True

    def _commit_last(self, consumer: Consumer) -> None:
        """Before leaving: a commit refused because of a rebalance is tried again, for a moment."""
        deadline_s = time.monotonic() + _LAST_COMMIT_S
        while not self._commit_due(consumer) and time.monotonic() < deadline_s:
            consumer.poll(_POLL_INTERVAL_S)

    def _on_commit_rejected(self, due: Mapping[TopicPartition, int], error: KafkaError) -> bool:
        verdict = commit_verdict(error)
        if verdict is CommitVerdict.RETRY_WHILE_OWNED:
            self._state.last_error = error.name()
            return False
        self._record(Kind.REJECTED, offsets=due, note=error.name())
        rejection = self._translated(error)
        if verdict is CommitVerdict.FATAL or self._settings.assign is not None:
            self._state.fail(rejection)
            return True
        # Fenced: the group went on without us. What it had is gone; librdkafka joins again as a new member.
        logger.warning("%s: %s", self._settings.name, rejection)
        self._fail_if_exclusive()
        self._state.let_go(None, Kind.LOST, note="fenced")
        return True

    # ---- trouble -----------------------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        """An error that poll() returned. librdkafka mends most by itself; some say that the group will never have us."""
        translated = self._translated(error)
        self._state.last_error = str(translated)
        lasting = error.fatal() or not (translated.retriable or isinstance(translated, FencedMember))
        if lasting and error.code() not in _MENDED:
            self._state.fail(translated)

    def _on_trouble(self, error: KafkaError) -> None:
        self._state.last_error = self._settings.redact(error.str())
        self._log.failed(f"{self._settings.name}: {self._state.last_error}")
        if error.fatal():
            self._state.fail(self._translated(error))

    def _translated(self, error: KafkaError) -> StreamGroupsError:
        group_id = self._settings.group_id
        return to_streamgroups_error(error, f"Group '{group_id}'", group=group_id, redact=self._settings.redact)


def _ours(partitions: list[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def _theirs(
    tp: TopicPartition, next_offset: int = confluent_kafka.OFFSET_INVALID, metadata: str = ""
) -> confluent_kafka.TopicPartition:
    if metadata:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition, next_offset, metadata)
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, next_offset)
