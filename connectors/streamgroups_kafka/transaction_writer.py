"""One Kafka transaction for a whole micro-batch: a task's side.

Runs in Spark's Python workers, many at once in the transaction that the driver has begun (``transactions``). Each task writes to output
partitions that no other task writes to, with sequence numbers from 0: then the broker knows a batch that is sent twice. Of a
partition one batch is under way at a time, so that order holds whatever is sent again. Source: KIP-98.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka.protocol.producer import AddPartitionsToTxnRequest, ProduceRequest

from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client_config import ClientConfig
from streamgroups_kafka.encoding import EncodedBatch
from streamgroups_kafka.transaction_errors import Code, Step, Verdict, verdict
from streamgroups_kafka.transaction_session import CoordinatorOf, OpenTransaction, TransactionSession

#: The last versions in which partitions are added to a transaction by a request of their own, and topics go by their names.
_ADD_VERSION, _PRODUCE_VERSION = 3, 11
#: How long the leader may wait for its followers.
_PRODUCE_TIMEOUT_MS = 30_000
#: A request larger than this is made of fewer batches; brokers take up to 100 MiB.
_MOST_REQUEST_BYTES = 16 << 20

_Pending = dict[TopicPartition, deque[EncodedBatch]]


class TransactionWriter:
    """Writes to output partitions in an open transaction. Used by one thread.

    Args:
        config: how to reach the cluster.
        transaction: what the driver has begun.
        patience_s: for how long an answer is asked for again before it counts as final, in seconds.

    Raises:
        StreamGroupsError: see :class:`~streamgroups_kafka.transaction_session.TransactionSession`.
    """

    def __init__(self, config: ClientConfig, transaction: OpenTransaction, *, patience_s: float = 30.0) -> None:
        self._session = TransactionSession(config, patience_s=patience_s)
        self._transaction = transaction
        self._added: set[TopicPartition] = set()

    def close(self) -> None:
        """Closes all connections; the transaction stays open."""
        self._session.close()

    def write(self, topic: str, batches: Iterable[EncodedBatch]) -> None:
        """Writes batches, those of one partition in order, and returns when the brokers have them all.

        Args:
            topic: where to.
            batches: what :func:`streamgroups_kafka.record_batches.encode` made for the transaction's producer.

        Raises:
            FencedMember: if a newer run has taken over.
            TransactionFailed: if the transaction must be aborted.
            RecordRefused: if the broker does not take a record.
            StreamGroupsError: what else the broker refuses.
        """
        pending: _Pending = {}
        for batch in batches:
            pending.setdefault(TopicPartition(topic, batch.partition), deque()).append(batch)
        self._add(pending.keys())
        while pending:
            self._session.again_while_it_may_pass(lambda: self._round(pending))

    def _add(self, partitions: Collection[TopicPartition]) -> None:
        new = sorted(set(partitions) - self._added)
        if new:
            self._session.again_while_it_may_pass(lambda: self._ask_to_add(new))
            self._added |= set(new)

    def _ask_to_add(self, partitions: Iterable[TopicPartition]) -> None:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for tp in partitions:
            by_topic[tp.topic].append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transaction.transactional_id,
            v3_and_below_producer_id=self._transaction.producer.producer_id,
            v3_and_below_producer_epoch=self._transaction.producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic.items()
            ],
            max_version=_ADD_VERSION,
        )
        node = self._session.coordinator(CoordinatorOf.TRANSACTION, self._transaction.transactional_id)
        answer = self._session.once(Step.ADD_PARTITIONS, self._session.send, request, node)
        codes = {
            result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        # Of what another partition has kept from being done, that other one tells why.
        others = codes - {Code.OPERATION_NOT_ATTEMPTED} or codes
        topics = ", ".join(by_topic)
        self._session.judge(
            Step.ADD_PARTITIONS, others, f"of transactional id '{self._transaction.transactional_id}'", topic=topics
        )

    def _round(self, pending: _Pending) -> None:
        """Sends the next batch of each partition, as many as fit, and takes those that arrived out of ``pending``."""
        leaders = self._session.leaders(pending.keys())
        if not leaders:
            self._session.judge(Step.PRODUCE, [Code.LEADER_NOT_AVAILABLE], self._to(pending))
        requests = {node: self._request(heads) for node, heads in _heads(pending, leaders).items()}
        answers = self._session.once(Step.PRODUCE, self._session.send_all, requests)
        codes: dict[TopicPartition, int] = {
            TopicPartition(topic.name, p.index): p.error_code
            for answer in answers.values()
            for topic in answer.responses
            for p in topic.partition_responses
        }
        refused: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for tp, code in codes.items():
            if verdict(Step.PRODUCE, code) is Verdict.DONE:
                pending[tp].popleft()
                if not pending[tp]:
                    del pending[tp]
            else:
                refused[code].append(tp)
        if refused:
            told = [tp for tps in refused.values() for tp in tps]
            self._session.judge(Step.PRODUCE, refused, self._to(told), topic=told[0].topic)

    def _request(self, heads: Mapping[TopicPartition, EncodedBatch]) -> Any:
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, batch in heads.items():
            by_topic[tp.topic].append(
                ProduceRequest.TopicProduceData.PartitionProduceData(index=tp.partition, records=batch.data)
            )
        return ProduceRequest(
            transactional_id=self._transaction.transactional_id,
            acks=-1,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(name=topic, partition_data=partitions)
                for topic, partitions in by_topic.items()
            ],
            max_version=_PRODUCE_VERSION,
        )

    def _to(self, partitions: Iterable[TopicPartition]) -> str:
        return (
            f"of transactional id '{self._transaction.transactional_id}' to {', '.join(map(str, sorted(partitions)))}"
        )


def _heads(
    pending: Mapping[TopicPartition, deque[EncodedBatch]], leaders: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, EncodedBatch]]:
    """The next batch of each partition by its leader, at least one of each leader and at most so many bytes."""
    heads: defaultdict[int, dict[TopicPartition, EncodedBatch]] = defaultdict(dict)
    n_bytes: defaultdict[int, int] = defaultdict(int)
    for tp, node in leaders.items():
        batch = pending[tp][0]
        if not heads[node] or n_bytes[node] + len(batch.data) <= _MOST_REQUEST_BYTES:
            heads[node][tp] = batch
            n_bytes[node] += len(batch.data)
    return heads
