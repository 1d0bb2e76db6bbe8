"""Cursors as tokens: opaque, versioned, signed, and valid for five minutes.

``streamgroups_kafka.cursors.group_cursors`` calls this module. A token is ``sgc1.<claims>.<signature>``. The claims of
the token are JSON, the signature is the HMAC-SHA-256 of the text before it, and both are base64url. A token contains
names and offsets, which are not secret. Without the key it cannot be altered. Source: SEMANTICS G5, G7, G16; RFC 2104
(HMAC), RFC 4648 (base64url).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamgroups.cursors.pending_ranges import PendingRange
from streamgroups.errors import CursorExpired, InvalidCursor
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition

#: How long a cursor can be used after it was returned (SEMANTICS G5).
LIFETIME_MS = 300_000

_VERSION = "sgc1"
_TOKEN = re.compile(r"(sgc\d+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_RECREATE = (
    "Create a new cursor with create_group_cursor (or create_cursor). The group continues at its committed offsets."
)


@dataclass(frozen=True, slots=True)
class GroupCursor:
    """The content of a cursor of an instance.

    Args:
        stream: the topic.
        group: the consumer group.
        instance: the member's name.
        session: identifies this membership of the instance among all others.
        pending: the end of the messages that the instance has received and that were not committed when the cursor was
            returned.
    """

    stream: str
    group: str
    instance: str
    session: str
    pending: tuple[PendingRange, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionCursor:
    """The content of a cursor of one partition: where to read next. It belongs to no group.

    Args:
        stream: the topic.
        partition: its number.
        next_offset: the offset to read next.
        identity: the topic that the offset belongs to.
    """

    stream: str
    partition: int
    next_offset: int
    identity: TopicIdentity = UNKNOWN


Cursor: TypeAlias = GroupCursor | PartitionCursor


def encode(cursor: Cursor, key: bytes, now_ms: int) -> str:
    """Returns the token of a cursor that is returned now.

    >>> token = encode(PartitionCursor("flights", 3, 42), b"key", now_ms=0)
    >>> decode(token, b"key", now_ms=LIFETIME_MS)
    PartitionCursor(stream='flights', partition=3, next_offset=42, identity=TopicIdentity(cluster_id=None, topic_id=None))
    """
    claims = json.dumps({"x": now_ms + LIFETIME_MS, **_claims(cursor)}, separators=(",", ":")).encode()
    signed = f"{_VERSION}.{_text(claims)}"
    return f"{signed}.{_signature(signed, key)}"


def decode(token: str, key: bytes, now_ms: int) -> Cursor:
    """Returns the cursor of a token.

    Raises:
        InvalidCursor: if the text is not a token, is damaged, was signed with another key, or has another version.
        CursorExpired: if it was returned more than five minutes ago.
    """
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None:
        raise InvalidCursor("This is not a cursor.", remedy="Use the cursor that the last request returned.")
    version, claims, signature = match.groups()
    if version != _VERSION:
        raise InvalidCursor(
            f"This cursor has version '{version}', but this process supports version '{_VERSION}'.", remedy=_RECREATE
        )
    # Compares texts, not bytes, because several base64 texts can encode the same bytes.
    if not hmac.compare_digest(signature, _signature(f"{version}.{claims}", key)):
        raise InvalidCursor(
            "This cursor was altered, or it was signed with another key.",
            remedy=f"{_RECREATE} Processes that exchange partition cursors need one signing_key.",
        )
    return _cursor(json.loads(_bytes(claims)), now_ms)


def covers_the_same(token: str, other: str) -> bool:
    """Whether two tokens contain the same cursor, whenever each was returned. Does not check their signatures.

    >>> cursor, next_cursor = PartitionCursor("flights", 3, 42), PartitionCursor("flights", 3, 43)
    >>> token = encode(cursor, b"key", now_ms=0)
    >>> covers_the_same(token, encode(cursor, b"key", now_ms=1))
    True
    >>> covers_the_same(token, encode(next_cursor, b"key", now_ms=0))
    False
    """
    return _content(token) == _content(other)


def _content(token: str) -> object:
    """Returns the content without the expiry; the text itself if it is not a token."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return token
    try:
        claims = json.loads(_bytes(match[2]))
    except (ValueError, RecursionError):
        return token
    return {name: claim for name, claim in claims.items() if name != "x"} if isinstance(claims, dict) else token


def _cursor(read: dict[str, Any], now_ms: int) -> Cursor:
    if now_ms > read["x"]:
        whose = f"instance '{read['i']}' of group '{read['g']}'" if "g" in read else f"{read['s']}-{read['p']}"
        late_s = (now_ms - read["x"]) / 1000
        raise CursorExpired(
            f"This cursor of {whose} expired {late_s:.0f} s ago. A cursor is valid for {LIFETIME_MS // 60_000} minutes.",
            remedy=_RECREATE,
            group=read.get("g"),
            topic=read["s"],
            partition=read.get("p"),
        )
    if "g" not in read:
        return PartitionCursor(read["s"], read["p"], read["o"], TopicIdentity(*read["d"]))
    pending = tuple(
        PendingRange(TopicPartition(read["s"], p), ownership_epoch, n) for p, ownership_epoch, n in read["c"]
    )
    return GroupCursor(read["s"], read["g"], read["i"], read["n"], pending)


def _claims(cursor: Cursor) -> dict[str, object]:
    if isinstance(cursor, PartitionCursor):
        ids = [cursor.identity.cluster_id, cursor.identity.topic_id]
        return {"s": cursor.stream, "p": cursor.partition, "o": cursor.next_offset, "d": ids}
    pending = [[c.topic_partition.partition, c.ownership_epoch, c.next_offset] for c in cursor.pending]
    return {"s": cursor.stream, "g": cursor.group, "i": cursor.instance, "n": cursor.session, "c": pending}


def _signature(signed: str, key: bytes) -> str:
    return _text(hmac.digest(key, signed.encode(), hashlib.sha256))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
