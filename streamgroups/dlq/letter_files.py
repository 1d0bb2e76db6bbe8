"""Dead letters as lines of a JSON file, in which a user repairs keys and values.

Called by ``streamgroups dlq export`` and ``redrive --from-file``. A key or value that is valid UTF-8 is a text, and any other
is base64. So the unchanged file contains the original bytes. A line does not have a field that the letter does not contain, and
null is a null key or a tombstone. Source: RFC 8259, RFC 4648.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.redrive import Repaired
from streamgroups.errors import InvalidOption
from streamgroups.json_values import read_exact_json, write_exact_json
from streamgroups.times import utc

_BASE64 = "_base64"


def document_of(letter: DeadLetter) -> dict[str, Any]:
    """Returns a letter as a JSON object, without the key or the value if the letter does not contain it.

    >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
    ...                     error_class="ValueError", error="no JSON", key=b"k", value=bytes([255]))
    >>> [(name, value) for name, value in document_of(letter).items() if name.startswith(("key", "value"))]
    [('key', 'k'), ('value_base64', '/w==')]
    """
    origin = letter.origin
    return {
        "id": letter.id,
        "group": letter.group_id,
        "query": letter.query,
        "failed_at": utc(letter.failed_at_ms),
        "attempt": letter.attempt,
        "step": letter.step,
        "error_class": letter.error_class,
        "error": letter.error,
        "details": dict(letter.details),
        "topic": None if origin is None else origin.topic_partition.topic,
        "partition": None if origin is None else origin.topic_partition.partition,
        "offset": None if origin is None else origin.offset,
        "timestamp": None if origin is None else utc(origin.timestamp_ms),
        "headers": [{"name": name, **_field("value", value)} for name, value in letter.headers],
        **({} if "key" in letter.missing_parts else _field("key", letter.key)),
        **({} if "value" in letter.missing_parts else _field("value", letter.value)),
    }


def parse_lines(lines: Iterable[str], letters: Mapping[str, DeadLetter], *, file: str) -> dict[str, Repaired]:
    """Returns the keys and values of a file by the ids of their letters.

    Args:
        lines: the lines: JSON objects with ``id``, and ``key`` or ``value``, which can be repaired. Without one of them,
            that of the letter is used. Other fields are ignored.
        letters: all letters of the queue, by their ids.
        file: the name of the file, for errors.

    Raises:
        InvalidOption: if a line is malformed, names a letter that does not exist, or names one that an earlier line names.
    """
    found: dict[str, Repaired] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            document = read_exact_json(line)
            if not isinstance(document, dict) or not isinstance(document.get("id"), str):
                raise ValueError("it is no JSON object with an id")
            identity = document["id"]
            if identity not in letters:
                raise InvalidOption(
                    f"{where}: the queue contains no letter '{identity}'.", remedy="Export the letters of this queue."
                )
            if identity in found:
                raise InvalidOption(
                    f"{where}: the letter '{identity}' is in an earlier line too.", remedy="Remove one of the lines."
                )
            letter = letters[identity]
            given = frozenset(name for name in ("key", "value") if {name, name + _BASE64} & document.keys())
            key, value = _bytes(document, "key", letter.key), _bytes(document, "value", letter.value)
            found[identity] = Repaired(key, value, given)
        except ValueError as e:
            raise InvalidOption(
                f"{where} is malformed: {e}.", remedy="Write lines as 'streamgroups dlq export' does."
            ) from None
    return found


def _field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(value).decode()}


def _bytes(document: Mapping[str, Any], name: str, unchanged: bytes | None) -> bytes | None:
    encoded = name + _BASE64
    if name in document and encoded in document:
        raise ValueError(f"it contains {name} and {encoded}")
    if encoded in document:
        if not isinstance(document[encoded], str):
            raise ValueError(f"{encoded} is no text")
        try:
            return base64.b64decode(document[encoded], validate=True)
        except binascii.Error as e:
            raise ValueError(f"{encoded} is no base64 ({e})") from None
    if name not in document:
        return unchanged
    value = document[name]
    if value is None:
        return None
    # A repaired value that is written as JSON is meant as this JSON.
    return (value if isinstance(value, str) else write_exact_json(value)).encode()
