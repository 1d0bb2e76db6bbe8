"""Dead letters as they are stored in a queue, and the selection of some of them.

Called by the commands ``streamgroups dlq``. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.record_headers import parse_headers
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter in a topic.

    Args:
        topic_partition: its partition of the queue.
        offset: its offset there.
        timestamp_ms: the timestamp of its record, milliseconds since the epoch; ``None`` if unknown.
        letter: the letter.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int | None
    letter: DeadLetter

    @property
    def place(self) -> str:
        """Its partition and its offset."""
        return f"{self.topic_partition}@{self.offset}"

    @property
    def place_fields(self) -> dict[str, str | int]:
        """Its partition and its offset, as fields of a document."""
        return {"dlq_partition": self.topic_partition.partition, "dlq_offset": self.offset}


@dataclass(frozen=True, slots=True)
class TableLetter:
    """A dead letter in a table.

    Args:
        table: the table, with its schema.
        letter: the letter.
    """

    table: str
    letter: DeadLetter

    @property
    def place(self) -> str:
        """The table."""
        return f"table {self.table}"

    @property
    def place_fields(self) -> dict[str, str | int]:
        """The table, as a field of a document."""
        return {"dlq_table": self.table}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record of the queue that is no dead letter of this library.

    Args:
        topic_partition: its partition of the queue.
        offset: its offset there.
        problem: the malformed header; ``None`` if the record has none of the headers.
    """

    topic_partition: TopicPartition
    offset: int
    problem: str | None = None

    @property
    def place(self) -> str:
        """Its partition and its offset."""
        return f"{self.topic_partition}@{self.offset}"


def stored(record: Message) -> StoredLetter | Foreign:
    """Returns the letter of a record.

    >>> stored(Message("dlq", 0, 7, 1_000, None, b"{"))
    Foreign(topic_partition=TopicPartition(topic='dlq', partition=0), offset=7, problem=None)
    """
    try:
        letter = parse_headers(record.headers, key=record.key, value=record.value, timestamp_ms=record.timestamp_ms)
        if letter is not None:
            check_facts(letter)
    except (ValueError, RecursionError) as e:
        return Foreign(record.topic_partition, record.offset, str(e))
    if letter is None:
        return Foreign(record.topic_partition, record.offset)
    return StoredLetter(record.topic_partition, record.offset, record.timestamp_ms, letter)


def check_facts(letter: DeadLetter) -> None:
    """Checks the details of a letter. Any client can write to a queue.

    Raises:
        ValueError: if the details are of another type.
    """
    if not isinstance(letter.details, dict) or not all(isinstance(it, str) for it in letter.details.values()):
        raise ValueError("The details are no map of texts.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters a command uses. A letter must match all conditions; an empty condition matches each letter.

    Args:
        ids: ids of letters.
        errors: classes of errors.
        steps: names of steps.
        queries: names of queries.
        groups: consumer groups.
        sources: topics of the source record, with some partitions or ``None`` for all.
        since_ms: the earliest time of the failure, milliseconds since the epoch.
        until_ms: the first time that is too late.
    """

    ids: Collection[str] = ()
    errors: Collection[str] = ()
    steps: Collection[str] = ()
    queries: Collection[str] = ()
    groups: Collection[str] = ()
    sources: Mapping[str, frozenset[int] | None] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Returns whether the selection contains a letter.

        >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
        ...                     error_class="ValueError", error="no JSON")
        >>> Selection(errors=["ValueError"]).matches(letter), Selection(until_ms=9).matches(letter)
        (True, False)
        """
        pairs = (
            (self.ids, letter.id),
            (self.errors, letter.error_class),
            (self.steps, letter.step),
            (self.queries, letter.query),
            (self.groups, letter.group_id),
        )
        return (
            all(not required or value in required for required, value in pairs)
            and (self.since_ms is None or letter.failed_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.failed_at_ms < self.until_ms)
            and self._has_source(letter)
        )

    def _has_source(self, letter: DeadLetter) -> bool:
        if self.sources is None:
            return True
        if letter.origin is None:
            return False
        tp = letter.origin.topic_partition
        return tp.topic in self.sources and tp.partition in (self.sources[tp.topic] or {tp.partition})
