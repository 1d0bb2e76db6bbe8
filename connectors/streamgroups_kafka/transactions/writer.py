"""One Kafka transaction for a whole micro-batch: a task's side. Without a transaction it writes at least once.

``task_output`` uses it in Spark's Python workers, where many tasks write in one transaction of the driver (``coordinator``).
Each task writes to output partitions that no other task uses, with sequence numbers from 0. So the broker detects a
batch that is sent twice. Each partition has at most one batch in flight, so retries keep the order. Source: KIP-98.

A broker can reject a record batch because of its records. It appends nothing of such a batch, so the transaction and the
sequence numbers continue as if it had not been sent. Since version 8 a response to a Produce request names the records.
Source: KIP-467 (``record_errors``), Kafka's ``LogValidator``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.errors import KafkaConnectionError

from streamgroups.errors import StreamGroupsError, TransactionFailed
from streamgroups.partitions import TopicPartition, by_topic
from streamgroups.printable import listed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.private_kafka_python import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from streamgroups_kafka.transactions.transaction_errors import Step, Verdict, verdict
from streamgroups_kafka.transactions.transaction_requests import (
    REQUEST_TIMEOUT_S,
    Coordinator,
    CoordinatorOf,
    OpenTransaction,
    TransactionSession,
)
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity

#: The last versions with a separate request that adds partitions, and with topic names.
_ADD_VERSION, _PRODUCE_VERSION = 3, 11
#: How long the leader may wait for its followers.
_PRODUCE_TIMEOUT_MS = 30_000
#: The slowest connection that a request can use without a timeout.
_SLOWEST_BYTES_PER_S = 500_000
#: The maximum size of a request at first. Brokers accept up to 100 MiB (``socket.request.max.bytes``), others less. They close the
#: connection without a response to a larger request. So after a closed connection the size is halved. With the minimum most
#: requests still contain one batch only, if a batch has its usual size.
_MAX_REQUEST_BYTES, _MIN_REQUEST_BYTES = 16 << 20, 1 << 20

_Pending = dict[TopicPartition, deque[EncodedBatch]]
_SIZES = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE})
#: The errors of a response that concern records of the batch, not the whole request.
ABOUT_RECORDS = _SIZES | {Code.INVALID_RECORD, Code.INVALID_TIMESTAMP}


class TransactionWriter(TransactionSession):
    """Writes to output partitions. Used by one thread. Closing it does not end the transaction.

    Args:
        config: the configuration of the client.
        transaction: the transaction of the driver; ``None`` to write at least once, without a transaction. Then the
            brokers store a batch once even if it is sent again.
        retry_timeout_s: how long a request is retried, in seconds.

    Raises:
        StreamGroupsError: see :class:`~streamgroups_kafka.transactions.transaction_requests.TransactionSession`.
    """

    def __init__(
        self, config: ClientConfig, transaction: OpenTransaction | None, *, retry_timeout_s: float = 30.0
    ) -> None:
        super().__init__(
            config, None if transaction is None else transaction.transactional_id, retry_timeout_s=retry_timeout_s
        )
        self._transaction = transaction
        self._added: set[TopicPartition] = set()
        self._max_request_bytes = _MAX_REQUEST_BYTES
        #: The producer for which batches must be encoded.
        self.producer = self._without_transaction() if transaction is None else transaction.producer

    def _without_transaction(self) -> ProducerIdentity:
        try:
            return self._new_producer()
        except BaseException:
            # The caller has no writer to close.
            self.close()
            raise

    def _new_producer(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, max_version=4)
        answer = self._call(Step.INIT_PRODUCER_ID, request, None, what="of a writer without a transaction")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic.

        Raises:
            UnknownTopic: if the topic does not exist.
            StreamGroupsError: if the broker rejects the request.
        """
        (found,) = self._again_while_it_may_pass(lambda: self._look_up([topic]))
        return len(found.partitions)

    def write(self, topic: str, batches: Iterable[EncodedBatch]) -> list[RejectedBatch]:
        """Writes batches, in order within each partition, and returns when the brokers have answered for all of them.

        Args:
            topic: the topic.
            batches: results of :func:`streamgroups_kafka.write.record_batches.encode` for the transaction's producer.

        Returns:
            The batches whose records a broker rejects. It has written neither them nor the later batches of their
            partitions, which can be encoded again from the same sequence number.

        Raises:
            FencedMember: if a newer run is active.
            TransactionFailed: if the transaction must be aborted.
            StreamGroupsError: if the broker rejects the request for another reason.
        """
        pending: _Pending = {}
        found: list[RejectedBatch] = []
        for batch in batches:
            pending.setdefault(TopicPartition(topic, batch.partition), deque()).append(batch)
        if self._transaction is not None:
            self._add(self._transaction, pending.keys())
        while pending:
            self._again_while_it_may_pass(lambda: self._round(pending, found))
        return found

    def _add(self, transaction: OpenTransaction, partitions: Collection[TopicPartition]) -> None:
        new = sorted(set(partitions) - self._added)
        if new:
            self._reject_if_others_write(transaction, new)
            self._request_add(transaction, new)
            self._added |= set(new)

    def _reject_if_others_write(self, transaction: OpenTransaction, partitions: Collection[TopicPartition]) -> None:
        """With two writers of one producer id, the broker handles the batches of the second as duplicates of the first.

        The writers may be two tasks, or two attempts of one task: Spark restarts the numbers of attempts when it
        repeats a whole stage.
        """
        there = self._in_transaction(transaction)
        if shared := sorted(there & set(partitions)):
            raise TransactionFailed(
                "Another task, or an earlier attempt of this task, has written to "
                f"{listed(shared)} in the transaction of '{transaction.transactional_id}'.",
                remedy="Only one task may write to each output partition. Use sg.exactly_once(df, ...) for "
                "a stream, or sg.write(df, ...) for a batch. Or reduce the number of tasks. After the loss of "
                "an executor, restart the query or the batch write.",
            )

    def _in_transaction(self, transaction: OpenTransaction) -> set[TopicPartition]:
        request = DescribeTransactionsRequest(transactional_ids=[transaction.transactional_id])
        answer = self._call(
            Step.DESCRIBE, request, _coordinator(transaction), lambda a: [s.error_code for s in a.transaction_states]
        )
        (state,) = answer.transaction_states
        producer = transaction.producer
        if (state.producer_id, state.producer_epoch) != (producer.producer_id, producer.epoch):
            # A newer run is active. The broker reports that in the response to AddPartitionsToTxn.
            return set()
        return {TopicPartition(found.topic, partition) for found in state.topics for partition in found.partitions}

    def _request_add(self, transaction: OpenTransaction, partitions: Iterable[TopicPartition]) -> None:
        added = by_topic((tp, tp.partition) for tp in partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer.producer_id,
            v3_and_below_producer_epoch=transaction.producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in added.items()
            ],
            max_version=_ADD_VERSION,
        )
        self._call(Step.ADD_PARTITIONS, request, _coordinator(transaction), _add_codes, topic=listed(added))

    def _round(self, pending: _Pending, found: list[RejectedBatch]) -> None:
        """Sends the next batch of each partition, up to the maximum size, and removes acknowledged batches from
        ``pending``. A partition with a rejected batch is removed, and the batch is added to ``found``.
        """
        leaders = self._leaders_of(pending.keys())
        if not leaders:
            self._judge(Step.PRODUCE, [Code.LEADER_NOT_AVAILABLE], self._to(pending))
        by_node = _heads(pending, leaders, self._max_request_bytes)
        requests = {node: self._request(heads) for node, heads in by_node.items()}
        n_bytes = sum(len(batch.data) for heads in by_node.values() for batch in heads.values())
        timeout_s = min(REQUEST_TIMEOUT_S + n_bytes / _SLOWEST_BYTES_PER_S, self._retry_timeout_s)
        answers, failure = self._once(Step.PRODUCE, self._session.send_each, requests, timeout_s)
        responses: dict[TopicPartition, Any] = {
            TopicPartition(topic.name, p.index): p
            for answer in answers.values()
            for topic in answer.responses
            for p in topic.partition_responses
        }
        rejected: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp, response in responses.items():
            code = response.error_code
            if code in ABOUT_RECORDS:
                error = self._session.error(code, f"{Step.PRODUCE.value} {self._to([tp])}", topic=tp.topic)
                found.append(rejected_batch(tp, pending.pop(tp)[0], response, error))
            elif verdict(Step.PRODUCE, code) is Verdict.DONE:
                pending[tp].popleft()
                if not pending[tp]:
                    del pending[tp]
            else:
                rejected[code].append(tp)
        if rejected:
            affected = [tp for tps in rejected.values() for tp in tps]
            self._judge(Step.PRODUCE, rejected, self._to(affected), topic=affected[0].topic)
        if failure is not None:
            if isinstance(failure, KafkaConnectionError):
                self._max_request_bytes = max(_MIN_REQUEST_BYTES, self._max_request_bytes // 2)
            self._raise(self._session.translated(failure, Step.PRODUCE.value))

    def _request(self, heads: Mapping[TopicPartition, EncodedBatch]) -> Any:
        topic = ProduceRequest.TopicProduceData
        rows = by_topic(
            (tp, topic.PartitionProduceData(index=tp.partition, records=batch.data)) for tp, batch in heads.items()
        )
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=-1,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[topic(name=name, partition_data=of_topic) for name, of_topic in rows.items()],
            max_version=_PRODUCE_VERSION,
        )

    def _to(self, partitions: Iterable[TopicPartition]) -> str:
        to = f"to {listed(sorted(partitions))}"
        return f"{'without a transaction' if self._transaction is None else _coordinator(self._transaction)} {to}"


def _coordinator(transaction: OpenTransaction) -> Coordinator:
    return Coordinator(CoordinatorOf.TRANSACTION, transaction.transactional_id)


def _add_codes(answer: Any) -> set[int]:
    codes = {
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    # The error of another partition is the reason for OPERATION_NOT_ATTEMPTED.
    return codes - {Code.OPERATION_NOT_ATTEMPTED} or codes


def _heads(
    pending: Mapping[TopicPartition, deque[EncodedBatch]], leaders: Mapping[TopicPartition, int], max_bytes: int
) -> dict[int, dict[TopicPartition, EncodedBatch]]:
    """The next batch of each partition by its leader: at least one for each leader, within the maximum size of a
    request.
    """
    heads: defaultdict[int, dict[TopicPartition, EncodedBatch]] = defaultdict(dict)
    n_bytes: defaultdict[int, int] = defaultdict(int)
    for tp, node in leaders.items():
        batch = pending[tp][0]
        if not heads[node] or n_bytes[node] + len(batch.data) <= max_bytes:
            heads[node][tp] = batch
            n_bytes[node] += len(batch.data)
    return heads


@dataclass(frozen=True, slots=True)
class RejectedBatch:
    """A rejected record batch.

    Args:
        topic_partition: its partition.
        batch: the batch.
        reasons: the texts of the broker by the numbers of the rejected records in the batch. Empty if the broker names
            none.
        error: the error for the whole batch.
        is_too_large: whether the broker rejects its size.
    """

    topic_partition: TopicPartition
    batch: EncodedBatch
    reasons: Mapping[int, str]
    error: StreamGroupsError
    is_too_large: bool

    @property
    def rejected(self) -> tuple[int, ...]:
        """The numbers of the rejected records in the batch. Empty if they are unknown."""
        if not self.reasons and self.batch.n_records == 1:
            return (0,)
        return tuple(sorted(self.reasons))


def rejected_batch(tp: TopicPartition, batch: EncodedBatch, response: Any, error: StreamGroupsError) -> RejectedBatch:
    """Returns the rejected batch of the response of a partition.

    Args:
        tp: the partition.
        batch: the batch that was sent.
        response: the response of the partition, with a code of :data:`ABOUT_RECORDS`.
        error: the error for the code.
    """
    reasons = {
        it.batch_index: it.batch_index_error_message or response.error_message or ""
        for it in response.record_errors
        if 0 <= it.batch_index < batch.n_records
    }
    return RejectedBatch(tp, batch, reasons, error, response.error_code in _SIZES)
