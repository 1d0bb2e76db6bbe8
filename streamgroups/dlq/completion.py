"""Completes the failure of a row to a dead letter.

Called by the writers of ``streamgroups_spark.sinks`` on the driver, with the facts of the batch. A replayed batch has
the same facts, so it completes the same letters. Source: SEMANTICS P4, X9.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroups.dlq.letter import DeadLetter, Origin, letter_id
from streamgroups.dlq.record_headers import MAX_ATTEMPT, attempt_of, origin_of, without_facts
from streamgroups.json_values import MAX_INT64
from streamgroups.partitions import OffsetRange
from streamgroups.printable import printable


@dataclass(frozen=True, slots=True)
class BatchOfLetters:
    """The facts of a batch that its dead letters contain.

    Args:
        query: the name of the query, or its id.
        failed_at_ms: the time of the batch, milliseconds since the epoch.
        group_id: the group of letters without origin. Of several groups, the first one by name from which the batch reads.
        groups: the group by which each topic is read.
        topic_ids: the id of each topic, as far as it is known.
        ranges: the ranges that the batch reads, by group.
        query_id: the id of the query, which its checkpoint contains. Empty if it is unknown.
    """

    query: str
    failed_at_ms: int
    group_id: str
    groups: Mapping[str, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Collection[OffsetRange]] = field(default_factory=dict)
    query_id: str = ""

    @property
    def input(self) -> str:
        """Identifies the input of the batch, with its time: the id of the query, or the ranges if the id is unknown.

        Members of a group have checkpoints with ids of their own. A replay has the same id, but can have fewer ranges, if another
        member then owns some of the partitions.

        >>> BatchOfLetters("board", 9, "billing", query_id="5f2c").input
        '5f2c'
        >>> from streamgroups.partitions import TopicPartition
        >>> r = OffsetRange(TopicPartition("flights", 0), 10, 20)
        >>> BatchOfLetters("board", 9, "billing", topic_ids={"flights": "AbC1"}, ranges={"billing": [r]}).input
        'billing:flights@AbC1-0[10,20)'
        """
        if self.query_id:
            return self.query_id
        read = sorted((group_id, r) for group_id, ranges in self.ranges.items() for r in ranges)
        return " ".join(
            f"{group_id}:{tp.topic}@{self.topic_ids.get(tp.topic, '')}-{tp.partition}[{r.next_offset},{r.end_offset})"
            for group_id, r in read
            for tp in (r.topic_partition,)
        )


def complete(
    failures: Iterable[Mapping[str, Any]], batch: BatchOfLetters, redacted: Callable[[str], str] = str
) -> Iterator[DeadLetter]:
    """Returns the dead letters of a batch.

    Args:
        failures: the failures with the fields of :data:`streamgroups.dlq.letter.FAILURE`, in the order of their tasks.
            ``details`` is a sequence of pairs, ``timestamp`` is in milliseconds.
        batch: the facts of the batch.
        redacted: removes secrets from a text.

    Rows of one record that fail in one step, such as the lines of an order, are one letter if their key, value and headers are
    equal: a redrive sends the record once. Otherwise they are numbered, as are equal letters without origin. These are identified
    by their query, the time of their batch, and their content.

    >>> failure = {"step": "decode", "error_class": "ValueError", "error": "no JSON", "topic": "flights", "partition": 3,
    ...            "offset": 42, "headers": [{"key": "streamgroups.dlq.attempt", "value": b"1"}]}
    >>> batch = BatchOfLetters("board", 9, "billing")
    >>> letter, other = complete([failure, failure | {"error": "no price"}, failure | {"value": b"line 2"}], batch)
    >>> letter.id, letter.attempt, letter.headers
    ('billing/flights/3/42/decode', 2, ())
    >>> letter.details
    {'failed_rows': '2', 'other_errors': 'no price'}
    >>> other.id
    'billing/flights/3/42/decode/2'
    """
    found: dict[tuple[object, ...], list[DeadLetter]] = {}
    for n, failure in enumerate(failures):
        letter = _letter(failure, batch, redacted)
        # Rows without origin come from several records: each is a letter.
        same = (letter.id, letter.key, letter.value, letter.headers, n if letter.origin is None else None)
        found.setdefault(same, []).append(letter)
    used: set[str] = set()
    numbers: Counter[str] = Counter()
    for first, *others in found.values():
        id_ = first.id
        # A user chooses the names of steps, which can end with a number too.
        while id_ in used:
            numbers[first.id] += 1
            id_ = f"{first.id}/{numbers[first.id] + 1}"
        used.add(id_)
        yield replace(first, id=id_, details={**first.details, **_details_of(first, others)})


def _letter(failure: Mapping[str, Any], batch: BatchOfLetters, redacted: Callable[[str], str]) -> DeadLetter:
    def text(found: str | None) -> str:
        # A producer chooses parts of it, and a sink such as PostgreSQL stores no NUL, and no half of a surrogate pair.
        return printable(redacted(found or ""))

    # Rows of an output can have headers without a name, which a record of Kafka cannot have.
    headers = tuple((it["key"] or "", it["value"]) for it in failure.get("headers") or () if it is not None)
    origin, group_id, topic_id, content = _origin(failure), batch.group_id, None, b""
    step = printable(failure.get("step") or "unknown")
    if origin is None:
        # Equal rows of another batch are other letters, also in a batch of another member at the same time.
        content = f"{batch.failed_at_ms} {batch.input} {json.dumps(failure, sort_keys=True, default=_hex)}".encode()
    else:
        group_id = batch.groups.get(origin.topic_partition.topic, batch.group_id)
        topic_id = batch.topic_ids.get(origin.topic_partition.topic)
    return DeadLetter(
        id=letter_id(group_id, step, origin, content, topic_id=topic_id),
        group_id=group_id,
        query=printable(batch.query),
        failed_at_ms=batch.failed_at_ms,
        attempt=min(attempt_of(headers) + 1, MAX_ATTEMPT),
        step=step,
        error_class=printable(failure.get("error_class") or ""),
        error=text(failure.get("error")),
        details={printable(key): text(value) for key, value in failure.get("details") or ()},
        origin=origin,
        key=failure.get("key"),
        value=failure.get("value"),
        headers=without_facts(headers),
    )


def _details_of(first: DeadLetter, others: Sequence[DeadLetter]) -> dict[str, str]:
    """Returns the details of a letter for several rows: their number, and their other errors."""
    if not others:
        return {}
    errors = dict.fromkeys(it.error for it in others if it.error != first.error)
    return {"failed_rows": str(1 + len(others))} | ({"other_errors": "; ".join(errors)} if errors else {})


def as_row(letter: DeadLetter) -> dict[str, Any]:
    """Returns the columns of :data:`streamgroups.dlq.letter.LETTER`. Times are in milliseconds.

    >>> as_row(DeadLetter(id="b/-/1/sink", group_id="b", query="q", failed_at_ms=9, attempt=1, step="sink", error_class="E",
    ...                   error="no"))["topic"] is None
    True
    """
    origin = letter.origin
    timestamp_ms = None if origin is None else origin.timestamp_ms
    details = dict(letter.details)
    if timestamp_ms is not None and abs(timestamp_ms) > MAX_INT64 // 1_000:
        timestamp_ms, details["timestamp_ms"] = None, str(timestamp_ms)
    return {
        "id": letter.id,
        "group_id": letter.group_id,
        "query": letter.query,
        "failed_at": letter.failed_at_ms,
        "attempt": letter.attempt,
        "step": letter.step,
        "error_class": letter.error_class,
        "error": letter.error,
        "details": list(details.items()),
        "topic": None if origin is None else origin.topic_partition.topic,
        "partition": None if origin is None else origin.topic_partition.partition,
        "offset": None if origin is None else origin.offset,
        "timestamp": timestamp_ms,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"key": key, "value": value} for key, value in letter.headers],
    }


def _origin(failure: Mapping[str, Any]) -> Origin | None:
    topic, partition, offset = (failure.get(name) for name in ("topic", "partition", "offset"))
    return None if topic is None else origin_of(printable(topic), partition, offset, failure.get("timestamp"))


def _hex(value: bytes) -> str:
    return value.hex()
