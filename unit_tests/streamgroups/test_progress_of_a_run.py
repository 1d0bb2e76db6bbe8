"""Which committed offsets prove that a run has finished a batch with records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.supervision.progress import has_read

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
READ = BatchOffset(7, (OffsetRange(P0, 10, 25),), {P1: 3}, group_id="board")


def text(offset: BatchOffset) -> str:
    return json.dumps(encode(offset))


def punctuation(watermark: int) -> str:
    return json.dumps({"version": 1, "kind": "streamgroups-time", "group": "board", "watermark": watermark})


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (READ, False),
        (BatchOffset(8, (OffsetRange(P0, 25, 26),), {P1: 3}, group_id="board"), True),
        (replace(READ, warm_ups=1), False),
        # A batch that only emits windows.
        (BatchOffset(8, (), {P0: 25, P1: 3}, group_id="board"), False),
        # A partition has another owner.
        (replace(READ, resting={}), False),
    ],
)
def test_a_batch_of_this_library_counts_if_it_has_records(after: BatchOffset, expected: bool) -> None:
    assert has_read([text(READ), punctuation(1)], [text(after), punctuation(2)]) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('{"flights":{"0":10}}', '{"flights":{"0":10}}', False),
        ('{"flights":{"0":10}}', '{"flights":{"0":11}}', True),
        ("10", "11", True),
        ("not JSON", "not JSON", False),
        ("not JSON", "neither", True),
        (None, "10", True),
        (None, None, False),
    ],
)
def test_a_batch_of_another_source_counts_if_its_offset_differs(
    before: str | None, after: str | None, expected: bool
) -> None:
    assert has_read([before, text(READ)], [after, text(READ)]) is expected
