"""Whether a run of a query has finished a batch with records, by the committed offsets of its sources.

Used by ``streamgroups_spark.ops.run_progress`` where Spark keeps the progress of few batches or none. Source: Spark's
``StreamExecution.committedOffsets``; :mod:`streamgroups.checkpoints.offset`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from streamgroups.checkpoints.offset import BatchOffset, decode
from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.errors import OffsetFormat


def has_read(before: Sequence[str | None], after: Sequence[str | None]) -> bool:
    """Returns whether a batch with records has finished between two committed offsets.

    A batch of this library that only starts workers, advances the watermark, or emits windows, does not count.

    Args:
        before: the offset of each source as JSON; ``None`` if a source has none.
        after: the later ones, of the same sources.

    >>> has_read(['{"next": 3}'], ['{"next": 3}']), has_read(['{"next": 3}'], ['{"next": 4}'])
    (False, True)
    """
    return any(_differ(_parsed(one), _parsed(other)) for one, other in zip_longest(before, after))


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, BatchOffset) and isinstance(other, BatchOffset):
        # Warm-ups have no number, a rebalance alone has no batch, and a batch that only emits windows reads nothing.
        return one.number != other.number and one.next_offsets != other.next_offsets
    return bool(one != other)


def _parsed(offset: str | None) -> Any:
    """The content of an offset; ``None`` for one of punctuations, which are no records."""
    if offset is None:
        return None
    try:
        found = json.loads(offset)
    except ValueError:
        return offset
    if isinstance(found, dict) and found.get("kind") == PUNCTUATIONS:
        return None
    try:
        return decode(found)
    except OffsetFormat:
        return found
