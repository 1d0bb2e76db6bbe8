"""The owner thread of a Kafka consumer: it polls, handles assigned, revoked and lost partitions, and commits.

:class:`~streamgroups_kafka.membership.member.KafkaMember` starts and ends the thread. Only this thread uses the
consumer. It exchanges data with the query through :class:`~streamgroups_kafka.membership.member_state.MemberState`. librdkafka
calls the ``_on_...`` methods from inside ``poll`` and ``close``, so on this thread too. Source: KIP-62 (background
heartbeats), KIP-429 (cooperative rebalance), KIP-848; SEMANTICS G2, G11, S1-S3.

In the revoke callback, the thread waits until the query's thread reports that the batch in flight is finished.
Meanwhile it commits offsets. The rebalance timeout limits the wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from tenacity import RetryCallState, stop_after_delay, stop_any
from tenacity.stop import stop_base

from streamgroups.coordination.commit_parts import commit_parts
from streamgroups.errors import FencedMember, LoginRejected, StreamGroupsError
from streamgroups.groups.applied_reset import new_reset_id
from streamgroups.groups.batch_lease import HANDOVER_PART
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.exclusive_membership import check_lost, check_revoked
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import Owned
from streamgroups.groups.program import other_forms
from streamgroups.login_outage import LoginOutage, rejected
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, FirstPositions, Recorder
from streamgroups.printable import listed
from streamgroups.retry import comes_true, retrying
from streamgroups_kafka.client.errors import CommitVerdict, commit_verdict, to_streamgroups_error
from streamgroups_kafka.client.logs import MemberLog, client_log
from streamgroups_kafka.client.partition_conversion import committed_offsets, from_confluent, rows_of, to_confluent
from streamgroups_kafka.client.responses import topics_of
from streamgroups_kafka.membership.batch_watch import BatchWatch
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState, Turn
from streamgroups_kafka.membership.prompt_rebalance import PromptRebalance

logger = logging.getLogger(__name__)

#: The interval of polls without events. The member responds to a rebalance within this time.
_POLL_INTERVAL_S = 0.05
#: The number of consecutive refreshes that report a missing topic before the query fails. The metadata of a cluster can
#: lag.
_REFRESHES_WITHOUT_TOPIC = 3
#: How long a leaving member retries the commit of finished batches.
_LAST_COMMIT_S = 5.0
_COMMITTED_TIMEOUT_S = 10.0
#: How long a closing member polls until it owns no partitions, and the timeout of each poll.
_RELEASE_S, _RELEASE_POLL_S = 5.0, 0.01
#: The interval of checks with a new client whether all brokers reject the login of a member that has joined.
_LOGIN_CHECK_S = 5.0
#: How long a broker can list a topic that was deleted.
_DELETION_S = 2.0
_A_BUG = "This is a bug in streamgroups; the log contains the details. You can restart the query safely."
#: If the broker rejects several offsets of one commit, the most severe error decides.
_GRAVITY = {CommitVerdict.RETRY_WHILE_OWNED: 0, CommitVerdict.FENCED: 1, CommitVerdict.FATAL: 2}
#: Errors from which librdkafka recovers by itself, although it does not mark them as retriable.
_MENDED = (KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
#: An assignment without positions fails the query. So the thread retries for as long as a broker takes to restart.
_POSITIONS_S = 60.0


class _StopWhenClosing(stop_base):
    def __init__(self, state: MemberState) -> None:
        self._state = state

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._state.is_closing


class ConsumerOwner:
    """Owns the consumer of one member from its creation until the member leaves. Only the owner thread uses it.

    Args:
        settings: the settings of the member.
        first_positions: returns positions of partitions without a committed offset. It runs on the owner thread, during
            an assignment.
        state: the state that the member shares with the thread of the query.
        record: records events that do not change the state.
    """

    def __init__(
        self,
        settings: MemberSettings,
        first_positions: FirstPositions,
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
        self._is_leaving = False
        self._login: LoginOutage | None = None
        self._next_login_check_s = 0.0
        self._batches = BatchWatch(settings, state)
        self._prompt = PromptRebalance(is_classic=settings.consumer.get("group.protocol") != "consumer")
        # A leaving member does not need the positions.
        self._retrying = retrying(stop_any(stop_after_delay(_POSITIONS_S), _StopWhenClosing(state)), every_s=0.2)

    def run(self) -> None:
        """Runs until the query ends or the member fails. The member leaves the group in both cases."""
        try:
            consumer = self._consumer = self._new_consumer()
            if self._settings.assign is not None:
                self._on_assign(consumer, [to_confluent(tp) for tp in self._settings.assign])
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
        except BaseException as e:
            # Also SystemExit, which Python ignores in a thread: the query would wait for this thread without an end.
            logger.exception("%s: the member's thread failed", self._settings.name)
            self._state.fail(
                StreamGroupsError(f"The member '{self._settings.name}' failed: {type(e).__name__}: {e}.", remedy=_A_BUG)
            )
        finally:
            self._leave()

    def _serve(self, consumer: Consumer) -> bool:
        """Runs one turn: commits the due offsets and polls. Returns whether to continue."""
        self._renew_group_metadata(consumer)
        # Before the first assignment, only a poll receives the events of the group. Later the thread waits for the
        # query.
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
        self._check_login()
        if self._settings.assign is None and time.monotonic() >= self._next_refresh_s:
            self._refresh_subscription(consumer)
        message = consumer.poll(0 if committed and not joining else _POLL_INTERVAL_S)
        error = message.error() if message is not None else None
        if message is not None and error is not None:
            self._on_error(error, message.topic())
        self._prompt.lift_delay(consumer, self._subscribed)
        if self._subscribed and self._prompt.is_heartbeat_due():
            self._subscribe(consumer)
        return True

    def _check_login(self) -> None:
        """Fails if all brokers reject the login of the member. librdkafka repeats it with the same password: the member would lose its
        partitions, and wait without an error. A query that joins is checked at once too (``member``).
        """
        now_s = time.monotonic()
        if not self._state.is_login_rejected or now_s < self._next_login_check_s:
            return
        self._next_login_check_s = now_s + _LOGIN_CHECK_S
        try:
            rejection = self._settings.login_rejection()
        except LoginRejected as e:
            # The token endpoint rejects the client.
            rejection = e
        except StreamGroupsError as e:
            # Open connections continue to work without a new token.
            self._log.failed(str(e), "LOGIN")
            return
        if rejection is None:
            self._login, self._state.is_login_rejected = None, False
            return
        self._login = rejected(self._login, int(now_s * 1000))
        if self._login.is_permanent:
            raise rejection
        self._log.failed(rejection.what, "LOGIN")

    def _leave(self) -> None:
        self._is_leaving = True
        if self._consumer is not None:
            self._record(MemberEvent(Kind.CLOSING))
            try:
                self._close(self._consumer)
            except Exception as e:
                # The group removes the member after its session timeout. No data is lost.
                logger.warning("%s: leaving the group failed: %s", self._settings.name, e)
        self._record(MemberEvent(Kind.CLOSED))

    def _close(self, consumer: Consumer) -> None:
        """Releases the partitions, then closes the client.

        The revoke callback must not run inside ``close``. If the group of the client has terminated there, librdkafka
        discards the request of ``incremental_unassign``. This call then waits forever, and it holds the GIL, so the
        whole process hangs (librdkafka issue 4884).
        """
        try:
            if self._subscribed:
                consumer.unsubscribe()
                deadline_s = time.monotonic() + _RELEASE_S
                while consumer.assignment() and time.monotonic() < deadline_s:
                    consumer.poll(_RELEASE_POLL_S)
        finally:
            consumer.close()

    def _new_consumer(self) -> Consumer:
        talk = {"error_cb": self._on_client_error, "logger": MemberLog(self._log, self._settings.redact)}
        return Consumer({**self._settings.consumer, **talk})

    def _returns(self, consumer: Consumer) -> bool:
        """Leaves the group until the expired batch or the query ends. Returns ``True`` if the batch has ended.

        This method closes the client. A client that only unsubscribes remains a member during a rebalance, and the
        rebalance may be waiting for this batch.
        """
        self._close(consumer)
        self._subscribed, self._next_refresh_s = frozenset(), 0.0
        while self._state.is_away:
            if self._state.await_turn(_POLL_INTERVAL_S) is not Turn.CONTINUE:
                return False
        logger.warning("%s: batch ended; joining group '%s' again", self._settings.name, self._settings.group_id)
        return True

    # ---- joining -----------------------------------------------------------------------------------------------------

    def _refresh_subscription(self, consumer: Consumer) -> None:
        self._next_refresh_s = time.monotonic() + self._settings.refresh_ms / 1000
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
            # The pattern matches no topic yet. The member waits without partitions.
            self._state.assign({})
        if topics and topics != self._subscribed:
            if not self._subscribed:
                self._prompt.joined()
            self._subscribed = topics
            self._subscribe(consumer)

    def _subscribe(self, consumer: Consumer) -> None:
        topics = sorted(self._subscribed)
        consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._renew_group_metadata(consumer)
        metadata = self._state.group_metadata
        epoch = 0 if metadata is None or metadata.generation is None else metadata.generation
        found = {
            tp: replace(it, epoch=epoch)
            for tp, it in self._positions(consumer, [*map(from_confluent, partitions)]).items()
        }
        member_id = "" if metadata is None else metadata.member_id
        positions: Mapping[TopicPartition, Owned] = self._retrying(
            self._settings.take_over, found, partial(self._settings.is_owner, member_id)
        )
        # The ledger of a sink is ahead of the group. Commit its positions to the group.
        self._state.commit_soon(
            {tp: o.next_offset for tp, o in positions.items() if o.next_offset != found[tp].next_offset}
        )
        assigned = [to_confluent(tp, owned.next_offset) for tp, owned in positions.items()]
        if self._settings.assign is None:
            consumer.incremental_assign(assigned)
        else:
            consumer.assign(assigned)
        consumer.pause(assigned)
        self._state.assign(positions)
        self._prompt.rebalanced(new_partitions=bool(partitions))

    def _positions(self, consumer: Consumer, tps: list[TopicPartition]) -> dict[TopicPartition, Owned]:
        if not tps:
            return {}
        committed: dict[TopicPartition, Committed] = self._retrying(self._committed, consumer, tps)
        known = {tp: Owned.committed(c.next_offset, c.metadata) for tp, c in committed.items()}
        self._settings.check_positions(known)
        # The mark of a former member of the other kind, or of another program, would reject members that may join now.
        marks = {tp: CommitMark.parse(c.metadata) for tp, c in committed.items()}
        stale = [tp for tp, mark in marks.items() if mark is not None and mark.exclusive != self._settings.exclusive]
        stale += other_forms(self._settings.form, {tp: it.form for tp, it in known.items()})
        self._state.commit_soon({tp: known[tp].next_offset for tp in stale})
        known |= self._marked(consumer, {tp: it for tp, it in known.items() if it.is_unmarked})
        missing = [tp for tp in tps if tp not in known]
        return {**known, **(self._first_positions(missing) if missing else {})}

    def _marked(self, consumer: Consumer, unmarked: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
        """Gives the resets of clients without marks an id, in the group, before a ledger or a checkpoint continues there.

        Otherwise the next owner could not distinguish the reset from an earlier one to the same offset.
        """
        if not unmarked:
            return {}
        resets = self._retrying(self._settings.next_reset, unmarked.keys(), new_reset_id())
        marked = {tp: replace(it, reset=resets[tp]) for tp, it in unmarked.items()}
        offsets = {tp: Committed(it.next_offset, ToolMark(it.reset).encode()) for tp, it in marked.items()}
        # If a commit fails, the next owner gives its resets another id. The position is the same.
        for part in commit_parts(self._settings.group_id, offsets):
            with suppress(KafkaException):
                consumer.commit(offsets=rows_of(part), asynchronous=False)
        return marked

    def _committed(self, consumer: Consumer, tps: list[TopicPartition]) -> dict[TopicPartition, Committed]:
        try:
            return committed_offsets(consumer, tps, _COMMITTED_TIMEOUT_S)
        except KafkaException as e:
            raise self._translated(e.args[0], topics_of(e)) from None

    # ---- releasing ---------------------------------------------------------------------------------------------------

    def _on_revoke(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if self._state.is_away:
            # The member has released the partitions already, and the client is being closed.
            consumer.incremental_unassign(partitions)
            return
        tps = [*map(from_confluent, partitions)]
        if self._is_leaving:
            # A closing member has committed already, and a failed one must not commit.
            self._state.revoke(tps)
            self._release(consumer, partitions, Kind.RELEASED)
            return
        self._check_revoked()
        self._state.revoke(tps)
        self._wait_for_batch(consumer, tps)
        self._release(consumer, partitions, Kind.RELEASED)

    def _check_revoked(self) -> None:
        """An exclusive member fails if another one gets its partitions, or if the broker does not respond to this."""
        if not self._settings.exclusive:
            return
        try:
            check_revoked(self._settings.group_id, has_others=self._settings.has_others())
        except StreamGroupsError as e:
            self._state.fail_unless_closing(e)

    def _wait_for_batch(self, consumer: Consumer, tps: Collection[TopicPartition]) -> None:
        """Waits until no batch in flight reads the partitions and their offsets are committed."""
        deadline_s = time.monotonic() + self._settings.rebalance_timeout_ms / 1000 * HANDOVER_PART
        while not self._state.may_release(tps) and time.monotonic() <= deadline_s:
            # The rebalance starts a new generation of the group. A sink needs this generation to commit the batch.
            self._renew_group_metadata(consumer)
            self._batches.judge()
            self._state.await_due(_POLL_INTERVAL_S)
            if not self._commit_due(consumer):
                self._state.await_change(_POLL_INTERVAL_S)
        self._commit_due(consumer)

    def _on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._check_lost({*map(from_confluent, partitions)})
        self._release(consumer, partitions, Kind.LOST)

    def _check_lost(self, lost: Set[TopicPartition]) -> None:
        """An exclusive member fails if it has lost partitions of existing topics, or if the broker does not respond to this."""
        if not self._settings.exclusive:
            return
        owned = {tp: it for tp, it in self._state.owned.items() if tp in lost}
        deleted: Collection[TopicPartition] = ()

        def are_deleted() -> bool:
            nonlocal deleted
            deleted = self._settings.deleted(owned)
            return lost <= set(deleted)

        try:
            # Brokers receive a deletion at different times.
            comes_true(are_deleted, _DELETION_S, every_s=0.1)
            check_lost(self._settings.group_id, lost, deleted)
        except StreamGroupsError as e:
            self._state.fail_unless_closing(e)

    def _release(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition], kind: Kind) -> None:
        if abandoned := self._state.release([*map(from_confluent, partitions)], kind):
            logger.warning(
                "%s: partitions were %s while a batch was reading %s; another member will read these offsets again",
                self._settings.name,
                "lost" if kind is Kind.LOST else "revoked",
                listed(abandoned),
            )
        consumer.incremental_unassign(partitions)

    def _renew_group_metadata(self, consumer: Consumer) -> None:
        """Stores the current consumer group metadata, for sinks that commit offsets in the transaction of their output
        (KIP-447).
        """
        if (group_metadata := self._group_metadata_of(consumer)) is not None:
            # A joining member has no generation. Without a generation, the broker accepts offsets of any run.
            self._state.group_metadata = None if group_metadata.generation is None else group_metadata

    def _group_metadata_of(self, consumer: Consumer) -> ConsumerGroupMetadata | None:
        metadata = consumer.consumer_group_metadata() if self._settings.assign is None else None
        return None if metadata is None else ConsumerGroupMetadata.parse(metadata)

    # ---- committing --------------------------------------------------------------------------------------------------

    def _commit_due(self, consumer: Consumer) -> bool:
        """Commits the due offsets of owned partitions, fenced by the generation. Returns whether no commit is due any
        more.
        """
        due = self._state.due()
        marks = {tp: self._state.mark_of(tp, n) for tp, n in due.items()}
        offsets = {tp: Committed(n, marks[tp].encode()) for tp, n in due.items()}
        # A mark describes one partition only, and a partition stays due until its own commit is accepted. So a member can
        # end between two parts, as it can between two batches of different partitions.
        for part in commit_parts(self._settings.group_id, offsets):
            of_part = {tp: due[tp] for tp in part}
            rows = [to_confluent(tp, it.next_offset, it.metadata, marks[tp].leader_epoch) for tp, it in part.items()]
            try:
                results = consumer.commit(offsets=rows, asynchronous=False)
                errors = [r.error for r in results or () if r.error is not None]
            except KafkaException as e:
                errors = [e.args[0]]
            if errors:
                return self._on_commit_rejected(of_part, max(errors, key=lambda e: _GRAVITY[commit_verdict(e)]))
            self._log.succeeded()
            self._state.committed(of_part, marks)
        return True

    def _commit_last(self, consumer: Consumer) -> None:
        """Commits before the member leaves. A commit that the broker rejects during a rebalance is retried for a short
        time.
        """
        deadline_s = time.monotonic() + _LAST_COMMIT_S
        while not self._commit_due(consumer) and time.monotonic() < deadline_s:
            consumer.poll(_POLL_INTERVAL_S)

    def _on_commit_rejected(self, due: Mapping[TopicPartition, int], error: KafkaError) -> bool:
        verdict = commit_verdict(error)
        if verdict is CommitVerdict.RETRY_WHILE_OWNED:
            self._is_of_login(self._translated(error))
            self._state.last_error = error.name()
            return False
        self._record(MemberEvent(Kind.REJECTED, offsets=due, detail=error.name()))
        rejection = self._translated(error)
        if verdict is CommitVerdict.FATAL or self._settings.assign is not None:
            self._state.fail(rejection)
            return True
        # Fenced: the group continued without this member. Its partitions are lost, and librdkafka joins again as a new
        # member.
        logger.warning("%s: %s", self._settings.name, rejection)
        self._check_lost({*self._state.owned})
        self._state.release(None, Kind.LOST, detail="fenced")
        return True

    # ---- errors ------------------------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError, topic: str | None) -> None:
        """Handles an error that ``poll()`` returned. librdkafka recovers from most errors; some errors exclude the
        member permanently.
        """
        translated = self._translated(error, topic)
        self._state.last_error = str(translated)
        passes = isinstance(translated, FencedMember) or self._is_of_login(translated)
        lasting = error.fatal() or not (translated.retriable or passes)
        if lasting and error.code() not in _MENDED and not self._is_judged_by_refreshes(error):
            self._state.fail(translated)

    def _is_judged_by_refreshes(self, error: KafkaError) -> bool:
        """A topic that is being recreated does not exist for a moment. The refresh of the subscription waits for it."""
        unknown = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return unknown and bool(self._subscribed)

    def _on_client_error(self, error: KafkaError) -> None:
        self._state.last_error = self._settings.redact(error.str())
        self._log.failed(f"{self._settings.name}: {self._state.last_error}")
        translated = self._translated(error)
        self._is_of_login(translated)
        if error.fatal():
            self._state.fail(translated)

    def _is_of_login(self, error: StreamGroupsError) -> bool:
        """Whether a broker rejects the login. Others can accept it, so it is checked with a new client."""
        is_rejected = isinstance(error, LoginRejected)
        self._state.is_login_rejected = self._state.is_login_rejected or is_rejected
        return is_rejected

    def _translated(self, error: KafkaError, topic: str | None = None) -> StreamGroupsError:
        group_id, redact = self._settings.group_id, self._settings.redact
        return to_streamgroups_error(error, f"Group '{group_id}'", group=group_id, topic=topic, redact=redact)
