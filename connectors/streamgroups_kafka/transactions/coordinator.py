"""One Kafka transaction for a whole micro-batch: the driver's side.

The driver begins a transaction and sends it to the tasks, in any process. The tasks write in it (``writer``), each to
its own output partitions. Then the driver adds the offsets of the group and commits, or aborts. Source: KIP-98,
KIP-447; ``transaction_errors`` defines the meaning of error codes. Each transaction has its own producer epoch, so the broker
rejects delayed writes of earlier transactions. The next ``begin`` aborts the open transaction of a killed driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from streamgroups.coordination.commit_parts import commit_parts
from streamgroups.errors import FencedMember, InvalidOption, SinkUnreachable, StreamGroupsError
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups.ports import Committed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.private_kafka_python import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.transaction_errors import Step
from streamgroups_kafka.transactions.transaction_requests import (
    THROTTLE_TIMEOUT_S,
    Coordinator,
    CoordinatorOf,
    OpenTransaction,
    TransactionSession,
)
from streamgroups_kafka.write.encoder import ProducerIdentity

logger = logging.getLogger(__name__)

#: The last versions with separate requests that add partitions and offsets to a transaction.
_INIT_VERSION, _OFFSETS_VERSION, _END_VERSION = 4, 4, 4


class Transactions(TransactionSession):
    """The transactions of one transactional id, one at a time. Used by one thread.

    Args:
        config: the configuration of the client.
        transactional_id: the identity of the writer. A new run of the query uses the same id and fences the old run.
        timeout_ms: how long a transaction may stay open before the broker aborts it, in milliseconds.
        retry_timeout_s: how long a request is retried, in seconds.
        throttle_timeout_s: how long a request waits while a quota throttles this user, in seconds.

    Raises:
        InvalidOption: if the transactional id is empty, or the configuration is invalid.
        BrokerUnreachable: if no broker responds before the timeout.
        LoginRejected: if authentication fails.
    """

    def __init__(
        self,
        config: ClientConfig,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        retry_timeout_s: float = 30.0,
        throttle_timeout_s: float = THROTTLE_TIMEOUT_S,
    ) -> None:
        if not transactional_id:
            raise InvalidOption(
                "The transactional id is empty.", remedy="Set a different one for each query that writes."
            )
        super().__init__(
            config, transactional_id, retry_timeout_s=retry_timeout_s, throttle_timeout_s=throttle_timeout_s
        )
        self._transactional_id, self._timeout_ms = transactional_id, timeout_ms
        self._coordinator = Coordinator(CoordinatorOf.TRANSACTION, transactional_id)
        self._last: OpenTransaction | None = None

    def begin(self) -> OpenTransaction:
        """Begins a transaction. An open transaction of this transactional id is aborted, also one of this run, and its
        writers are fenced.

        The first transaction of a run fences older runs. If a newer run has fenced this one, later transactions are
        rejected (KIP-360): otherwise they would fence the newer run.

        Raises:
            FencedMember: if a newer run is active, or the broker has ended the last transaction of this run.
            NotAuthorized: if this user is not authorized to use the transactional id.
            InvalidOption: if the broker does not allow this transaction timeout.
            StreamGroupsError: if the broker rejects the request for another reason.
        """
        if self._last is not None:
            # InitProducerId aborts any open transaction before it checks the producer epoch. EndTxn rejects a zombie
            # first.
            self._end(self._last, Step.ABORT)
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._last.producer.producer_id if self._last else -1,
            producer_epoch=self._last.producer.epoch if self._last else -1,
            min_version=3,
            max_version=_INIT_VERSION,
        )
        answer = self._call(Step.INIT_PRODUCER_ID, request, self._coordinator)
        identity = ProducerIdentity(answer.producer_id, answer.producer_epoch, transactional=True)
        self._last = OpenTransaction(self._transactional_id, identity)
        return self._last

    def commit_offsets(
        self,
        transaction: OpenTransaction,
        offsets: Mapping[TopicPartition, Committed],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """Adds offsets of the group to the transaction. They take effect when it commits.

        A classic group may have a newer generation in which the member still owns the partitions. In that case call
        this method again with the newer consumer group metadata.

        Args:
            transaction: the transaction of the batch.
            offsets: the positions of the group after the batch.
            group_metadata: the consumer group metadata, of a generation in which the member owns these partitions. The
                broker checks the generation, not the partitions.

        Raises:
            FencedMember: if the group has fenced this member or generation, or a newer run is active.
            TransactionFailed: if the transaction has ended, for example by its timeout.
            StreamGroupsError: if the broker rejects the request for another reason.
        """
        if not offsets:
            return
        group_id = group_metadata.group_id
        identity = {
            "transactional_id": self._transactional_id,
            "producer_id": transaction.producer.producer_id,
            "producer_epoch": transaction.producer.epoch,
            "group_id": group_id,
        }
        self._call(Step.ADD_OFFSETS, AddOffsetsToTxnRequest(**identity), self._coordinator, group=group_id)
        # All parts take effect together, when the transaction commits.
        for part in commit_parts(group_id, offsets):
            self._commit_part(identity, part, group_metadata)

    def _commit_part(
        self,
        identity: Mapping[str, Any],
        offsets: Mapping[TopicPartition, Committed],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        group_id = group_metadata.group_id
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        rows = by_topic(
            (
                tp,
                topic.TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=committed.next_offset,
                    committed_leader_epoch=_leader_epoch(committed.metadata),
                    committed_metadata=committed.metadata,
                ),
            )
            for tp, committed in sorted(offsets.items())
        )
        request = TxnOffsetCommitRequest(
            **identity,
            generation_id=-1 if group_metadata.generation is None else group_metadata.generation,
            member_id=group_metadata.member_id,
            group_instance_id=group_metadata.instance_id,
            topics=[topic(name=name, partitions=of_topic) for name, of_topic in rows.items()],
            # From version 3 on, the broker checks the member (KIP-447).
            min_version=3,
            max_version=_OFFSETS_VERSION,
        )
        self._call(
            Step.COMMIT_OFFSETS,
            request,
            Coordinator(CoordinatorOf.GROUP, group_id),
            lambda answer: [p.error_code for topic in answer.topics for p in topic.partitions],
            group=group_id,
            topic=", ".join(rows),
        )

    def commit(self, transaction: OpenTransaction) -> None:
        """Commits: output and offsets become visible together. May be called again for the same transaction.

        Raises:
            TransactionFailed: if the transaction was aborted. None of its output is visible.
            FencedMember: if a newer run is active. None of the output is visible.
            SinkUnreachable: if a response was lost, and later responses do not show whether the transaction is
                committed. The stable offsets of the group show it.
            StreamGroupsError: if the broker rejects the request for another reason.
        """
        try:
            self._end(transaction, Step.COMMIT)
        except StreamGroupsError as e:
            # The first attempt may have committed. Then a later rejection can refer to the state after that commit.
            if self._n_attempts == 1 and not e.retriable:
                raise
            raise SinkUnreachable(
                f"The transaction of '{self._transactional_id}' may or may not be committed. {e.what}",
                remedy="Read the stable offsets of the group: a committed transaction has changed them.",
            ) from e

    def abort(self, transaction: OpenTransaction) -> None:
        """Aborts: the output never becomes visible. Has no effect on a transaction that has ended, or on a newer run.

        Raises:
            StreamGroupsError: if the broker rejects the request.
        """
        # A newer run has already aborted the open transaction of this run.
        with suppress(FencedMember):
            self._end(transaction, Step.ABORT)

    @contextmanager
    def aborting(self, transaction: OpenTransaction) -> Iterator[None]:
        """Aborts a transaction if the block raises an error. Raises this error, also if the abort fails.

        Args:
            transaction: the transaction.
        """
        try:
            yield
        except Exception:
            _abort_failed(self, transaction)
            raise

    def _end(self, transaction: OpenTransaction, step: Step) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=transaction.producer.producer_id,
            producer_epoch=transaction.producer.epoch,
            committed=step is Step.COMMIT,
            max_version=_END_VERSION,
        )
        self._call(step, request, self._coordinator)


def abort_failed(connect: Callable[[], Transactions], transaction: OpenTransaction) -> None:
    """Aborts a transaction after another error, which the caller raises, so that readers need not wait for its timeout.

    If this fails too, it logs a warning: the first error must not be lost. The next transaction of the transactional id
    aborts it then, or the broker after its timeout.

    Args:
        connect: connects to the brokers. The connections are closed here.
        transaction: the transaction.
    """
    try:
        connected = connect()
    except StreamGroupsError as e:
        _log_open(transaction, e)
        return
    with closing(connected) as transactions:
        _abort_failed(transactions, transaction)


def _abort_failed(transactions: Transactions, transaction: OpenTransaction) -> None:
    try:
        transactions.abort(transaction)
    except StreamGroupsError as e:
        _log_open(transaction, e)


def _log_open(transaction: OpenTransaction, error: StreamGroupsError) -> None:
    logger.warning(
        "The transaction of '%s' stays open until the next one begins or until it times out: %s",
        transaction.transactional_id,
        error,
    )


def _leader_epoch(metadata: str) -> int:
    """The leader epoch of a committed offset, which its mark contains; -1 if it is unknown.

    >>> _leader_epoch("streamgroups:shared;cluster=;topic=;leader=4;end;"), _leader_epoch("")
    (4, -1)
    """
    mark = CommitMark.parse(metadata)
    return -1 if mark is None or mark.leader_epoch is None else mark.leader_epoch
