"""Divides the dead letters of a batch into chunks for their writer.

Called by ``streamgroups_spark.sinks.letters``. A column of Arrow with 32-bit offsets contains at most 2 GiB, and the writer copies
each chunk several times. Source: Arrow's documentation, "Variable-size Binary Layout".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamgroups.dlq.letter import DeadLetter

#: The size of a chunk, unless one letter is larger.
CHUNK_BYTES = 4 << 20
#: The size of the other fields of a letter.
_OVERHEAD_BYTES = 512


def in_chunks(letters: Iterable[DeadLetter], max_bytes: int = CHUNK_BYTES) -> Iterator[list[DeadLetter]]:
    """Yields all letters in their order, in chunks of limited size.

    Args:
        letters: the letters.
        max_bytes: the maximum size of a chunk. A larger letter is a chunk of its own.

    >>> letters = [DeadLetter(id=str(n), group_id="b", query="q", failed_at_ms=9, attempt=1, step="decode",
    ...                       error_class="ValueError", error="no JSON", value=b"v" * 1_000) for n in range(5)]
    >>> [[it.id for it in chunk] for chunk in in_chunks(letters, 4_000)]
    [['0', '1'], ['2', '3'], ['4']]
    """
    chunk: list[DeadLetter] = []
    n_bytes = 0
    for letter in letters:
        size = _size(letter)
        if chunk and n_bytes + size > max_bytes:
            yield chunk
            chunk, n_bytes = [], 0
        chunk.append(letter)
        n_bytes += size
    if chunk:
        yield chunk


def _size(letter: DeadLetter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    details = sum(len(name) + len(value) for name, value in letter.details.items())
    return _OVERHEAD_BYTES + len(letter.key or b"") + len(letter.value or b"") + len(letter.error) + headers + details
