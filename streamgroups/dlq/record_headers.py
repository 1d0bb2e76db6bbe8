"""Dead letters as Kafka records: the original key, value and headers, and headers with the facts of the failure.

Called by the writer of dead letters, and by the commands that read them. The original bytes stay the key and the value,
so every tool shows them, and a redrive sends them unchanged. Source: the headers of the dead letter queue of Kafka
Connect (KIP-298).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.partitions import TopicPartition

#: The prefix of the headers of the failure. Headers with this prefix in the original record are replaced.
PREFIX = "streamgroups.dlq."


def to_headers(letter: DeadLetter) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the headers of the record of a letter: the original ones, and those of the failure.

    >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
    ...                     error_class="ValueError", error="no JSON", origin=Origin(TopicPartition("t", 0), 7),
    ...                     headers=(("trace", b"1"),))
    >>> [name for name, _ in to_headers(letter)][:3]
    ['trace', 'streamgroups.dlq.id', 'streamgroups.dlq.group_id']
    >>> parse_headers(to_headers(letter), key=None, value=None) == letter
    True
    """
    facts: dict[str, str] = {
        "id": letter.id,
        "group_id": letter.group_id,
        "query": letter.query,
        "failed_at_ms": str(letter.failed_at_ms),
        "attempt": str(letter.attempt),
        "step": letter.step,
        "error_class": letter.error_class,
        "error": letter.error,
    }
    if letter.details:
        facts["details"] = json.dumps(dict(letter.details), sort_keys=True, ensure_ascii=False)
    if letter.origin is not None:
        facts["topic"] = letter.origin.topic_partition.topic
        facts["partition"] = str(letter.origin.topic_partition.partition)
        facts["offset"] = str(letter.origin.offset)
        if letter.origin.timestamp_ms is not None:
            facts["timestamp_ms"] = str(letter.origin.timestamp_ms)
    return without_facts(letter.headers) + tuple((PREFIX + name, text.encode()) for name, text in facts.items())


def without_facts(headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the original headers of the record of a letter."""
    return tuple((name, value) for name, value in headers if not name.startswith(PREFIX))


def parse_headers(
    headers: Sequence[tuple[str, bytes | None]], *, key: bytes | None, value: bytes | None
) -> DeadLetter | None:
    """Returns the letter of a record; ``None`` if the record is not a dead letter of this library.

    Raises:
        ValueError: if a header of the failure is malformed or missing.
    """
    facts = {name.removeprefix(PREFIX): (v or b"").decode() for name, v in headers if name.startswith(PREFIX)}
    if "id" not in facts:
        return None
    try:
        return DeadLetter(
            id=facts["id"],
            group_id=facts["group_id"],
            query=facts["query"],
            failed_at_ms=int(facts["failed_at_ms"]),
            attempt=int(facts["attempt"]),
            step=facts["step"],
            error_class=facts["error_class"],
            error=facts["error"],
            details=json.loads(facts.get("details", "{}")),
            origin=_origin(facts),
            key=key,
            value=value,
            headers=without_facts(headers),
        )
    except KeyError as e:
        raise ValueError(f"The header {PREFIX}{e.args[0]} is missing.") from None


def attempt_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Returns how often a source record has failed before. A redrive keeps this header.

    >>> attempt_of([("streamgroups.dlq.attempt", b"2")]), attempt_of([])
    (2, 0)
    """
    for name, value in headers:
        if name == PREFIX + "attempt" and value is not None and value.isdigit():
            return int(value)
    return 0


def _origin(facts: Mapping[str, str]) -> Origin | None:
    if "offset" not in facts:
        return None
    timestamp_ms = facts.get("timestamp_ms")
    return Origin(
        TopicPartition(facts["topic"], int(facts["partition"])),
        int(facts["offset"]),
        None if timestamp_ms is None else int(timestamp_ms),
    )
