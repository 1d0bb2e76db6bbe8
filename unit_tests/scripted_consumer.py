"""A Kafka consumer that follows a script: what a broker would do, step by step, on the thread that polls.

Tests of adapters set it in place of ``confluent_kafka.Consumer``. It has no thread and waits for nothing: the adapter is called on the test's own
thread, each poll runs the next step of the script, and a step may do anything, end the query too. So the order of things is the test's.
Results and errors are librdkafka's own types.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from streamgroups.partitions import TopicPartition

#: What a step returns is what the poll returns.
Step = Callable[[], Any]


#: For how long an adapter may poll after the last step: what was to happen by then will not.
_MAX_REST_S = 5.0


@dataclass(frozen=True)
class Row:
    """A partition of an answer, with the error that a real one cannot be given."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    error: KafkaError | None = None


@dataclass
class Message:
    """A record, or what is polled in its place."""

    at: TopicPartition | None
    at_offset: int = 0
    data: bytes = b""
    trouble: KafkaError | None = None

    def topic(self) -> str | None:
        return None if self.at is None else self.at.topic

    def partition(self) -> int | None:
        return None if self.at is None else self.at.partition

    def offset(self) -> int:
        return self.at_offset

    def error(self) -> KafkaError | None:
        return self.trouble

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
    """librdkafka's event that a partition ends here."""
    return Message(tp, offset, trouble=KafkaError(KafkaError._PARTITION_EOF))


def trouble(tp: TopicPartition | None, code: int) -> Message:
    """An error of a partition, or of the client."""
    return Message(tp, trouble=KafkaError(code))


def metadata(group_id: str, generation: int) -> bytes:
    """What librdkafka says of a member."""
    return b"CGMDv2:" + struct.pack("=i", generation) + group_id.encode() + b"\0member-1\0\1"


@dataclass
class ScriptedConsumer:
    """As much of ``confluent_kafka.Consumer`` as the adapters use.

    Args:
        script: what each poll does; when it is over polls find nothing.
        stored: the group's committed offsets and their metadata.
        bounds: what partitions hold.
        refusals: what the next commits are refused with; ``None`` accepts one.
        while_waiting: called each time the adapter asks for the group's metadata, as it does while it waits for a batch.
    """

    script: deque[Step] = field(default_factory=deque)
    stored: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    bounds: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rejections: deque[int | None] = field(default_factory=deque)
    while_waiting: Callable[[], object] = lambda: None
    generation: int | None = None
    #: What was done with it, in order.
    calls: list[tuple[str, Any]] = field(default_factory=list)
    assigned: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    fetched: deque[Message] = field(default_factory=deque)
    settings: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    #: When the script was over.
    over_s: float = 0.0
    _callbacks: dict[str, Any] = field(default_factory=dict)

    def __call__(self, settings: Mapping[str, Any]) -> ScriptedConsumer:
        """Stands for the class: the adapter makes its consumer."""
        self.settings = settings
        return self

    # ---- what a script has the group do ------------------------------------------------------------------------------

    def assign_all(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_assign"](self, _theirs(tps))

    def revoke(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_revoke"](self, _theirs(tps))

    def lose(self, *tps: TopicPartition) -> Step:
        return lambda: self._callbacks["on_lost"](self, _theirs(tps))

    def then(self, *steps: Step) -> ScriptedConsumer:
        """Adds steps to the script."""
        self.script.extend(steps)
        return self

    @property
    def commits(self) -> list[dict[TopicPartition, tuple[int, str]]]:
        """What the group has accepted, commit by commit."""
        return [rows for name, rows in self.calls if name == "commit"]

    def names(self, *names: str) -> list[str]:
        """Which of these calls were made, in order."""
        return [name for name, _ in self.calls if name in names]

    # ---- what the adapters call --------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], **callbacks: Any) -> None:
        self.calls.append(("subscribe", list(topics)))
        self._callbacks = callbacks

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

    def committed(self, asked: Iterable[Any], timeout: float) -> list[Any]:
        self.calls.append(("committed", [_ours(p) for p in asked]))
        stored = [(p, self.stored.get(_ours(p), (OFFSET_INVALID, ""))) for p in asked]
        return [Row(p.topic, p.partition, offset, text) for p, (offset, text) in stored]

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> list[Row]:
        assert not asynchronous
        rejection = self.rejections.popleft() if self.rejections else None
        rows = {_ours(p): (p.offset, p.metadata or "") for p in offsets}
        self.calls.append(("refused" if rejection else "commit", rows))
        if rejection:
            raise KafkaException(KafkaError(rejection))
        self.stored.update(rows)
        return [Row(p.topic, p.partition, p.offset) for p in offsets]

    def consumer_group_metadata(self) -> bytes | None:
        self.while_waiting()
        return None if self.generation is None else metadata("airline", self.generation)

    def assign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("assign", rows := {_ours(p): p.offset for p in partitions}))
        self.assigned = rows

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("incremental_assign", rows := {_ours(p): p.offset for p in partitions}))
        self.assigned |= rows

    def incremental_unassign(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("incremental_unassign", gone := [_ours(p) for p in partitions]))
        self.assigned = {tp: n for tp, n in self.assigned.items() if tp not in gone}

    def pause(self, partitions: Iterable[Any]) -> None:
        self.calls.append(("pause", tps := [_ours(p) for p in partitions]))
        self.paused |= set(tps)

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        self.calls.append(("bounds", _ours(partition)))
        return self.bounds[_ours(partition)]

    def close(self) -> None:
        self.calls.append(("close", None))
        self.closed = True


def _ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _theirs(tps: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in tps]
