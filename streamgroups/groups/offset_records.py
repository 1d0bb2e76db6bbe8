"""The records of ``__consumer_offsets`` about committed offsets: the history of the commits of a group.

Read by :mod:`streamgroups_admin.groups.auditing` for ``streamgroups groups audit``. Compaction keeps the last record of each key
in the part of the log that it has cleaned. So the remaining records of one partition of a group are always the last ones, without
a gap between them. Source: Kafka's ``OffsetCommitKey.json`` and ``OffsetCommitValue.json`` (versions 0 to 4), KIP-915; Kafka's
documentation, "Log Compaction".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition

#: The versions of keys of committed offsets. Other versions are records of other kinds.
_KEY_VERSIONS = (0, 1)
#: The first version in which texts are compact, and fields can follow.
_FLEXIBLE = 4


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """One commit of one partition, or the deletion of its committed offset.

    Args:
        topic_partition: the partition.
        next_offset: the committed offset; ``None`` if it was deleted, or has expired.
        metadata: its metadata.
        time_ms: the time of the commit, in milliseconds since the epoch.
    """

    topic_partition: TopicPartition
    next_offset: int | None
    metadata: str
    time_ms: int


class UnknownRecord(ValueError):
    """A record about a committed offset has an unknown version, or is damaged."""


def key_prefix(group_id: str) -> tuple[bytes, ...]:
    """The beginnings of the keys of a group. Cheaper than to parse the keys of all groups.

    >>> key_prefix("board")[1]
    b'\\x00\\x01\\x00\\x05board'
    """
    name = group_id.encode()
    return tuple(struct.pack(">hh", version, len(name)) + name for version in _KEY_VERSIONS)


def parse_offset_record(key: bytes, value: bytes | None, timestamp_ms: int | None) -> OffsetRecord:
    """Parses a record whose key begins with one of :func:`key_prefix`.

    Args:
        key: its key.
        value: its value; ``None`` for a deletion.
        timestamp_ms: its timestamp: the time of a deletion.

    Raises:
        UnknownRecord: if it cannot be parsed.

    >>> value = b"\\0\\3" + (7).to_bytes(8, "big") + b"\\xff" * 4 + b"\\0\\2ok" + (1_000).to_bytes(8, "big")
    >>> parse_offset_record(b"\\0\\1\\0\\5board\\0\\7flights\\0\\0\\0\\3", value, None)
    OffsetRecord(topic_partition=TopicPartition(topic='flights', partition=3), next_offset=7, metadata='ok', time_ms=1000)
    """
    try:
        fields = _Fields(key, 2)
        fields.text()
        tp = TopicPartition(fields.text(), fields.number(">i"))
        if value is None:
            return OffsetRecord(tp, None, "", timestamp_ms or 0)
        fields = _Fields(value)
        version = fields.number(">h")
        if not 0 <= version <= _FLEXIBLE:
            raise UnknownRecord(f"version {version} of a committed offset is unknown")
        next_offset = fields.number(">q")
        if version >= 3:
            fields.number(">i")
        metadata = fields.compact_text() if version >= _FLEXIBLE else fields.text()
        if next_offset < 0 or tp.partition < 0:
            raise UnknownRecord(f"{tp} has the committed offset {next_offset}")
        # librdkafka writes the NUL that ends its texts.
        return OffsetRecord(tp, next_offset, metadata.rstrip("\0"), fields.number(">q"))
    except (struct.error, UnicodeDecodeError, IndexError) as e:
        raise UnknownRecord(f"the record of a committed offset is damaged: {e}") from None


class _Fields:
    """The fields of a message, in order."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self._position = data, position

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self._data, self._position)
        self._position += struct.calcsize(form)
        return int(found)

    def text(self) -> str:
        return self._bytes(self.number(">h")).decode()

    def compact_text(self) -> str:
        return self._bytes(
            sum((byte & 0x7F) << shift for byte, shift in zip(self._varint(), range(0, 35, 7), strict=False)) - 1
        ).decode()

    def _varint(self) -> Iterator[int]:
        while True:
            byte = self._data[self._position]
            self._position += 1
            yield byte
            if not byte & 0x80:
                return

    def _bytes(self, length: int) -> bytes:
        found = self._data[self._position : self._position + max(length, 0)]
        if len(found) != length:
            raise UnknownRecord("the record of a committed offset ends early")
        self._position += length
        return found
