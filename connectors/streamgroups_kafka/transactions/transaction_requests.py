"""Requests of a transaction: finds the responsible broker, evaluates the responses, and retries.

:class:`TransactionSession` is the base of ``coordinator.Transactions`` (the driver) and ``writer.TransactionWriter``
(the tasks). ``transaction_errors`` defines the meaning of responses. The requests have the versions of KIP-98, in which separate
requests add partitions and offsets to a transaction. All brokers since 3.0 support them. Brokers since 4.0 verify the
partitions (KIP-890, part 1). Part 2 adds partitions implicitly and increases the epoch with each transaction. It is not
needed, because each transaction here begins with its own epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

from streamgroups.errors import StreamGroupsError, TransactionFailed
from streamgroups.partitions import TopicPartition
from streamgroups.retry import retrying
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.missing_acls import WRITE
from streamgroups_kafka.client.private_kafka_python import FindCoordinatorRequest, MetadataRequest
from streamgroups_kafka.transactions.transaction_errors import ELSEWHERE, Step, Verdict, verdict
from streamgroups_kafka.write.encoder import ProducerIdentity

#: Most waits are for the completion of the previous transaction, which takes milliseconds.
_FIRST_WAIT_S, _MAX_WAIT_S = 0.01, 0.2
#: How long a request waits while a quota throttles this user. The broker aborts a transaction before, after its own timeout.
THROTTLE_TIMEOUT_S = 900.0

#: A broker that hangs keeps its connections. Other brokers replace it after ``broker.session.timeout.ms``, 9 seconds by default. So
#: a request to it ends in time for another attempt, and any broker responds to a lookup at once. Larger requests have more time.
REQUEST_TIMEOUT_S, _LOOKUP_TIMEOUT_S = 10.0, 5.0

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


class CoordinatorOf(IntEnum):
    """The types of coordinators, with the key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of one group or transactional id. Its text ends the text of an error.

    >>> str(Coordinator(CoordinatorOf.GROUP, "airline"))
    "of group 'airline'"
    """

    of: CoordinatorOf
    key: str

    def __str__(self) -> str:
        return f"of {'group' if self.of is CoordinatorOf.GROUP else 'transactional id'} '{self.key}'"


class _TryAgainError(Exception):
    """A transient error, with the error to raise if it persists."""

    def __init__(self, error: StreamGroupsError) -> None:
        super().__init__(str(error))
        self.error = error


def _error_code(answer: Any) -> list[int]:
    return [answer.error_code]


class TransactionSession:
    """Connections and requests of a transaction. Used by one thread.

    Args:
        config: the configuration of the client.
        transactional_id: the transactional id of the requests, for errors; ``None`` without a transaction.
        retry_timeout_s: how long a request is retried, in seconds.
        throttle_timeout_s: how long a request waits while a quota throttles this user, in seconds.

    Raises:
        StreamGroupsError: see :class:`~streamgroups_kafka.admin.connection.AdminSession`.
    """

    def __init__(
        self,
        config: ClientConfig,
        transactional_id: str | None = None,
        *,
        retry_timeout_s: float = 30.0,
        throttle_timeout_s: float = THROTTLE_TIMEOUT_S,
    ) -> None:
        self._used_id = transactional_id
        self._retry_timeout_s = retry_timeout_s
        self._session = AdminSession(
            config,
            timeout_s=retry_timeout_s,
            request_timeout_s=min(REQUEST_TIMEOUT_S, retry_timeout_s),
            throttle_timeout_s=throttle_timeout_s,
        )
        self._retrying = retrying(retry_timeout_s, every_s=_FIRST_WAIT_S, slowest_s=_MAX_WAIT_S, on=_TryAgainError)
        self._coordinators: dict[Coordinator, int] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Closes all connections. An open transaction stays open until the next one begins, or until its timeout."""
        self._session.close()

    def _call(
        self,
        step: Step,
        request: Any,
        to: Coordinator | None,
        codes: Callable[[Any], Iterable[int]] = _error_code,
        *,
        what: str = "",
        group: str | None = None,
        topic: str | None = None,
    ) -> Any:
        """Sends a request until its response contains no transient error, or until the timeout.

        Args:
            step: the type of request.
            request: the request.
            to: its coordinator; ``None`` for any broker.
            codes: returns the error codes of a response.
            what: the object of the request, which ends the text of an error; the default is the coordinator.
            group: the group of the request, for the remedy.
            topic: the topic of the request, for the remedy.

        Raises:
            TransactionFailed: if the transaction must be aborted.
            FencedMember: if a newer run is active, or the group has fenced this member.
            StreamGroupsError: the last error.
        """

        def attempt() -> Any:
            node = None if to is None else self._node_of(to)
            # The connection sets the version for its broker. The next attempt may have another broker.
            answer = self._once(step, self._session.send, copy(request), node)
            self._judge(step, codes(answer), what or str(to), group=group, topic=topic)
            return answer

        return self._again_while_it_may_pass(attempt)

    def _again_while_it_may_pass(self, attempt: Callable[[], _T]) -> _T:
        """Calls ``attempt`` until it raises no transient error of :meth:`_judge`, or until the timeout.

        Raises:
            StreamGroupsError: the last error.
        """
        try:
            result: _T = self._retrying(attempt)
            return result
        except _TryAgainError as e:
            raise e.error from None

    @property
    def _n_attempts(self) -> int:
        """How often the last request was attempted."""
        n: int = self._retrying.statistics["attempt_number"]
        return n

    def _once(self, step: Step, request: Callable[..., Coroutine[Any, Any, _T]], *args: object) -> _T:
        """Runs one exchange with brokers. Connection errors are transient, and another broker may be responsible
        afterwards.

        Raises:
            StreamGroupsError: if the error is permanent.
        """
        try:
            return self._session.once(step.value, request, *args)
        except StreamGroupsError as e:
            self._raise(e)

    def _raise(self, error: StreamGroupsError) -> NoReturn:
        """Raises the error of an exchange with brokers."""
        self._forget_who_is_responsible()
        raise (_TryAgainError(error) if error.retriable else error) from None

    def _looked_up(self, step: Step, request: Any) -> Any:
        return self._once(step, self._session.send, request, None, min(_LOOKUP_TIMEOUT_S, self._retry_timeout_s))

    def _judge(
        self, step: Step, codes: Iterable[int], what: str, *, group: str | None = None, topic: str | None = None
    ) -> None:
        """Raises if one of the responses is an error. The most severe error counts."""
        found = {code: verdict(step, code) for code in codes}
        for gravest in (Verdict.FATAL, Verdict.FENCED, Verdict.ABORT, Verdict.RETRY):
            for code in sorted(c for c, v in found.items() if v is gravest):
                if code in ELSEWHERE:
                    self._forget_who_is_responsible()
                error = self._session.error(
                    code,
                    f"{step.value} {what}",
                    group=group,
                    topic=topic,
                    transactional_id=self._used_id,
                    operations=WRITE if step in (Step.PRODUCE, Step.ADD_PARTITIONS) else {},
                )
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

    def _forget_who_is_responsible(self) -> None:
        self._coordinators.clear()
        self._leaders.clear()

    def _node_of(self, coordinator: Coordinator) -> int:
        if coordinator not in self._coordinators:
            request = FindCoordinatorRequest(
                key_type=int(coordinator.of), coordinator_keys=[coordinator.key], min_version=4
            )
            (found,) = self._looked_up(Step.FIND_COORDINATOR, request).coordinators
            self._judge(Step.FIND_COORDINATOR, [found.error_code], str(coordinator), group=coordinator.key)
            self._coordinators[coordinator] = found.node_id
        return self._coordinators[coordinator]

    def _leaders_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The leaders of partitions. Partitions without a leader are omitted."""
        if not self._leaders.keys() >= set(partitions):
            self._look_up({tp.topic for tp in partitions})
        return {tp: self._leaders[tp] for tp in partitions if tp in self._leaders}

    def _look_up(self, topics: Collection[str]) -> Any:
        """Reads the metadata of topics, and caches their leaders."""
        names = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        found = self._looked_up(Step.PRODUCE, request).topics
        for topic in found:
            self._judge(Step.PRODUCE, [topic.error_code], f"to topic '{topic.name}'", topic=topic.name)
            for p in topic.partitions:
                if p.leader_id >= 0:
                    self._leaders[TopicPartition(topic.name, p.partition_index)] = p.leader_id
        return found
