"""The wire format of schema registries: a zero byte, the id of the schema in four bytes, and the value.

Called by ``streamgroups_schemas``. For Protobuf, the indexes of the message in its schema follow the id. Source:
Confluent's "Wire Format", https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamgroups.decoding.value_errors import CannotDecode, Kind

_MAGIC = b"\x00"
_HEADER_BYTES = 5
#: More levels of nested messages than any schema has.
_MAX_INDEXES = 64
_MAX_VARINT_BYTES = 10


def split_header(value: bytes) -> tuple[int, bytes]:
    r"""Splits a value into the id of its schema and the rest.

    Raises:
        CannotDecode: if the value does not have this format.

    >>> split_header(b"\x00\x00\x00\x01\x02rest")
    (258, b'rest')
    """
    if len(value) < _HEADER_BYTES or value[:1] != _MAGIC:
        what = "The value is empty." if not value else "The value does not begin with a zero byte and a schema id."
        raise CannotDecode(Kind.NO_MAGIC_BYTE if value else Kind.EMPTY, what)
    return int.from_bytes(value[1:_HEADER_BYTES], "big"), value[_HEADER_BYTES:]


def header(schema_id: int) -> bytes:
    r"""Returns the bytes before a value.

    >>> header(258)
    b'\x00\x00\x00\x01\x02'
    """
    return _MAGIC + schema_id.to_bytes(4, "big")


def split_indexes(rest: bytes) -> tuple[tuple[int, ...], bytes]:
    r"""Splits the rest of a Protobuf value into the indexes of its message and the message.

    ``(1, 0)`` is the first message in the second message of the schema. The first message of a schema is written as
    a single zero.

    Raises:
        CannotDecode: if the indexes are malformed.

    >>> split_indexes(b"\x00rest"), split_indexes(b"\x04\x02\x00rest")
    (((0,), b'rest'), ((1, 0), b'rest'))
    """
    count, at = _varint(rest, 0)
    if not 0 <= count <= _MAX_INDEXES:
        raise CannotDecode(Kind.MALFORMED, f"The value has {count} message indexes.")
    indexes = []
    for _ in range(count):
        index, at = _varint(rest, at)
        indexes.append(index)
    return tuple(indexes) or (0,), rest[at:]


def joined_indexes(indexes: Sequence[int]) -> bytes:
    r"""Returns the bytes of the indexes of a message.

    >>> joined_indexes((0,)), joined_indexes((1, 0))
    (b'\x00', b'\x04\x02\x00')
    """
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(_to_varint(number) for number in (len(indexes), *indexes))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise CannotDecode(Kind.MALFORMED, "The value ends in its message indexes.")
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise CannotDecode(Kind.MALFORMED, "A message index has too many bytes.")


def _to_varint(number: int) -> bytes:
    number <<= 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
