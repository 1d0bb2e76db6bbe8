"""One Kafka transaction for a whole micro-batch: the driver's side.

The driver begins a transaction and sends it to the tasks, in whatever processes they run; they write in it (``writer``), each to
output partitions of its own. Then the driver adds the group's offsets and commits, or aborts. Source: KIP-98, KIP-447; what
errors mean is in ``errors``. Each transaction has an epoch of its own: a write of an earlier one that arrives late is refused,
and what a killed driver has left open is aborted by whoever begins the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from streamgroups.errors import FencedMember, InvalidOption, SinkUnreachable, StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.errors import Step
from streamgroups_kafka.transactions.session import CoordinatorOf, OpenTransaction, TransactionSession
from streamgroups_kafka.write.encoder import ProducerIdentity

#: The last versions in which partitions and offsets are added to a transaction by requests of their own.
_INIT_VERSION, _OFFSETS_VERSION, _END_VERSION = 4, 4, 4


class Transactions:
    """The transactions of one transactional id, one at a time. Used by one thread.

    Args:
        config: how to reach the cluster.
        transactional_id: who writes. A new run of the same query uses the same one, and so shuts the old one out.
        timeout_ms: how long a transaction may stay open before the broker aborts it, in milliseconds.
        retry_timeout_s: for how long an answer is asked for again before it counts as final, in seconds.

    Raises:
        InvalidOption: if the transactional id is empty, or the configuration cannot be used.
        BrokerUnreachable: if no broker answers in time.
        NotAuthorized: if the login is refused.
    """

    def __init__(
        self, config: ClientConfig, transactional_id: str, *, timeout_ms: int = 60_000, retry_timeout_s: float = 30.0
    ) -> None:
        if not transactional_id:
            raise InvalidOption(
                "The transactional id is empty.", remedy="Set a different one for each query that writes."
            )
        self._transactional_id, self._timeout_ms = transactional_id, timeout_ms
        self._session = TransactionSession(config, retry_timeout_s=retry_timeout_s)
        self._last: OpenTransaction | None = None

    def close(self) -> None:
        """Closes all connections. An open transaction stays open until somebody begins the next, or it times out."""
        self._session.close()

    def begin(self) -> OpenTransaction:
        """Begins a transaction. What was open under the transactional id is aborted, this run's too, and its writers are shut out.

        The first one of a run shuts older runs out. Later ones are refused if that has happened to this run (KIP-360): it would
        otherwise shut out the newer one in turn.

        Raises:
            FencedMember: if a newer run has taken over, or the broker has ended this run's last transaction.
            NotAuthorized: if this user may not use the transactional id.
            InvalidOption: if the broker does not allow so long a transaction.
            StreamGroupsError: what else the broker refuses.
        """
        if (last := self._last) is not None:
            # InitProducerId aborts an open transaction whosever it is, and only then looks at who asks: a zombie must not get so far.
            self._session.again_while_it_may_pass(lambda: self._end(last, Step.ABORT))
        self._last = self._session.again_while_it_may_pass(self._begin)
        return self._last

    def _begin(self) -> OpenTransaction:
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._last.producer.producer_id if self._last else -1,
            producer_epoch=self._last.producer.epoch if self._last else -1,
            min_version=3,
            max_version=_INIT_VERSION,
        )
        answer = self._ask_coordinator(Step.INIT_PRODUCER_ID, request)
        self._session.judge(Step.INIT_PRODUCER_ID, [answer.error_code], self._of)
        identity = ProducerIdentity(answer.producer_id, answer.producer_epoch, transactional=True)
        return OpenTransaction(self._transactional_id, identity)

    def commit_offsets(
        self,
        transaction: OpenTransaction,
        offsets: Mapping[TopicPartition, Committed],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """Adds the group's offsets to the transaction: they count when it commits.

        A classic group may have a newer generation in which the member still owns the partitions: if so, call it again with the newer claim.

        Args:
            transaction: the one that the batch was written in.
            offsets: where the group stands after the batch.
            claim: the member's, of a generation in which it owns these partitions. The broker checks the generation, not
                the partitions.

        Raises:
            FencedMember: if the group has gone on without this member or generation, or a newer run has taken over.
            TransactionFailed: if the transaction is over, by its time-out for instance.
            StreamGroupsError: what else the broker refuses.
        """
        if offsets:
            self._session.again_while_it_may_pass(lambda: self._add_offsets(transaction, group_metadata))
            self._session.again_while_it_may_pass(lambda: self._commit_offsets(transaction, offsets, group_metadata))

    def _add_offsets(self, transaction: OpenTransaction, group_metadata: ConsumerGroupMetadata) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=transaction.producer.producer_id,
            producer_epoch=transaction.producer.epoch,
            group_id=group_metadata.group_id,
        )
        answer = self._ask_coordinator(Step.ADD_OFFSETS, request)
        self._session.judge(Step.ADD_OFFSETS, [answer.error_code], self._of, group=group_metadata.group_id)

    def _commit_offsets(
        self,
        transaction: OpenTransaction,
        offsets: Mapping[TopicPartition, Committed],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, committed in sorted(offsets.items()):
            by_topic[tp.topic].append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=committed.next_offset,
                    committed_leader_epoch=-1,
                    committed_metadata=committed.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group_metadata.group_id,
            producer_id=transaction.producer.producer_id,
            producer_epoch=transaction.producer.epoch,
            generation_id=-1 if group_metadata.generation is None else group_metadata.generation,
            member_id=group_metadata.member_id,
            group_instance_id=group_metadata.instance_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            # From 3 on the broker checks the member (KIP-447).
            min_version=3,
            max_version=_OFFSETS_VERSION,
        )
        step = Step.COMMIT_OFFSETS
        node = self._session.coordinator(CoordinatorOf.GROUP, group_metadata.group_id)
        answer = self._session.once(step, self._session.send, request, node)
        codes = [p.error_code for topic in answer.topics for p in topic.partitions]
        topics = ", ".join(by_topic)
        self._session.judge(
            step, codes, f"of group '{group_metadata.group_id}'", group=group_metadata.group_id, topic=topics
        )

    def commit(self, transaction: OpenTransaction) -> None:
        """Commits: output and offsets become visible together. May be called again for the same transaction.

        Raises:
            TransactionFailed: if the transaction was aborted; nothing of it is visible.
            FencedMember: if a newer run has taken over; nothing of it is visible.
            SinkUnreachable: if an answer was lost and what the broker says since does not tell whether it has committed. The
                group's stable offsets tell.
            StreamGroupsError: what else the broker refuses.
        """
        n_attempts = 0

        def attempt() -> None:
            nonlocal n_attempts
            n_attempts += 1
            self._end(transaction, Step.COMMIT)

        try:
            self._session.again_while_it_may_pass(attempt)
        except StreamGroupsError as e:
            # After a first attempt that may have done it, a refusal can as well be about what came after.
            if n_attempts == 1 and not e.retriable:
                raise
            raise SinkUnreachable(
                f"The transaction of '{self._transactional_id}' may or may not be committed. {e.what}",
                remedy="Read the stable offsets of the group: a committed transaction has changed them.",
            ) from e

    def abort(self, transaction: OpenTransaction) -> None:
        """Aborts: nothing of it will ever be visible. Does nothing to a transaction that is over, or to a newer run's.

        Raises:
            StreamGroupsError: what the broker refuses.
        """
        # A newer run has already aborted what this one left open.
        with suppress(FencedMember):
            self._session.again_while_it_may_pass(lambda: self._end(transaction, Step.ABORT))

    def _end(self, transaction: OpenTransaction, step: Step) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=transaction.producer.producer_id,
            producer_epoch=transaction.producer.epoch,
            committed=step is Step.COMMIT,
            max_version=_END_VERSION,
        )
        answer = self._ask_coordinator(step, request)
        self._session.judge(step, [answer.error_code], self._of)

    def _ask_coordinator(self, step: Step, request: Any) -> Any:
        node = self._session.coordinator(CoordinatorOf.TRANSACTION, self._transactional_id)
        return self._session.once(step, self._session.send, request, node)

    @property
    def _of(self) -> str:
        return f"of transactional id '{self._transactional_id}'"
