"""Dead letters as Kafka records: the original key, value and headers, and headers with the facts of the failure.

Called by the writer of dead letters, and by the commands that read them. The original bytes stay the key and the value,
so every tool shows them, and a redrive sends them unchanged. Source: the headers of the dead letter queue of Kafka
Connect (KIP-298).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.json_values import MAX_INT32, MAX_INT64, read_json
from streamgroups.partitions import TopicPartition

#: The prefix of the headers of the failure. Headers with this prefix in the original record are replaced.
PREFIX = "streamgroups.dlq."
#: The header with the id of the letter.
ID_HEADER = PREFIX + "id"
#: The maximum number of failures that a letter records. A record that has failed more often has this number.
MAX_ATTEMPT = 1_000
_NUMBER = re.compile("-?[0-9]{1,19}")


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
    headers: Sequence[tuple[str, bytes | None]],
    *,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int | None = None,
) -> DeadLetter | None:
    """Returns the letter of a record; ``None`` if the record is not a dead letter of this library.

    Any client can write to a queue. A number that is out of range counts as unknown, so that it hides no letter.

    Args:
        headers: the headers of the record.
        key: its key.
        value: its value.
        timestamp_ms: its timestamp: the time of the failure if the header with that time has no number.

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
            failed_at_ms=_or(number_in(facts["failed_at_ms"]), timestamp_ms or 0),
            attempt=valid_attempt(number_in(facts["attempt"])),
            step=facts["step"],
            error_class=facts["error_class"],
            error=facts["error"],
            details=read_json(facts.get("details", "{}")),
            origin=_origin(facts),
            key=key,
            value=value,
            headers=without_facts(headers),
        )
    except KeyError as e:
        raise ValueError(f"The header {PREFIX}{e.args[0]} is missing.") from None


def attempt_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Returns how often a source record has failed before. A redrive keeps this header, and any producer can set it.

    >>> attempt_of([("streamgroups.dlq.attempt", b"2")]), attempt_of([]), attempt_of([("streamgroups.dlq.attempt", b"9" * 5_000)])
    (2, 0, 0)
    """
    for name, value in headers:
        if name == PREFIX + "attempt" and value is not None:
            return valid_attempt(number_in(value.decode("ascii", "replace")))
    return 0


def valid_attempt(number: int | None) -> int:
    """Returns a number of failures. One that no redrive can have written is 0.

    >>> valid_attempt(1_000), valid_attempt(1_001), valid_attempt(-1), valid_attempt(None)
    (1000, 0, 0, 0)
    """
    return number if number is not None and 0 <= number <= MAX_ATTEMPT else 0


def number_in(text: str | None) -> int | None:
    """Returns the number of a header that any client can have written; ``None`` if it has not 64 bits.

    >>> number_in("-7"), number_in("9" * 5_000), number_in("\u0663")
    (-7, None, None)
    """
    # Python converts no text with more than 4,300 digits.
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if abs(number) <= MAX_INT64 else None


def _origin(facts: Mapping[str, str]) -> Origin | None:
    if "offset" not in facts:
        return None
    return origin_of(
        facts["topic"],
        number_in(facts["partition"]),
        number_in(facts["offset"]),
        number_in(facts.get("timestamp_ms")),
    )


def origin_of(topic: str, partition: int | None, offset: int | None, timestamp_ms: int | None) -> Origin | None:
    """Returns an origin of facts that any client can have written. ``None`` if they are no place of Kafka.

    >>> origin_of("flights", -1, 7, None) is None
    True
    """
    if partition is None or offset is None or not 0 <= partition <= MAX_INT32 or not 0 <= offset <= MAX_INT64:
        return None
    return Origin(TopicPartition(topic, partition), offset, timestamp_ms)


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number
