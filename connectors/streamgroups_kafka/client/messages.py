"""Converts records of confluent-kafka to messages, also those with values that no column can represent.

Header names can be no UTF-8, and timestamps can be outside of microseconds: every principal with Write on a topic can write
such a record. Called by both readers, by the readers of cursors and by ``topics tail``. All readers deliver it with null
headers or a null timestamp, and log a warning. Source: Kafka's record format; confluent-kafka decodes header names as UTF-8
and fails with ``SystemError``, so all headers are lost; Spark and Arrow store timestamps as 64 bits of microseconds.
"""

from __future__ import annotations

import logging
import operator
import threading
import time
from enum import IntFlag
from typing import Any, TypeAlias

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from streamgroups.message import Message
from streamgroups.partitions import TopicPartition

logger = logging.getLogger(__name__)

#: The largest absolute timestamp that fits into microseconds.
MAX_TIME_MS = (2**63 - 1) // 1_000
#: The interval of warnings about flawed records of one partition.
_AGAIN_S = 60.0
_MAX_PLACES = 10_000
#: confluent-kafka declares every field of a message as optional. A message has either an error or all fields.
KafkaMessage: TypeAlias = Any


class Flaw(IntFlag):
    """The fields of a record that have no value. The first three numbers are those of the native reader."""

    HEADERS = 1
    TIMESTAMP = 2
    #: confluent-kafka returns no headers for such a record, and no error. So only the native reader sees it.
    UNPARSED_HEADERS = 4
    #: See ``streamgroups_spark.source.watermark_header``.
    WATERMARK = 8
    #: See ``streamgroups_kafka.admin.batch_fetch``.
    LENGTH = 16


_WHY = {
    Flaw.HEADERS: "a header name is not UTF-8, so its headers are null",
    Flaw.TIMESTAMP: "its timestamp is outside the range of microseconds, so it is null",
    Flaw.UNPARSED_HEADERS: "librdkafka cannot parse its headers, so they are null",
    Flaw.LENGTH: "its key or value has a negative length, so it is null",
    Flaw.WATERMARK: "its producer watermark is not in decimal milliseconds since 1970, so it is ignored",
}
#: For a name that is not UTF-8, confluent-kafka returns a list with a null pointer and sets an exception. A specialised
#: call in hot Python code ignores an exception beside a result. It would use the list, which ends the process. This
#: call always checks for the exception.
_HEADERS = operator.methodcaller("headers")
_lock = threading.Lock()
_next_warning_s: dict[tuple[TopicPartition, Flaw], float] = {}


def headers_of(message: Any) -> list[tuple[str, Any]] | None:
    """Returns the headers of a confluent-kafka message; ``None`` without headers, or if a name is not UTF-8."""
    try:
        headers: list[tuple[str, Any]] | None = _HEADERS(message)
    except (SystemError, UnicodeDecodeError):
        # The message keeps a list with a null pointer. The next use of it would be a segmentation fault.
        message.set_headers([])
        warn_of_flaw(TopicPartition(message.topic(), message.partition()), message.offset(), Flaw.HEADERS)
        return None
    return headers or None


def timestamp_ms_of(message: Any) -> int | None:
    """Returns the timestamp of a confluent-kafka message; ``None`` if it does not fit into microseconds."""
    timestamp_ms: int = message.timestamp()[1]
    if abs(timestamp_ms) <= MAX_TIME_MS:
        return timestamp_ms
    warn_of_flaw(TopicPartition(message.topic(), message.partition()), message.offset(), Flaw.TIMESTAMP)
    return None


def warn_of_flaw(tp: TopicPartition, offset: int, flaws: Flaw) -> None:
    """Logs a warning about a record. Further flawed records of its partition are not logged for a minute."""
    for flaw in Flaw:
        if flaw not in flaws:
            continue
        now_s = time.monotonic()
        with _lock:
            if _next_warning_s.get((tp, flaw), now_s) > now_s:
                continue
            if len(_next_warning_s) >= _MAX_PLACES:
                _next_warning_s.clear()
            _next_warning_s[tp, flaw] = now_s + _AGAIN_S
        logger.warning("%s@%d: %s. Other records of this partition may have the same defect.", tp, offset, _WHY[flaw])


def size_of(message: Any, headers: list[tuple[str, Any]] | None) -> int:
    """The bytes of a message in an Arrow batch: key, value and headers, with two offsets for each header."""
    size = len(message.value() or b"") + len(message.key() or b"")
    return size + sum(len(name.encode()) + len(value or b"") + 8 for name, value in headers or ())


def to_message(tp: TopicPartition, message: KafkaMessage) -> Message:
    """Converts a message without an error."""
    kind, timestamp_ms = message.timestamp()
    return Message(
        tp.topic,
        tp.partition,
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        tuple(headers_of(message) or ()),
    )
