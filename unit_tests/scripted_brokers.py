"""The brokers of a transaction in memory: the part of Kafka's transaction protocol that a sink uses, with scripted
responses.

Replaces ``AdminSession`` below ``TransactionSession``: the requests are those of ``kafka.protocol``, without
connections. Source of the rules about epochs, open transactions and generations: KIP-98, KIP-360 and KIP-447.
``integration_tests/test_transactions_need_permissions.py`` and
``integration_tests/test_one_transaction_of_many_processes.py`` use a real cluster.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.errors import to_streamgroups_error
from unit_tests.commit_limit import is_too_large

_PRODUCER_ID = 77


@dataclass
class Transactional:
    """The state of a transactional id in its coordinator."""

    epoch: int = -1
    is_open: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class ScriptedBrokers:
    """A cluster with one node per partition of a topic.

    Args:
        topics: the number of partitions of each topic.

    ``script[name]`` contains results of the next requests of this name: an error code, an error that is raised before
    the request is executed, or a function of the request that is called before its execution. ``lost[name]`` contains
    errors that replace the response after the execution.
    """

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.ids: defaultdict[str, Transactional] = defaultdict(Transactional)
        self.generation = 7
        self.committed: dict[TopicPartition, int] = {}
        self.log: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self.script: defaultdict[str, deque[int | StreamGroupsError | Callable[[Any], None]]] = defaultdict(deque)
        self.lost: defaultdict[str, deque[StreamGroupsError]] = defaultdict(deque)
        #: The names of requests in order, and the requests.
        self.names: list[str] = []
        self.requests: list[Any] = []
        self.closed = 0
        #: Called before each request.
        self.before_each: Callable[[], None] = lambda: None

    def __call__(
        self, config: object, *, timeout_s: float, request_timeout_s: float, throttle_timeout_s: float
    ) -> ScriptedBrokers:
        """Replaces the constructor of the class."""
        return self

    # ---- interface of AdminSession -----------------------------------------------------------------------------------

    def close(self) -> None:
        self.closed += 1

    def once(self, what: str, request: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> Any:
        # The coroutine never suspends, so it ends at its first step.
        try:
            request(*args).send(None)
        except StopIteration as e:
            return e.value
        raise AssertionError("an exchange waits for something")

    def error(self, error_code: int, what: str, **about: Any) -> StreamGroupsError:
        return to_streamgroups_error(KafkaError(error_code), what, redact=str, **about)

    async def send(self, request: Any, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        self.before_each()
        name = type(request).__name__.removesuffix("Request")
        self.names.append(name)
        self.requests.append(request)
        code = 0
        if self.script[name]:
            then = self.script[name].popleft()
            if isinstance(then, StreamGroupsError):
                raise then
            if callable(then):
                then(request)
            else:
                code = then
        answer = getattr(self, f"_{name}")(request, code)
        if self.lost[name]:
            raise self.lost[name].popleft()
        return answer

    async def send_each(
        self, requests: Mapping[int, Any], timeout_s: float | None = None
    ) -> tuple[dict[int, Any], None]:
        return {node: await self.send(request, node) for node, request in requests.items()}, None

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _FindCoordinator(self, request: Any, code: int) -> Any:
        return SimpleNamespace(coordinators=[SimpleNamespace(error_code=code, node_id=0)])

    def _Metadata(self, request: Any, code: int) -> Any:
        found = []
        for name in (topic.name for topic in request.topics):
            partitions = [SimpleNamespace(partition_index=p, leader_id=p) for p in range(self.topics.get(name, 0))]
            missing = Code.UNKNOWN_TOPIC_OR_PARTITION if name not in self.topics else Code.NONE
            found.append(SimpleNamespace(name=name, error_code=code or int(missing), partitions=partitions))
        return SimpleNamespace(topics=found)

    def _InitProducerId(self, request: Any, code: int) -> Any:
        if request.transactional_id is None:
            return SimpleNamespace(error_code=code, producer_id=_PRODUCER_ID + 1, producer_epoch=0)
        known = self.ids[request.transactional_id]
        # An open transaction is always aborted; then the broker checks the producer epoch (KIP-360).
        known.is_open = False
        if not code and request.producer_epoch >= 0 and request.producer_epoch != known.epoch:
            code = int(Code.PRODUCER_FENCED)
        if not code:
            known.epoch += 1
            known.partitions, known.offsets = set(), {}
        return SimpleNamespace(error_code=code, producer_id=_PRODUCER_ID, producer_epoch=known.epoch)

    def _fenced(self, transactional_id: str, epoch: int, code: int) -> int:
        return code or (int(Code.PRODUCER_FENCED) if epoch != self.ids[transactional_id].epoch else 0)

    def _DescribeTransactions(self, request: Any, code: int) -> Any:
        (name,) = request.transactional_ids
        known = self.ids[name]
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for tp in known.partitions:
            by_topic[tp.topic].append(tp.partition)
        topics = [SimpleNamespace(topic=topic, partitions=found) for topic, found in by_topic.items()]
        state = SimpleNamespace(error_code=code, producer_id=_PRODUCER_ID, producer_epoch=known.epoch, topics=topics)
        return SimpleNamespace(transaction_states=[state])

    def _AddPartitionsToTxn(self, request: Any, code: int) -> Any:
        name, epoch = request.v3_and_below_transactional_id, request.v3_and_below_producer_epoch
        code = self._fenced(name, epoch, code)
        tps = {TopicPartition(t.name, p) for t in request.v3_and_below_topics for p in t.partitions}
        if not code:
            self.ids[name].is_open = True
            self.ids[name].partitions |= tps
        results = [
            SimpleNamespace(results_by_partition=[SimpleNamespace(partition_error_code=code)]) for _ in sorted(tps)
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=results)

    def _Produce(self, request: Any, code: int) -> Any:
        responses = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                if not code:
                    self.log[TopicPartition(topic.name, data.index)].append(bytes(data.records))
                responses.append(
                    SimpleNamespace(
                        name=topic.name, partition_responses=[SimpleNamespace(index=data.index, error_code=code)]
                    )
                )
        return SimpleNamespace(responses=responses)

    def _AddOffsetsToTxn(self, request: Any, code: int) -> Any:
        code = self._fenced(request.transactional_id, request.producer_epoch, code)
        if not code:
            self.ids[request.transactional_id].is_open = True
        return SimpleNamespace(error_code=code)

    def _TxnOffsetCommit(self, request: Any, code: int) -> Any:
        code = self._fenced(request.transactional_id, request.producer_epoch, code)
        if not code and request.generation_id not in (-1, self.generation):
            code = int(Code.ILLEGAL_GENERATION)
        rows = ((t.name, p) for t in request.topics for p in t.partitions)
        metadata = ((TopicPartition(name, p.partition_index), p.committed_metadata) for name, p in rows)
        if is_too_large(request.group_id, metadata):
            code = int(Code.UNKNOWN_SERVER_ERROR)
        if not code:
            self.ids[request.transactional_id].offsets |= {
                TopicPartition(t.name, p.partition_index): p.committed_offset
                for t in request.topics
                for p in t.partitions
            }
        topics = [
            SimpleNamespace(partitions=[SimpleNamespace(error_code=code) for _ in t.partitions]) for t in request.topics
        ]
        return SimpleNamespace(topics=topics)

    def _EndTxn(self, request: Any, code: int) -> Any:
        known = self.ids[request.transactional_id]
        code = self._fenced(request.transactional_id, request.producer_epoch, code)
        if not code and not known.is_open:
            code = int(Code.INVALID_TXN_STATE)
        if not code:
            if request.committed:
                self.committed |= known.offsets
            known.is_open = False
            known.offsets = {}
        return SimpleNamespace(error_code=code)
