"""Parses lines of text to records: one record a line, as text or as JSON.

Called by ``streamgroups topics produce``. An invalid line is an error with its number, and never a record with another
content. Source: ``kafka-console-producer.sh`` for text and its ``key.separator``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.json_values import MAX_INT32, read_exact_json, time_ms, whole, write_exact_json
from streamgroups.positions import parse_time_ms

_FIELDS = ("key", "value", "headers", "partition", "timestamp")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write.

    Args:
        key: the key; ``None`` without one.
        value: the value; ``None`` for a tombstone.
        headers: names and values, in order.
        partition: the partition; ``None`` to choose it by the key, as Kafka's Java clients do.
        timestamp_ms: milliseconds since the epoch, more than 0; ``None`` for the time of the write.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def text_record(line: bytes, key_separator: bytes | None, *, where: str) -> NewRecord:
    """Parses a line of text: the value, or key and value.

    Args:
        line: the line, without its line feed.
        key_separator: the text between key and value; ``None`` for lines without a key.
        where: the place of the line, for an error.

    Raises:
        InvalidOption: if the separator is missing in the line.

    >>> text_record(b"BOS:late", b":", where="line 1")
    NewRecord(key=b'BOS', value=b'late', headers=(), partition=None, timestamp_ms=None)
    """
    if key_separator is None:
        return NewRecord(None, line)
    key, separator, value = line.partition(key_separator)
    if not separator:
        raise InvalidOption(
            f"{where}: the key separator '{key_separator.decode(errors='replace')}' is missing.",
            remedy="Write the line as key, separator, value; or omit --key-separator for lines without keys.",
        )
    return NewRecord(key, value)


def json_record(line: bytes, *, where: str) -> NewRecord:
    """Parses a line that is a JSON object with the fields ``key``, ``value``, ``headers``, ``partition``, ``timestamp``.

    ``key`` and ``value`` are text, which is written as UTF-8, or any other JSON value, which is written as JSON. ``null``
    and a missing field write no key, and a tombstone. ``headers`` is an object, or a list of pairs, with text or ``null``.
    ``timestamp`` is a number of milliseconds, or text in ISO 8601, after the start of 1970. Numbers keep their digits.

    Args:
        line: the line.
        where: the place of the line, for an error.

    Raises:
        InvalidOption: if it is not such an object, or has two values of one name.

    >>> json_record(b'{"key": "BOS", "value": {"delay": 5}, "timestamp": "2013-01-01T05:00:00Z"}', where="line 1")
    NewRecord(key=b'BOS', value=b'{"delay":5}', headers=(), partition=None, timestamp_ms=1357016400000)
    """
    try:
        fields = read_exact_json(line.decode())
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        unknown = sorted(fields.keys() - set(_FIELDS))
        if unknown:
            raise ValueError(f"the field '{unknown[0]}' is unknown")
        partition, timestamp = fields.get("partition"), fields.get("timestamp")
        return NewRecord(
            _bytes(fields.get("key")),
            _bytes(fields.get("value")),
            _headers(fields.get("headers")),
            None if partition is None else whole(partition, most=MAX_INT32),
            None if timestamp is None else _timestamp_ms(timestamp),
        )
    except (ValueError, InvalidOption) as e:
        reason = e.what if isinstance(e, InvalidOption) else str(e)
        raise InvalidOption(
            f"{where}: {reason.rstrip('.')}.",
            remedy=f"Write one JSON object on each line, with the fields {', '.join(_FIELDS)}.",
        ) from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else write_exact_json(value)).encode()


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else [] if value is None else value
    if not isinstance(pairs, list):
        raise ValueError("'headers' is neither an object nor a list of pairs")
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("'headers' contains a value that is not a pair of name and value")
        if "\0" in pair[0]:
            raise ValueError(
                f"the header name {pair[0]!r} contains the character NUL, with which librdkafka ends names"
            )
        if not isinstance(pair[1], str | None):
            raise ValueError(f"the header '{pair[0]}' is neither text nor null")
        headers.append((pair[0], None if pair[1] is None else pair[1].encode()))
    return tuple(headers)


def _timestamp_ms(value: Any) -> int:
    found = parse_time_ms(value, option="timestamp") if isinstance(value, str) else time_ms(value)
    if found < 0:
        raise ValueError("'timestamp' is before 1970")
    if not found:
        raise ValueError("'timestamp' is 0, for which librdkafka writes the current time")
    return found
