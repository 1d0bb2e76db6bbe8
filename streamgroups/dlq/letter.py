"""The format of dead letters: one for all steps and all sinks.

A step adds the nullable column ``dead_letter`` to its rows, with the fields of ``FAILURE``. The writer of dead letters
completes it to a :class:`DeadLetter`, and writes it as a record or as a row. Source: SEMANTICS P4, W7, X8, X9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamgroups.partitions import TopicPartition

#: How many characters of a topic id are part of the id of a letter.
_TOPIC_ID_CHARACTERS = 8
#: The name of the column.
COLUMN = "dead_letter"
#: The name of the detail with the columns of the source record, ``key`` or ``value``, that the row did not have.
MISSING = "missing"
#: The type of times in SQL. The meaning of ``TIMESTAMP`` depends on ``spark.sql.timestampType``.
TIMESTAMP = "TIMESTAMP_LTZ"

#: The fields that a step sets, with their types in SQL. ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``,
#: ``value`` and ``headers`` are those of the source record. They are null if the columns are no longer in the
#: DataFrame, or if the row comes from several records (after an aggregation).
FAILURE: Mapping[str, str] = {
    "step": "STRING",
    "error_class": "STRING",
    "error": "STRING",
    "details": "MAP<STRING, STRING>",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": TIMESTAMP,
    "key": "BINARY",
    "value": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}

#: The fields of a complete letter: the columns of a table of dead letters, in order.
LETTER: Mapping[str, str] = {
    "id": "STRING",
    "group_id": "STRING",
    "query": "STRING",
    "failed_at": TIMESTAMP,
    "attempt": "INT",
    **FAILURE,
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The source record of a letter.

    Args:
        topic_partition: its partition.
        offset: its offset.
        timestamp_ms: its timestamp, milliseconds since the epoch; ``None`` if unknown.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that a step could not process.

    Args:
        id: identifies the letter. A replayed batch produces the same one: see :func:`letter_id`.
        group_id: the consumer group that read the record.
        query: the name of the query, or its id.
        failed_at_ms: the time of the batch, milliseconds since the epoch. A replay has the same time.
        attempt: how often the record has failed, redrives included; 1 the first time.
        step: the step that failed: ``decode``, ``event time``, ``sink``, or a name that the user chose.
        error_class: the class of the error, such as ``ValueError``.
        error: its message, without secrets.
        details: more facts, such as the watermark and the missed window of a late record.
        origin: the source record; ``None`` if the row comes from several records.
        key: the original key.
        value: the original value.
        headers: the original headers.
    """

    id: str
    group_id: str
    query: str
    failed_at_ms: int
    attempt: int
    step: str
    error_class: str
    error: str
    details: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def missing_parts(self) -> frozenset[str]:
        """The parts of its record that it does not contain: of ``key``, ``value`` and ``headers``.

        A null value of a known record is a tombstone.
        """
        missing = {name for name in ("key", "value", "headers") if f"{name}_bytes" in self.details}
        missing |= {"key", "value"} & set(self.details.get(MISSING, "").split(", "))
        if self.origin is None:
            missing.add("value")
        present = {name for name, it in (("key", self.key), ("value", self.value)) if it is not None}
        return frozenset(missing - present)


def missing_columns(names: Collection[str]) -> dict[str, str]:
    """Returns the detail of a letter whose row does not have the key or the value of its source record.

    Args:
        names: the columns of the source record that the row has.

    >>> missing_columns(["value", "offset"]), missing_columns(["key", "value"])
    ({'missing': 'key'}, {})
    """
    missing = [name for name in ("key", "value") if name not in names]
    return {MISSING: ", ".join(missing)} if missing else {}


def letter_id(
    group_id: str, step: str, origin: Origin | None, content: bytes = b"", *, topic_id: str | None = None
) -> str:
    """Returns the id of a letter. A replayed batch produces the same letters with the same ids.

    A ``/`` in the name of a group or step is ``%2F`` in the id, and ``%`` is ``%25``. So two letters have two ids.

    Args:
        group_id: the consumer group.
        step: the step that failed.
        origin: the source record, if known.
        content: identifies a letter without origin: its batch, with time and ranges, and its serialized row.
        topic_id: the id of the topic of the record. With it a recreated topic, whose offsets begin at 0 again, has other ids.
            ``None`` if the brokers do not return it.

    >>> letter_id("board", "decode", Origin(TopicPartition("flights", 3), 42), topic_id="AbC1x9QwEr2TyUiOpAsDfG")
    'board/flights@AbC1x9Qw/3/42/decode'
    >>> letter_id("board", "decode", Origin(TopicPartition("flights", 3), 42))
    'board/flights/3/42/decode'
    >>> letter_id("board", "sink", None, b"UA 15")
    'board/-/65ab8117f0413562/sink'
    >>> letter_id("a/b", "100 %", Origin(TopicPartition("flights", 3), 42))
    'a%2Fb/flights/3/42/100 %25'
    """
    group_id, step = (it.replace("%", "%25").replace("/", "%2F") for it in (group_id, step))
    if origin is None:
        return f"{group_id}/-/{hashlib.sha256(content).hexdigest()[:16]}/{step}"
    tp = origin.topic_partition
    topic = tp.topic if topic_id is None else f"{tp.topic}@{topic_id[:_TOPIC_ID_CHARACTERS]}"
    return f"{group_id}/{topic}/{tp.partition}/{origin.offset}/{step}"
