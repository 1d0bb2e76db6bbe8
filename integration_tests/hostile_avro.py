"""Schemas and values of Avro for the hostile topic, encoded by hand: also values that no encoder writes.

Used by ``hostile_records`` and ``hostile_topic``. No code of the library or of fastavro is involved. Source: the Avro
specification 1.12, "Binary Encoding"; Confluent's wire format.
"""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUBJECT = "hostile-value"
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def _record(**fields: Any) -> str:
    listed = [
        {"name": name, "type": it[0], "default": it[1]} if isinstance(it, tuple) else {"name": name, "type": it}
        for name, it in fields.items()
    ]
    return json.dumps({"type": "record", "name": "Flight", "fields": listed})


#: The schema of older values. Its fields have narrower types and another order.
OLD = _record(delay="int", n="int", place="string", at=_MILLIS)
#: The schema of newer values, and of the reader.
NEW = _record(
    n="long",
    place=["null", "string"],
    delay="int",
    at=["null", _MICROS],
    price=(_PRICE, "\u0000"),
    entry=("string", ""),
)
#: Schemas whose values cannot be read with the schema of the reader.
WITHOUT_TIME = _record(n="long", place="string", delay="int")
OTHER_TYPE = _record(n="long", place="string", delay="string", at=_MICROS)

_JSON_SCHEMA = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The ids of the schemas in a registry.

    Args:
        old: the id of ``OLD``.
        new: the id of ``NEW``.
        mismatched: ids of schemas that cannot be read: of Avro, and of another format.
        unknown: ids that the registry does not have.
    """

    old: int
    new: int
    mismatched: tuple[int, ...]
    unknown: tuple[int, ...]


def register(url: str) -> SchemaIds:
    """Registers all schemas. The latest one of ``SUBJECT`` is that of the reader."""
    old, new = _post(url, SUBJECT, OLD), _post(url, SUBJECT, NEW)
    mismatched = (
        _post(url, "without-time-value", WITHOUT_TIME),
        _post(url, "other-type-value", OTHER_TYPE),
        _post(url, "json-value", _JSON_SCHEMA, "JSON"),
    )
    highest = max(old, new, *mismatched)
    return SchemaIds(old, new, mismatched, (highest + 1_000, 2**31 - 1, 2**31, 2**32 - 1))


def _post(url: str, subject: str, schema: str, type_: str = "AVRO") -> int:
    body = json.dumps({"schema": schema, "schemaType": type_}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{url}/subjects/{subject}/versions", body, headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(json.load(response)["id"])


def long_(number: int) -> bytes:
    r"""An ``int`` or a ``long``.

    >>> long_(0), long_(-1), long_(1), long_(64), long_(-(2**63))[-1:]
    (b'\x00', b'\x01', b'\x02', b'\x80\x01', b'\x01')
    """
    rest = (number << 1 ^ number >> 63) & (2**64 - 1)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def bytes_(data: bytes) -> bytes:
    """Bytes, or a string in UTF-8."""
    return long_(len(data)) + data


def nullable(encoded: bytes | None) -> bytes:
    """A value of a union of null and another type."""
    return long_(0) if encoded is None else long_(1) + encoded


def decimal(cents: int) -> bytes:
    """A decimal with two decimal places."""
    return bytes_(cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True))


def with_header(schema_id: int, payload: bytes) -> bytes:
    """A value with the header of the registry."""
    return b"\x00" + struct.pack(">I", schema_id) + payload


def new_value(schema_id: int, parts: Mapping[str, bytes]) -> bytes:
    """A value of ``NEW``, of its encoded fields."""
    return with_header(schema_id, b"".join(parts[it] for it in ("n", "place", "delay", "at", "price", "note")))


def old_value(schema_id: int, parts: Mapping[str, bytes]) -> bytes:
    """A value of ``OLD``, of its encoded fields."""
    return with_header(schema_id, b"".join(parts[it] for it in ("delay", "n", "place", "at")))
