"""Which dead letters are sent again, and as which records.

Called by ``streamgroups dlq``. A redrive is once only: the ids of redriven letters are records of a compacted topic, and are
written in the transaction that sends the letters. Source: SEMANTICS P5; KIP-98.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.record_headers import PREFIX, without_facts
from streamgroups.dlq.stored_letters import StoredLetter, TableLetter
from streamgroups.partitions import TopicPartition

#: A record that has failed this number of times is parked.
MAX_ATTEMPTS = 5
_TRANSACTION_RECORDS = 500
#: The maximum length of the name of a topic. Source: Kafka's ``Topic.MAX_NAME_LENGTH``.
_TOPIC_CHARACTERS = 249
_REDRIVEN = ".redriven"
_TRANSACTION_BYTES = 4 << 20


class State(Enum):
    """The state of a letter."""

    #: It was not redriven.
    WAITING = "waiting"
    #: It was redriven. If its record has failed again, there is another letter.
    REDRIVEN = "redriven"
    #: Its record has failed so often that a redrive leaves it out.
    PARKED = "parked"
    #: It does not contain its record: the row had no key or value, comes from several records, or a part was too large.
    NO_RECORD = "no-record"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The key and the value of a line of a file, for the record of a letter.

    Args:
        key: the key.
        value: the value.
        given: which of ``key`` and ``value`` the line contains. The other is that of the letter.
    """

    key: bytes | None
    value: bytes | None
    given: frozenset[str] = frozenset(("key", "value"))

    def changes(self, letter: DeadLetter) -> bool:
        """Returns whether the record differs from the letter, or has a part that the letter does not contain."""
        return (self.key, self.value) != (letter.key, letter.value) or bool(self.given & letter.missing_parts)

    def completes(self, letter: DeadLetter) -> bool:
        """Returns whether the line contains the missing key and value of a letter. A file cannot contain headers."""
        return self.changes(letter) and letter.missing_parts - {"headers"} <= self.given


@dataclass(frozen=True, slots=True)
class RedrivenRecord:
    """The record of a redriven letter.

    Args:
        letter_id: the letter.
        topic: the topic.
        timestamp_ms: the timestamp of the source record, milliseconds since the epoch, more than 0; ``None`` for the time now.
        key: the key.
        value: the value.
        headers: the original headers, the number of failures, and the id of the letter.
    """

    letter_id: str
    topic: str
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def size_bytes(self) -> int:
        """The size of its key, its value and its headers."""
        fields = [self.key, self.value, *(it for name, value in self.headers for it in (name.encode(), value))]
        return sum(len(it) for it in fields if it is not None)


class Redrive(Protocol):
    """A running redrive of a queue. No other redrive of the same queue can send letters meanwhile."""

    def send(self, records: Sequence[RedrivenRecord]) -> None:
        """Sends records and stores the ids of their letters, in one transaction.

        Raises:
            FencedMember: if another redrive of the same queue has started. Nothing is sent.
            StreamGroupsError: if nothing is sent, or if the result is unknown. A further redrive sends the rest.
        """


def redriven_topic(dlq: str) -> str:
    """Returns the topic with the ids of redriven letters. A name that Kafka would reject as too long has a hash instead of its end.

    >>> redriven_topic("flights.dlq")
    'flights.dlq.redriven'
    >>> len(redriven_topic("x" * 241))
    249
    """
    most = _TOPIC_CHARACTERS - len(_REDRIVEN)
    if len(dlq) <= most:
        return dlq + _REDRIVEN
    digest = hashlib.sha256(dlq.encode()).hexdigest()[:16]
    return f"{dlq[: most - 17]}.{digest}{_REDRIVEN}"


def state_of(letter: DeadLetter, redriven: Collection[str], max_attempts: int = MAX_ATTEMPTS) -> State:
    """Returns the state of a letter.

    Args:
        letter: the letter.
        redriven: the ids of redriven letters.
        max_attempts: a record that has failed this number of times is parked.
    """
    if letter.id in redriven:
        return State.REDRIVEN
    if letter.missing_parts:
        return State.NO_RECORD
    return State.PARKED if letter.attempt >= max_attempts else State.WAITING


def is_writable(letter: DeadLetter) -> bool:
    """Returns whether librdkafka writes the record of a letter unchanged. It writes the current time for timestamp 0, writes no
    earlier time, and ends the name of a header at NUL.

    Args:
        letter: the letter.
    """
    timestamp_ms = None if letter.origin is None else letter.origin.timestamp_ms
    return (timestamp_ms is None or timestamp_ms > 0) and not any("\0" in name for name, _ in letter.headers)


@dataclass(frozen=True, slots=True)
class Planned:
    """A letter of a redrive.

    Args:
        stored: the letter.
        state: its state.
        topic: the topic to which it is sent. ``None`` if it is not sent.
        repaired: its new key and value.
        is_undecided: whether it is not sent only because the topics of its group are unknown.
    """

    stored: StoredLetter | TableLetter
    state: State
    topic: str | None = None
    repaired: Repaired | None = None
    is_undecided: bool = False

    @property
    def is_unwritable(self) -> bool:
        """Whether only its timestamp or the name of a header is the reason why it is not sent."""
        is_due = self.state in (State.WAITING, State.PARKED)
        return is_due and self.topic is None and not is_writable(self.stored.letter)

    @property
    def record(self) -> RedrivenRecord:
        """The record that is sent.

        Raises:
            ValueError: if nothing is sent.
        """
        if self.topic is None:
            raise ValueError(f"The letter {self.stored.letter.id} is not sent.")
        letter, repaired = self.stored.letter, self.repaired
        return RedrivenRecord(
            letter.id,
            self.topic,
            None if letter.origin is None else letter.origin.timestamp_ms,
            letter.key if repaired is None else repaired.key,
            letter.value if repaired is None else repaired.value,
            (
                *without_facts(letter.headers),
                (PREFIX + "attempt", str(letter.attempt).encode()),
                (PREFIX + "redriven_from", letter.id.encode()),
            ),
        )


@dataclass(frozen=True, slots=True)
class Targets:
    """The topics to which the records of letters can return.

    Each client with Write on the queue can write a letter, with any topic, key and value. Its topic must therefore be one that
    the group of the letter reads, or one that the user has named.

    Args:
        queue: the name of the queue: a topic, or the name of a table.
        named: the topics that the user has named.
        read: the topics that each group has read.
        denied: the groups that the user may not describe. Their topics are unknown (SEMANTICS G17).
    """

    queue: str
    named: Collection[str] = ()
    read: Mapping[str, Collection[str]] = field(default_factory=dict)
    denied: Collection[str] = ()

    def has(self, letter: DeadLetter, topic: str) -> bool:
        """Returns whether the record of a letter can be sent to a topic.

        >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
        ...                     error_class="ValueError", error="no JSON")
        >>> targets = Targets("dlq", read={"b": ["t", "dlq.redriven"]})
        >>> [it for it in ("t", "payments", "dlq.redriven") if targets.has(letter, it)]
        ['t']
        """
        known = topic in self.named or topic in self.read.get(letter.group_id, ())
        return known and not is_reserved(topic, self.queue)

    def is_unknown(self, letter: DeadLetter, topic: str) -> bool:
        """Returns whether only the topics of its group decide if the record of a letter can be sent to a topic, and they are unknown.

        >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
        ...                     error_class="ValueError", error="no JSON")
        >>> [Targets("dlq", named, denied=["b"]).is_unknown(letter, "t") for named in ([], ["t"])]
        [True, False]
        """
        return letter.group_id in self.denied and topic not in self.named and not is_reserved(topic, self.queue)


def is_reserved(topic: str, queue: str) -> bool:
    """Returns whether a topic is of the queue itself, or internal to Kafka.

    >>> is_reserved("flights", "dlq"), is_reserved("dlq.redriven", "dlq"), is_reserved("__consumer_offsets", "dlq")
    (False, True, True)
    """
    return topic in (queue, redriven_topic(queue)) or topic.startswith("__")


def plan_redrive(
    letters: Iterable[StoredLetter | TableLetter],
    redriven: Collection[str],
    *,
    to: str | None = None,
    targets: Targets | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    include_parked: bool = False,
    repaired: Mapping[str, Repaired] | None = None,
) -> list[Planned]:
    """Returns the letters of a redrive, in the order of the queue. A letter that is stored twice is sent once. One that cannot be
    written unchanged is not sent.

    Args:
        letters: the selected letters.
        redriven: the ids of redriven letters.
        to: the topic of all records. ``None``: each record returns to its topic.
        targets: the topics to which records can return. ``None`` for any. Other letters are waiting, and are not sent.
        max_attempts: a record that has failed this number of times is parked.
        include_parked: whether parked records are sent too.
        repaired: new keys and values by the id of a letter. ``None``: all records are unchanged.
    """
    plan: dict[str, Planned] = {}
    for stored in letters:
        letter = stored.letter
        if letter.id in plan:
            continue
        change = None if repaired is None else repaired.get(letter.id)
        state = state_of(letter, redriven, max_attempts)
        if state is State.NO_RECORD and change is not None and change.completes(letter):
            state = State.WAITING
        target = to if to is not None else letter.origin.topic_partition.topic if letter.origin is not None else None
        is_sent = state is State.WAITING or (state is State.PARKED and include_parked)
        if is_sent and target is None:
            state = State.NO_RECORD
        is_sent = is_sent and target is not None and is_writable(letter)
        is_undecided = False
        if is_sent and target is not None and targets is not None and to is None:
            is_undecided = targets.is_unknown(letter, target)
            is_sent = targets.has(letter, target)
        plan[letter.id] = Planned(stored, state, target if is_sent else None, change, is_undecided)
    return list(plan.values())


def transactions(
    plan: Iterable[Planned], redriven: Collection[str], *, most: int = _TRANSACTION_RECORDS
) -> Iterator[list[RedrivenRecord]]:
    """Divides a plan into transactions.

    Args:
        plan: the plan.
        redriven: the ids of redriven letters, read after the redrive has started. These are left out.
        most: the maximum number of records in one transaction.
    """
    records: list[RedrivenRecord] = []
    size_bytes = 0
    for planned in plan:
        if planned.topic is None or planned.stored.letter.id in redriven:
            continue
        record = planned.record
        if records and (len(records) == most or size_bytes + record.size_bytes > _TRANSACTION_BYTES):
            yield records
            records, size_bytes = [], 0
        records.append(record)
        size_bytes += record.size_bytes
    if records:
        yield records


@dataclass(frozen=True, slots=True)
class Purge:
    """The letters that are deleted from a partition: all before an offset.

    Args:
        topic_partition: the partition.
        next_offset: the first offset that remains.
        deleted: the number of deleted letters by their states.
        kept: the number of letters that could be deleted, but are behind one that must remain.
    """

    topic_partition: TopicPartition
    next_offset: int
    deleted: Mapping[State, int]
    kept: int


def plan_purge(
    letters: Iterable[tuple[StoredLetter, State]],
    ends: Mapping[TopicPartition, int],
    foreign: Mapping[TopicPartition, int],
    *,
    before_ms: int | None = None,
    include_waiting: bool = False,
) -> list[Purge]:
    """Returns how much of each partition can be deleted. Kafka deletes from the beginning of a partition only.

    Args:
        letters: all letters of the queue with their states, in the order of offsets in each partition.
        ends: the end offset of each partition.
        foreign: the offset of the first record of a partition that is no letter. It remains.
        before_ms: only letters that failed before this time are deleted. ``None``: all.
        include_waiting: whether letters that were not redriven are deleted too.
    """
    first_kept = dict(foreign)
    deletable: defaultdict[TopicPartition, list[tuple[int, State]]] = defaultdict(list)
    for stored, state in letters:
        old = before_ms is None or stored.letter.failed_at_ms < before_ms
        if old and (include_waiting or state is State.REDRIVEN):
            deletable[stored.topic_partition].append((stored.offset, state))
        else:
            tp = stored.topic_partition
            first_kept[tp] = min(stored.offset, first_kept.get(tp, stored.offset))
    purges = []
    for tp, end in sorted(ends.items()):
        next_offset = first_kept.get(tp, end)
        states = [state for offset, state in deletable[tp] if offset < next_offset]
        counts = {state: states.count(state) for state in State if state in states}
        purges.append(Purge(tp, next_offset, counts, len(deletable[tp]) - len(states)))
    return purges
