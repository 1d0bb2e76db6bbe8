"""A dead letter with all columns, for tests of the formats that store it."""

from __future__ import annotations

from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.partitions import TopicPartition

LETTER = DeadLetter(
    id="board/orders/1/7/decode",
    group_id="board",
    query="prices",
    failed_at_ms=1_700_000_000_001,
    attempt=2,
    step="decode",
    error_class="ValueError",
    error="no JSON: ü '%s'",
    details={"at": "prices.py:7"},
    origin=Origin(TopicPartition("orders", 1), 7, 1_600_000_000_999),
    key=b"k",
    value=b"\xff\x00",
    headers=(("trace", b"\x00"), ("empty", None)),
)
