"""Admin clients of both libraries whose responses follow a script: with errors of single partitions, topics and groups.

:func:`scripted_session` returns a real ``AdminSession`` without connections. :class:`ScriptedAdmin` replaces
``confluent_kafka.admin.AdminClient``. Responses and errors have the fields and types of the libraries.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.logs import client_log
from unit_tests.commit_limit import is_too_large

CONFIG = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})


@dataclass
class Answers:
    """The responses to kafka-python's requests.

    Args:
        leaders: the leader of each partition; -1 for none.
        topics: the errors of topics.
        listed: the responses for each partition in ListOffsets, in order; the last one is repeated. An error code is a
            negative number.
        committed: the error code and the offset of each partition in OffsetFetch, in order; the last one is repeated.
    """

    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    listed: dict[TopicPartition, deque[int]] = field(default_factory=dict)
    committed: dict[TopicPartition, deque[tuple[int, int]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    #: The leader epoch of each partition in the metadata.
    leader_epoch: int = 3
    #: The error code, the leader epoch and the end of each partition in OffsetForLeaderEpoch, as :attr:`committed`.
    epochs: dict[TopicPartition, deque[tuple[int, int, int]]] = field(default_factory=dict)
    #: The requests for the ends of leader epochs: partition, current leader epoch, leader epoch.
    compared: list[tuple[int, int, int]] = field(default_factory=list)
    #: The error codes of OffsetCommit, in order; the last one is repeated.
    commits: deque[int] = field(default_factory=deque)
    #: The offsets that OffsetCommit has stored for each group.
    stored: defaultdict[str, dict[TopicPartition, Committed]] = field(default_factory=lambda: defaultdict(dict))

    def answer(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.names.append(name)
        return getattr(self, f"_{name}")(request)

    def _Metadata(self, request: Any) -> Any:
        partitions: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, leader in self.leaders.items():
            partitions[tp.topic].append(
                SimpleNamespace(
                    partition_index=tp.partition,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    error_code=0,
                    replica_nodes=[1],
                    isr_nodes=[1],
                )
            )
        required = (
            partitions.keys() | self.topics.keys() if request.topics is None else {t.name for t in request.topics}
        )
        topics = [
            SimpleNamespace(
                name=name,
                topic_id=None,
                is_internal=False,
                error_code=self.topics.get(name, 0 if name in partitions else 3),
                partitions=partitions[name] if name in partitions and name not in self.topics else [],
            )
            for name in sorted(required)
        ]
        return SimpleNamespace(cluster_id="c", topics=topics)

    def _ListOffsets(self, request: Any) -> Any:
        return SimpleNamespace(
            topics=[
                SimpleNamespace(name=t.name, partitions=[self._listed(t.name, p.partition_index) for p in t.partitions])
                for t in request.topics
            ]
        )

    def _listed(self, topic: str, partition: int) -> Any:
        found = _next(self.listed[TopicPartition(topic, partition)])
        code, offset = (-found, -1) if found < 0 else (0, found)
        return SimpleNamespace(partition_index=partition, error_code=code, offset=offset, timestamp=1_000)

    def _OffsetForLeaderEpoch(self, request: Any) -> Any:
        topics = []
        for t in request.topics:
            found = []
            for p in t.partitions:
                self.compared.append((p.partition, p.current_leader_epoch, p.leader_epoch))
                code, epoch, end = _next(self.epochs[TopicPartition(t.topic, p.partition)])
                found.append(
                    SimpleNamespace(partition=p.partition, error_code=code, leader_epoch=epoch, end_offset=end)
                )
            topics.append(SimpleNamespace(topic=t.topic, partitions=found))
        return SimpleNamespace(topics=topics)

    def _FindCoordinator(self, request: Any) -> Any:
        return SimpleNamespace(
            coordinators=[SimpleNamespace(key=key, error_code=0, node_id=1) for key in request.coordinator_keys]
        )

    def _OffsetFetch(self, request: Any) -> Any:
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, answers in self.committed.items():
            code, offset = _next(answers)
            by_topic[tp.topic].append(
                SimpleNamespace(
                    partition_index=tp.partition, error_code=code, committed_offset=offset, metadata=f"at {offset}"
                )
            )
        topics = [SimpleNamespace(name=name, partitions=found) for name, found in by_topic.items()]
        groups = [SimpleNamespace(group_id=g.group_id, error_code=0, topics=topics) for g in request.groups]
        return SimpleNamespace(groups=groups)

    def _OffsetCommit(self, request: Any) -> Any:
        rows = {TopicPartition(t.name, p.partition_index): p for t in request.topics for p in t.partitions}
        code = _next(self.commits) if self.commits else 0
        if is_too_large(request.group_id, ((tp, p.committed_metadata) for tp, p in rows.items())):
            code = int(Code.UNKNOWN_SERVER_ERROR)
        if not code:
            stored = self.stored[request.group_id]
            stored |= {tp: Committed(p.committed_offset, p.committed_metadata) for tp, p in rows.items()}
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=t.name,
                    partitions=[
                        SimpleNamespace(partition_index=p.partition_index, error_code=code) for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )


def _next(answers: deque[Any]) -> Any:
    return answers.popleft() if len(answers) > 1 else answers[0]


async def _refreshed() -> None:
    """The metadata stays the same."""


class _Manager:
    """Replaces the connections of kafka-python."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        brokers = [SimpleNamespace(node_id=1)]
        self.cluster = SimpleNamespace(
            brokers=lambda: brokers, broker_metadata=lambda node_id: node_id, refresh_metadata=_refreshed
        )

    def run(self, request: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> Any:
        return asyncio.run(request(*args))

    def throttled_s(self, node_id: int | None) -> float:
        return 0.0

    async def send(self, request: Any, node_id: int | None = None, request_timeout_ms: int | None = None) -> Any:
        return self._answers.answer(request)


def scripted_session(answers: Answers, *, timeout_s: float = 5.0) -> AdminSession:
    """A session with these responses."""
    session = AdminSession.__new__(AdminSession)
    session.__dict__.update(
        _config=CONFIG,
        _timeout_s=timeout_s,
        _log=client_log("127.0.0.1:1"),
        _manager=_Manager(answers),
        requests=Counter[str](),
    )
    return session


def metadata(topics: Mapping[str, int], errors: Mapping[str, int] | None = None) -> Any:
    """A response of ``list_topics``: the number of partitions of topics, and the errors of topics."""
    rejected = errors or {}
    found = {
        name: SimpleNamespace(
            error=KafkaError(rejected[name]) if name in rejected else None,
            partitions={} if name in rejected else dict.fromkeys(range(topics[name])),
        )
        for name in {**topics, **rejected}
    }
    return SimpleNamespace(topics=found, brokers={}, cluster_id="c")


class ScriptedAdmin:
    """The part of ``confluent_kafka.admin.AdminClient`` that returns errors of parts.

    Args:
        metadata: the responses of ``list_topics``, in order; the last one is repeated.
        listed: an offset or an error for each partition, for each call of ``list_offsets``. The last one is repeated.
        groups: the errors and the names of groups of ``list_consumer_groups``, in order; the last one is repeated.
        described: the groups of ``list_groups``, in order; the last one is repeated.
        denied: topics that the user may not describe. They are not in ``metadata``.
    """

    def __init__(
        self,
        *,
        metadata: Iterable[Any] = (),
        listed: Iterable[Mapping[TopicPartition, int | KafkaError]] = (),
        groups: Iterable[tuple[list[int], list[str]]] = (),
        described: Iterable[list[Any]] = (),
        denied: Iterable[str] = (),
    ) -> None:
        self._metadata, self._listed, self._groups = deque(metadata), deque(listed), deque(groups)
        self._described, self._denied = deque(described), frozenset(denied)
        self.calls: list[str] = []

    def __call__(self, _: Mapping[str, Any]) -> ScriptedAdmin:
        """Replaces the constructor."""
        return self

    def list_topics(self, timeout: float) -> Any:
        self.calls.append("list_topics")
        return _next(self._metadata)

    def list_offsets(self, requested: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.calls.append("list_offsets")
        answers, found = _next(self._listed), {}
        for tp in requested:
            found[tp] = future = Future[Any]()
            answer = answers[TopicPartition(tp.topic, tp.partition)]
            if isinstance(answer, KafkaError):
                future.set_exception(KafkaException(answer))
            else:
                future.set_result(SimpleNamespace(offset=answer))
        return found

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        self.calls.append("describe_topics")
        found = {}
        for name in topics.topic_names:
            found[name] = future = Future[Any]()
            if name in self._denied:
                future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
            elif name in self._metadata[0].topics:
                future.set_result(SimpleNamespace(topic_id="id"))
            else:
                future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return found

    def describe_cluster(self, **_: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(SimpleNamespace(cluster_id="c"))
        return future

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        self.calls.append("list_consumer_groups")
        codes, names = _next(self._groups)
        future = Future[Any]()
        errors = [KafkaException(KafkaError(code)) for code in codes]
        future.set_result(SimpleNamespace(errors=errors, valid=[SimpleNamespace(group_id=name) for name in names]))
        return future

    def list_groups(self, group_id: str, timeout: float) -> list[Any]:
        self.calls.append("list_groups")
        answer: list[Any] = _next(self._described)
        return answer
