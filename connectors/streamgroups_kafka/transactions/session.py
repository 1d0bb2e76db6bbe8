"""Sends requests on behalf of one transaction: finds the responsible broker, evaluates the responses, and retries.

Used by ``coordinator`` (the driver) and ``writer`` (the tasks). ``errors`` defines the meaning of responses. The
requests have the versions of KIP-98, in which separate requests add partitions and offsets to a transaction. All
brokers since 3.0 support them. Brokers since 4.0 verify the partitions (KIP-890, part 1). Part 2 adds partitions
implicitly and increases the epoch with each transaction. It is not needed, because each transaction here begins with
its own epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from streamgroups.errors import StreamGroupsError, TransactionFailed
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin.session import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.errors import ELSEWHERE, Step, Verdict, verdict
from streamgroups_kafka.write.encoder import ProducerIdentity

#: Most waits are for the completion of the previous transaction, which takes milliseconds.
_FIRST_WAIT_S, _MAX_WAIT_S = 0.01, 0.2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has begun. The driver sends it to the tasks that write in it.

    Args:
        transactional_id: the identity of the writer, which has at most one open transaction.
        producer: the producer id and the epoch, which only this transaction has.
    """

    transactional_id: str
    producer: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Standalone:
    """Output without a transaction: a record is visible after the broker has stored it, once even if it is sent again.

    Args:
        producer: the producer id and the epoch of one writer.
    """

    producer: ProducerIdentity


#: The mode of a writer.
Writing: TypeAlias = OpenTransaction | Standalone


class CoordinatorOf(IntEnum):
    """The types of coordinators, with the key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class _TryAgainError(Exception):
    """A transient error, with the error to raise if it persists."""

    def __init__(self, error: StreamGroupsError) -> None:
        super().__init__(str(error))
        self.error = error


class TransactionSession:
    """Connections for transactions. Used by one thread.

    Args:
        config: the configuration of the client.
        retry_timeout_s: how long a request is retried, in seconds.

    Raises:
        StreamGroupsError: see :class:`~streamgroups_kafka.admin.session.AdminSession`.
    """

    def __init__(self, config: ClientConfig, *, retry_timeout_s: float = 30.0) -> None:
        self._session = AdminSession(config, timeout_s=retry_timeout_s)
        self._retry_timeout_s = retry_timeout_s
        self._coordinators: dict[tuple[CoordinatorOf, str], int] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Closes all connections."""
        self._session.close()

    def again_while_it_may_pass(self, attempt: Callable[[], _T]) -> _T:
        """Calls ``attempt`` until it raises no transient error of :meth:`judge`, or until the timeout.

        Raises:
            StreamGroupsError: the last error.
        """
        patient = Retrying(
            retry=retry_if_exception_type(_TryAgainError),
            stop=stop_after_delay(self._retry_timeout_s),
            wait=wait_exponential(multiplier=_FIRST_WAIT_S, max=_MAX_WAIT_S),
            reraise=True,
        )
        try:
            result: _T = patient(attempt)
            return result
        except _TryAgainError as e:
            raise e.error from None

    def once(self, step: Step, ask: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Runs one exchange with brokers. Connection errors are transient, and another broker may be responsible
        afterwards.

        Raises:
            StreamGroupsError: if the error is permanent.
        """
        try:
            return self._session.once(step.value, ask, *args)
        except StreamGroupsError as e:
            self.forget_who_is_responsible()
            if e.retriable:
                raise _TryAgainError(e) from None
            raise

    def judge(
        self, step: Step, codes: Iterable[int], what: str, *, group: str | None = None, topic: str | None = None
    ) -> None:
        """Raises if one of the responses is an error. The most severe error counts.

        Args:
            step: the type of request.
            codes: the error codes of the brokers.
            what: the object of the request; ends the text of an error.
            group: the group of the request, for the remedy.
            topic: the topic of the request, for the remedy.

        Raises:
            TransactionFailed: if the transaction must be aborted.
            FencedMember: if a newer run is active, or the group has fenced this member.
            StreamGroupsError: if another error is permanent.
        """
        found = {code: verdict(step, code) for code in codes}
        for gravest in (Verdict.FATAL, Verdict.FENCED, Verdict.ABORT, Verdict.RETRY):
            for code in sorted(c for c, v in found.items() if v is gravest):
                if code in ELSEWHERE:
                    self.forget_who_is_responsible()
                error = self._session.error(code, f"{step.value} {what}", group=group, topic=topic)
                if gravest is Verdict.RETRY:
                    raise _TryAgainError(error)
                # Errors of the group keep their type. The other errors only require a new transaction.
                if gravest is Verdict.ABORT and (error.retriable or type(error) is StreamGroupsError):
                    raise TransactionFailed(
                        error.what,
                        remedy="No output of it is visible: write the batch again. If it takes longer than "
                        "'kafka.transaction.timeout.ms', raise that timeout.",
                    )
                raise error

    def forget_who_is_responsible(self) -> None:
        """Clears the cache of coordinators and leaders."""
        self._coordinators.clear()
        self._leaders.clear()

    def init_standalone(self) -> Standalone:
        """Requests a producer id for writing without a transaction (KIP-98).

        Raises:
            StreamGroupsError: see :meth:`judge`.
        """
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, max_version=4)

        def attempt() -> Standalone:
            answer = self.once(Step.INIT_PRODUCER_ID, self.send, request)
            self.judge(Step.INIT_PRODUCER_ID, [answer.error_code], "of a writer without a transaction")
            return Standalone(ProducerIdentity(answer.producer_id, answer.producer_epoch))

        return self.again_while_it_may_pass(attempt)

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic.

        Raises:
            UnknownTopic: if the topic does not exist.
            StreamGroupsError: see :meth:`judge`.
        """

        def attempt() -> int:
            (found,) = self._look_up([topic])
            return len(found.partitions)

        return self.again_while_it_may_pass(attempt)

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        """Sends one request, to any node if ``node_id`` is ``None``."""
        return await (self._session.send(request) if node_id is None else self._session.send(request, node_id))

    async def send_all(self, requests: Any) -> dict[int, Any]:
        """Sends one request to each of several nodes, concurrently."""
        return await self._session.send_all(requests)

    def coordinator(self, of: CoordinatorOf, key: str) -> int:
        """The coordinator of a group or a transactional id.

        Raises:
            StreamGroupsError: see :meth:`judge`.
        """
        if (of, key) not in self._coordinators:
            answer = self.once(Step.FIND_COORDINATOR, self._find_coordinator, of, key)
            name = f"of group '{key}'" if of is CoordinatorOf.GROUP else f"of transactional id '{key}'"
            self.judge(Step.FIND_COORDINATOR, [answer.error_code], name, group=key)
            self._coordinators[of, key] = answer.node_id
        return self._coordinators[of, key]

    async def _find_coordinator(self, of: CoordinatorOf, key: str) -> Any:
        request = FindCoordinatorRequest(key_type=int(of), coordinator_keys=[key], min_version=4)
        (found,) = (await self._session.send(request)).coordinators
        return found

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The leaders of partitions. Partitions without a leader are omitted.

        Raises:
            StreamGroupsError: see :meth:`judge`.
        """
        if not self._leaders.keys() >= set(partitions):
            self._look_up({tp.topic for tp in partitions})
        return {tp: self._leaders[tp] for tp in partitions if tp in self._leaders}

    def _look_up(self, topics: Collection[str]) -> Any:
        """Reads the metadata of topics, and caches their leaders."""
        found = self.once(Step.PRODUCE, self._find_leaders, topics).topics
        for topic in found:
            self.judge(Step.PRODUCE, [topic.error_code], f"to topic '{topic.name}'", topic=topic.name)
            for p in topic.partitions:
                if p.leader_id >= 0:
                    self._leaders[TopicPartition(topic.name, p.partition_index)] = p.leader_id
        return found

    async def _find_leaders(self, topics: Collection[str]) -> Any:
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
        return await self._session.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
