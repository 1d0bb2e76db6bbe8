"""A minimal model of a broker's rules for transactions, for the requests of ``streamgroups_kafka``. Used by
``test_transaction_fences``.

The real ``Transactions`` and ``TransactionWriter`` send the requests; :func:`connected` replaces their connections with
this broker. Source: KIP-98, KIP-360, KIP-447, KIP-890, and the behaviour of Kafka's ``TransactionCoordinator`` and
``GroupCoordinator``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from confluent_kafka import KafkaError

from streamgroups.errors import BrokerUnreachable, StreamGroupsError
from streamgroups.fakes import FakeGroup, FakeGroupMetadata, FakeTransaction
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity

_T = TypeVar("_T")
Row = tuple[TopicPartition, int]


@dataclass
class _Transaction:
    """The state of an open transaction in its coordinator."""

    pending: FakeTransaction
    partitions: set[int] = field(default_factory=set)
    #: Indexes into the log.
    written: list[int] = field(default_factory=list)
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)


@dataclass
class _Producer:
    """A transactional id."""

    producer_id: int
    epoch: int = -1
    open: _Transaction | None = None
    #: Whether its last transaction was committed; ``None`` without a transaction in this epoch.
    last_end: bool | None = None


class FakeTransactionBroker:
    """A broker with one output topic, ``out``, of two partitions.

    Args:
        group: the group whose offsets are committed in transactions.
    """

    def __init__(self, group: FakeGroup) -> None:
        self.group = group
        self._producers: dict[str, _Producer] = {}
        #: All rows ever written, and whether readers of committed records see them.
        self.log: list[tuple[Row, bool]] = []
        self._sequences: set[tuple[int, int, int, int]] = set()
        #: Functions that are called once, just before or after the response to a request, by the name of the request.
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    @property
    def visible(self) -> list[Row]:
        """The rows that readers of committed records see, in the order of the log."""
        return [row for row, is_visible in self.log if is_visible]

    @property
    def open_transactions(self) -> list[str]:
        """The transactional ids with an open transaction."""
        return sorted(name for name, producer in self._producers.items() if producer.open)

    def time_out(self, transactional_id: str) -> None:
        """The broker aborts a transaction after its timeout, and fences its producer."""
        producer = self._producers[transactional_id]
        self._end(producer, committed=False)
        producer.epoch += 1
        producer.last_end = None

    def answer(self, request: Any) -> Any:
        """The response to a request."""
        name = type(request).__name__.removesuffix("Request")
        if name in self.before:
            self.before.pop(name)()
        answer = getattr(self, f"_{name}")(request)
        if name in self.after:
            self.after.pop(name)()
        return answer

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _FindCoordinator(self, request: Any) -> Any:
        return SimpleNamespace(coordinators=[SimpleNamespace(error_code=0, node_id=0)])

    def _Metadata(self, request: Any) -> Any:
        partitions = [SimpleNamespace(partition_index=p, leader_id=0) for p in range(2)]
        return SimpleNamespace(topics=[SimpleNamespace(error_code=0, name="out", partitions=partitions)])

    def _InitProducerId(self, request: Any) -> Any:
        new = _Producer(len(self._producers) + 1)
        producer = self._producers.setdefault(request.transactional_id, new)
        # The transaction of any producer is aborted, before the broker checks the producer epoch.
        self._end(producer, committed=False)
        known = request.producer_epoch
        if known != -1 and (request.producer_id, known) != (producer.producer_id, producer.epoch):
            return SimpleNamespace(error_code=Code.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1)
        producer.epoch += 1
        producer.last_end = None
        return SimpleNamespace(error_code=0, producer_id=producer.producer_id, producer_epoch=producer.epoch)

    def _DescribeTransactions(self, request: Any) -> Any:
        (name,) = request.transactional_ids
        producer = self._producers[name]
        partitions = sorted(producer.open.partitions) if producer.open else []
        topics = [SimpleNamespace(topic="out", partitions=partitions)]
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        return SimpleNamespace(transaction_states=[SimpleNamespace(error_code=0, topics=topics, **identity)])

    def _AddPartitionsToTxn(self, request: Any) -> Any:
        (topic,) = request.v3_and_below_topics
        name = request.v3_and_below_transactional_id
        code = self._fence(name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        if code == 0:
            self._open(name).partitions.update(topic.partitions)
        results = [SimpleNamespace(partition_error_code=code) for _ in topic.partitions]
        return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(results_by_partition=results)])

    def _Produce(self, request: Any) -> Any:
        responses = []
        for topic in request.topic_data:
            answers = [self._write(request.transactional_id, p.index, p.records) for p in topic.partition_data]
            indexes = [p.index for p in topic.partition_data]
            found = [SimpleNamespace(index=i, error_code=c) for i, c in zip(indexes, answers, strict=True)]
            responses.append(SimpleNamespace(name=topic.name, partition_responses=found))
        return SimpleNamespace(responses=responses)

    def _write(self, name: str, partition: int, data: bytes) -> int:
        batch = json.loads(data)
        if code := self._fence(name, batch["producer_id"], batch["epoch"]):
            return code
        transaction = self._producers[name].open
        if transaction is None or partition not in transaction.partitions:
            return int(Code.INVALID_TXN_STATE)
        place = (batch["producer_id"], batch["epoch"], partition, batch["sequence"])
        if place in self._sequences:
            return int(Code.DUPLICATE_SEQUENCE_NUMBER)
        self._sequences.add(place)
        for topic, p, offset in batch["rows"]:
            transaction.written.append(len(self.log))
            self.log.append(((TopicPartition(topic, p), offset), False))
        return 0

    def _AddOffsetsToTxn(self, request: Any) -> Any:
        code = self._fence(request.transactional_id, request.producer_id, request.producer_epoch)
        if code == 0:
            self._open(request.transactional_id)
        return SimpleNamespace(error_code=code)

    def _TxnOffsetCommit(self, request: Any) -> Any:
        code = self._fence(request.transactional_id, request.producer_id, request.producer_epoch)
        if code == 0 and self._producers[request.transactional_id].open is None:
            code = int(Code.INVALID_TXN_STATE)
        # As a broker does for old clients: a request without member id and generation is not checked.
        if code == 0 and (request.member_id or request.generation_id >= 0):
            group_metadata = FakeGroupMetadata(int(request.member_id or 0), request.generation_id)
            code = 0 if self.group.would_accept(group_metadata) else int(Code.ILLEGAL_GENERATION)
        topics = []
        for topic in request.topics:
            for p in topic.partitions if code == 0 else ():
                tp = TopicPartition(topic.name, p.partition_index)
                committed = Committed(p.committed_offset, p.committed_metadata)
                transaction = self._open(request.transactional_id)
                transaction.offsets[tp] = committed
                transaction.pending.commit_offsets(request.group_id, {tp: committed})
            topics.append(SimpleNamespace(partitions=[SimpleNamespace(error_code=code) for _ in topic.partitions]))
        return SimpleNamespace(topics=topics)

    def _EndTxn(self, request: Any) -> Any:
        code = self._fence(request.transactional_id, request.producer_id, request.producer_epoch)
        if code == 0:
            producer = self._producers[request.transactional_id]
            if producer.open is not None:
                self._end(producer, committed=request.committed)
            elif producer.last_end != request.committed:
                code = int(Code.INVALID_TXN_STATE)
        return SimpleNamespace(error_code=code)

    # ---- state -------------------------------------------------------------------------------------------------------

    def _fence(self, name: str, producer_id: int, epoch: int) -> int:
        producer = self._producers[name]
        is_newest = (producer_id, epoch) == (producer.producer_id, producer.epoch)
        return 0 if is_newest else int(Code.INVALID_PRODUCER_EPOCH)

    def _open(self, name: str) -> _Transaction:
        producer = self._producers[name]
        if producer.open is None:
            producer.open = _Transaction(self.group.cluster.begin_transaction())
        return producer.open

    def _end(self, producer: _Producer, *, committed: bool) -> None:
        transaction, producer.open = producer.open, None
        if transaction is None:
            return
        producer.last_end = committed
        if committed:
            for place in transaction.written:
                self.log[place] = (self.log[place][0], True)
            transaction.pending.commit()
        else:
            transaction.pending.abort()


class _Session:
    """Replaces :class:`streamgroups_kafka.admin.connection.AdminSession`, with connections to a broker in memory."""

    def __init__(self, broker: FakeTransactionBroker) -> None:
        self._broker = broker

    def once(self, what: str, request: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        try:
            request(*args).send(None)
        except StopIteration as done:
            result: _T = done.value
            return result
        raise AssertionError("nothing waits here")

    async def send(self, request: Any, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        return self._broker.answer(request)

    async def send_each(
        self, requests: Mapping[int, Any], timeout_s: float | None = None
    ) -> tuple[dict[int, Any], None]:
        return {node: self._broker.answer(request) for node, request in requests.items()}, None

    def error(self, error_code: int, what: str, **about: Any) -> StreamGroupsError:
        return to_streamgroups_error(KafkaError(error_code), what, **about)

    def close(self) -> None:
        """Does nothing."""


@contextmanager
def connected(broker: FakeTransactionBroker) -> Iterator[None]:
    """During the block, transactions use this broker."""
    with patch("streamgroups_kafka.transactions.transaction_requests.AdminSession", lambda *_, **__: _Session(broker)):
        yield


def encoded(producer: ProducerIdentity, partition: int, rows: list[Row], sequence: int = 0) -> EncodedBatch:
    """A batch in the format of this broker."""
    reported = {
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "sequence": sequence,
        "rows": [[tp.topic, tp.partition, offset] for tp, offset in rows],
    }
    return EncodedBatch(partition, 0, len(rows), sequence, json.dumps(reported).encode())


def lose_the_answer() -> None:
    """Executes the request and loses its response."""
    raise BrokerUnreachable("No answer.", remedy="Try again.")
