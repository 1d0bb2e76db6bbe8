"""Reduces a dead letter to what its sink can store. Its details name each missing field, with its size.

Called by ``streamgroups_spark.sinks.letters.of_batch`` on the driver. A dead letter is the last resort of a record, so its sink must
accept it: otherwise the batch would fail at each start. Source: SEMANTICS P4; Kafka's ``max.message.bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from streamgroups.dlq.letter import MISSING, DeadLetter, Origin
from streamgroups.dlq.record_headers import to_headers
from streamgroups.errors import StreamGroupsError
from streamgroups.message import MAX_HEADERS
from streamgroups.printable import printable

#: The fields of a letter that a sink can do without, the first one to remove first.
_FIELDS = ("value", "headers", "key", "timestamp", "details", "error", "error_class", "query")
#: The name of the detail with the reason of the sink.
REJECTED = "rejected"
#: A varint of Kafka for a length has 5 bytes at most, and each header has two of them.
_HEADER_BYTES = 10
#: Texts are cut to these numbers of bytes, one after the other, until a letter fits.
_TEXT_BYTES = (4_000, 1_000, 200, 40)


def fitting(letter: DeadLetter, max_bytes: int) -> DeadLetter:
    """Returns a letter whose Kafka record has at most a number of bytes, as far as its id fits, and at most ``MAX_HEADERS``
    headers.

    Args:
        letter: the letter.
        max_bytes: the maximum size of its key, value and headers.

    >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
    ...                     error_class="ValueError", error="no JSON", key=b"k" * 1_000, value=b"v" * 1_000)
    >>> small = fitting(letter, 1_500)
    >>> len(small.key), small.value, small.details
    (1000, None, {'value_bytes': '1000'})
    """
    if len(to_headers(letter)) > MAX_HEADERS:
        letter = _without(letter, "headers")
    for name in ("value", "headers", "key"):
        if size_bytes(letter) <= max_bytes:
            return letter
        letter = _without(letter, name)
    for most in _TEXT_BYTES:
        if size_bytes(letter) <= max_bytes:
            return letter
        letter = _shortened(letter, most)
    return letter if size_bytes(letter) <= max_bytes else replace(letter, details=_sizes(letter.details))


def size_bytes(letter: DeadLetter) -> int:
    """Returns the maximum size of the key, the value and the headers of a letter in a Kafka record."""
    return (
        len(letter.key or b"")
        + len(letter.value or b"")
        + sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in to_headers(letter))
    )


def reductions(letter: DeadLetter, why: str) -> Iterator[DeadLetter]:
    """Returns letters for a sink that has rejected a letter: first without one field each, and then without more of them.

    Args:
        letter: the letter.
        why: the reason of the sink, without secrets.
    """
    present = [name for name in _FIELDS if _without(letter, name) is not letter]
    for name in present:
        yield _rejected(letter, [name], why)
    for count in range(2, len(present) + 1):
        yield _rejected(letter, present[:count], why)


class RejectedLetters:
    """The letters of a batch that a topic has rejected, and their reductions.

    Used by one writer: it reports rejected letters, writes the result of :meth:`take`, and repeats both until no letter
    is rejected.

    Args:
        letters: all letters of the batch. Their ids differ.

    >>> letter = DeadLetter(id="b/t/0/7/decode", group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
    ...                     error_class="ValueError", error="no JSON", value=b"v" * 1_000)
    >>> from streamgroups.errors import RecordRejected
    >>> rejected = RejectedLetters([letter])
    >>> rejected.reject("b/t/0/7/decode", "It is too large.", RecordRejected("It is too large."))
    >>> [(it.value, it.details) for it in rejected.take()]
    [(None, {'value_bytes': '1000', 'rejected': 'value: It is too large.'})]
    >>> rejected.take()
    []
    """

    def __init__(self, letters: Iterable[DeadLetter]) -> None:
        self._letters = {it.id: it for it in letters}
        self._reductions: dict[str, Iterator[DeadLetter]] = {}
        self._rejected: dict[str, StreamGroupsError] = {}

    def reject(self, letter_id: str, why: str, error: StreamGroupsError) -> None:
        """Reports that the topic has rejected a letter.

        Args:
            letter_id: the id of the letter.
            why: the reason of the topic, without secrets.
            error: the error, in case that the topic rejects all reductions.
        """
        self._rejected[letter_id] = error
        if letter_id not in self._reductions:
            self._reductions[letter_id] = reductions(self._letters[letter_id], why)

    def take(self) -> list[DeadLetter]:
        """Returns the next reduction of each rejected letter. A letter is returned once for each rejection.

        Raises:
            StreamGroupsError: the last error of a letter without further reductions.
        """
        rejected, self._rejected = self._rejected, {}
        taken = []
        for letter_id, error in rejected.items():
            reduced = next(self._reductions[letter_id], None)
            if reduced is None:
                raise error
            taken.append(reduced)
        return taken


def _rejected(letter: DeadLetter, names: list[str], why: str) -> DeadLetter:
    for name in names:
        letter = _without(letter, name)
    # The reason contains no value if it was a text that the sink has rejected.
    reason = "" if {"details", "error"} & set(names) else f": {printable(why)[:500]}"
    return replace(letter, details={**letter.details, REJECTED: f"{', '.join(names)}{reason}"})


def _without(letter: DeadLetter, name: str) -> DeadLetter:
    """A letter without a field, whose size is in its details. The same letter if the field is empty."""
    return _REMOVE[name](letter)


def _without_value(letter: DeadLetter) -> DeadLetter:
    return (
        letter if letter.value is None else replace(letter, value=None, details=_sized(letter, "value", letter.value))
    )


def _without_key(letter: DeadLetter) -> DeadLetter:
    return letter if letter.key is None else replace(letter, key=None, details=_sized(letter, "key", letter.key))


def _without_headers(letter: DeadLetter) -> DeadLetter:
    if not letter.headers:
        return letter
    content = b"".join(name.encode() + (value or b"") for name, value in letter.headers)
    return replace(letter, headers=(), details=_sized(letter, "headers", content))


def _without_timestamp(letter: DeadLetter) -> DeadLetter:
    origin = letter.origin
    if origin is None or origin.timestamp_ms is None:
        return letter
    details = {**letter.details, "timestamp_ms": str(origin.timestamp_ms)}
    return replace(letter, origin=Origin(origin.topic_partition, origin.offset), details=details)


def _without_details(letter: DeadLetter) -> DeadLetter:
    kept = _sizes(letter.details)
    return letter if kept == letter.details else replace(letter, details=kept)


def _without_text(name: str) -> Callable[[DeadLetter], DeadLetter]:
    def remove(letter: DeadLetter) -> DeadLetter:
        text = getattr(letter, name)
        empty: dict[str, Any] = {name: ""}
        return replace(letter, details=_sized(letter, name, text.encode()), **empty) if text else letter

    return remove


_REMOVE: Mapping[str, Callable[[DeadLetter], DeadLetter]] = {
    "value": _without_value,
    "headers": _without_headers,
    "key": _without_key,
    "timestamp": _without_timestamp,
    "details": _without_details,
    **{name: _without_text(name) for name in ("error", "error_class", "query")},
}


def _sized(letter: DeadLetter, name: str, content: bytes) -> Mapping[str, str]:
    return {**letter.details, f"{name}_bytes": str(len(content))}


def _sizes(details: Mapping[str, str]) -> dict[str, str]:
    """The details with the names and the sizes of missing fields."""
    names = {f"{name}_bytes" for name in _REMOVE} | {"timestamp_ms"}
    kept = {name: text for name, text in details.items() if name in names and text.removeprefix("-").isdigit()}
    return kept | {name: text for name, text in details.items() if name == MISSING and len(text) <= _TEXT_BYTES[-1]}


def _shortened(letter: DeadLetter, most: int) -> DeadLetter:
    return replace(
        letter,
        error=_cut(letter.error, most),
        error_class=_cut(letter.error_class, most),
        query=_cut(letter.query, most),
        details={_cut(name, most): _cut(text, most) for name, text in letter.details.items()},
    )


def _cut(text: str, most_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode(errors="ignore") + "..."
