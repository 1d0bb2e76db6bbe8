"""A Kafka consumer that follows a script: the events of a broker, step by step, on the thread that polls.

Tests of adapters replace ``confluent_kafka.Consumer`` with it. It has no thread and does not wait: the test's own
thread calls the adapter, and each poll runs the next step of the script. A step can execute any code, also stop the
query, so the test determines the order of events. Results and errors are librdkafka's own types.
"""

from __future__ import annotations

import re
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from streamgroups.partitions import TopicPartition
from unit_tests.commit_limit import is_too_large

#: The result of a step is the result of the poll.
Step = Callable[[], Any]


#: The time for polls of an adapter after the last step. An expected event that has not occurred by then does not occur.
_MAX_REST_S = 5.0
_BEGIN = re.compile(r"from=([0-9]+);(?=end;$)")


@dataclass(frozen=True)
class Row:
    """A partition of a response with an error, which a real one does not permit."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    error: KafkaError | None = None


@dataclass
class Message:
    """A record or an event that a poll returns."""

    at: TopicPartition | None
    at_offset: int = 0
    data: bytes = b""
    failure: KafkaError | None = None

    def topic(self) -> str | None:
        return None if self.at is None else self.at.topic

    def partition(self) -> int | None:
        return None if self.at is None else self.at.partition

    def offset(self) -> int:
        return self.at_offset

    def error(self) -> KafkaError | None:
        return self.failure

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self.data

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000

    def __len__(self) -> int:
        return len(self.data)


def records(tp: TopicPartition, *offsets: int) -> list[Message]:
    """Records at these offsets."""
    return [Message(tp, offset, b"%d" % offset) for offset in offsets]


def end_of(tp: TopicPartition, offset: int) -> Message:
    """librdkafka's event for the end of a partition."""
    return Message(tp, offset, failure=KafkaError(KafkaError._PARTITION_EOF))


def failed_fetch(tp: TopicPartition | None, code: int) -> Message:
    """An error of a partition, or of the client."""
    return Message(tp, failure=KafkaError(code))


def metadata(group_id: str, generation: int) -> bytes:
    """The consumer group metadata of a member in librdkafka."""
    return b"CGMDv2:" + struct.pack("=i", generation) + group_id.encode() + b"\0member-1\0\1"


@dataclass
class ScriptedConsumer:
    """The part of ``confluent_kafka.Consumer`` that the adapters use.

    Args:
        script: the step of each poll; polls after the last step return nothing.
        stored: the group's committed offsets and their metadata.
        bounds: the earliest and the end offset of each partition.
        rejections: the errors of the next commits; ``None`` accepts a commit.
        unreadable: the errors of single partitions in the next responses with committed offsets.
        while_waiting: called each time the adapter reads the consumer group metadata, as it does while it waits for a
            batch.
    """

    script: deque[Step] = field(default_factory=deque)
    stored: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    bounds: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rejections: deque[int | None] = field(default_factory=deque)
    unreadable: deque[Mapping[TopicPartition, int]] = field(default_factory=deque)
    while_waiting: Callable[[], object] = lambda: None
    generation: int | None = None
    #: The calls of its methods, in order.
    calls: list[tuple[str, Any]] = field(default_factory=list)
    #: The part of the last mark of each partition that names where its owner began to read. The calls leave it out.
    begins: dict[TopicPartition, str] = field(default_factory=dict)
    #: The leader epochs of the last commit.
    leader_epochs: dict[TopicPartition, int | None] = field(default_factory=dict)
    assigned: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    fetched: deque[Message] = field(default_factory=deque)
    settings: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    #: The time at which the script ended.
    over_s: float = 0.0
    _callbacks: dict[str, Any] = field(default_factory=dict)

    def __call__(self, settings: Mapping[str, Any]) -> ScriptedConsumer:
        """Replaces the constructor: the adapter creates its consumer by this call."""
        self.settings = settings
        return self

    # ---- events of the group -----------------------------------------------------------------------------------------

    def assign_all(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_assign"](self, _other(tps))

    def revoke(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_revoke"](self, _other(tps))

    def lose(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_lost"](self, _other(tps))

    def then(self, *steps: Step) -> ScriptedConsumer:
        """Adds steps to the script."""
        self.script.extend(steps)
        return self

    @property
    def commits(self) -> list[dict[TopicPartition, tuple[int, str]]]:
        """The accepted commits, in order."""
        return [rows for name, rows in self.calls if name == "commit"]

    def names(self, *names: str) -> list[str]:
        """The calls of these methods, in order."""
        return [name for name, _ in self.calls if name in names]

    # ---- interface of the consumer -----------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], **callbacks: Any) -> None:
        self.calls.append(("subscribe", list(topics)))
        self._callbacks = callbacks

    def unsubscribe(self) -> None:
        self.calls.append(("unsubscribe", None))
        if self.assigned:
            self.script.appendleft(self.revoke(*self.assigned))

    def assignment(self) -> list[Any]:
        return _other(self.assigned)

    def poll(self, timeout: float = 0) -> Any:
        if self.script:
            return self.script.popleft()()
        if self.fetched:
            return self.fetched.popleft()
        self.over_s = self.over_s or time.monotonic()
        assert time.monotonic() - self.over_s < _MAX_REST_S, "the script is over, and the adapter polls on"
        return None

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        return [self.fetched.popleft() for _ in range(min(num_messages, len(self.fetched)))]

    def committed(self, requested: Iterable[Any], timeout: float) -> list[Any]:
        self.calls.append(("committed", [_own(p) for p in requested]))
        errors = self.unreadable.popleft() if self.unreadable else {}
        stored = [(p, self.stored.get(_own(p), (OFFSET_INVALID, ""))) for p in requested]
        return [
            Row(p.topic, p.partition, OFFSET_INVALID, error=KafkaError(errors[_own(p)]))
            if _own(p) in errors
            else Row(p.topic, p.partition, offset, text)
            for p, (offset, text) in stored
        ]

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> list[Row]:
        assert not asynchronous
        rejection = self.rejections.popleft() if self.rejections else None
        texts = {_own(p): _BEGIN.split(p.metadata or "") for p in offsets}
        self.begins |= {tp: "".join(parts[1:2]) for tp, parts in texts.items()}
        rows = {_own(p): (p.offset, "".join(texts[_own(p)][::2])) for p in offsets}
        if is_too_large(self.settings.get("group.id", ""), [(_own(p), p.metadata or "") for p in offsets]):
            rejection = KafkaError.INVALID_COMMIT_OFFSET_SIZE
        self.calls.append(("refused" if rejection else "commit", rows))
        self.leader_epochs = {_own(p): p.leader_epoch for p in offsets}
        if rejection:
            raise KafkaException(KafkaError(rejection))
        self.stored.update(rows)
        return [Row(p.topic, p.partition, p.offset) for p in offsets]

    def consumer_group_metadata(self) -> bytes | None:
        self.while_waiting()
        return None if self.generation is None else metadata("airline", self.generation)

    def assign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("assign", rows := {_own(p): p.offset for p in partitions}))
        self.assigned = rows

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("incremental_assign", rows := {_own(p): p.offset for p in partitions}))
        self.assigned |= rows

    def incremental_unassign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("incremental_unassign", gone := [_own(p) for p in partitions]))
        self.assigned = {tp: n for tp, n in self.assigned.items() if tp not in gone}

    def pause(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("pause", tps := [_own(p) for p in partitions]))
        self.paused |= set(tps)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.calls.append(("list_topics", topic))

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        self.calls.append(("bounds", _own(partition)))
        return self.bounds[_own(partition)]

    def close(self) -> None:
        self.calls.append(("close", None))
        self.closed = True


def _own(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _other(tps: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in tps]
