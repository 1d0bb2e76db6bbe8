"""The ranges of a batch that a query has not read, stored for its later runs.

Written and read by ``streamgroups.query.skipped_range_store``. A restarted query replays its unfinished batch, except
for partitions that another member owns by then. Spark's checkpoint does not show that. It contains the batch with all
its ranges, and the batch is done as soon as the other ranges are. Suppose that the query is restarted again before it
has logged another batch, and then owns such a partition. It would count the range as read, although no member has read
it. Therefore each run stores its skipped ranges before Spark can finish the batch. A batch whose sink has not read all rows
is stored with all its ranges, as soon as the source detects it. The store is
:func:`streamgroups.coordination.reset_protocol.skipped_ranges_group_of` the group. Each metadata entry contains the
fingerprints of batches. Source: SEMANTICS S1, S5.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.json_values import string
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import TopicPartition

#: The number that fits into the 4,096 bytes of metadata that a broker permits. Earlier ones are dropped.
MOST = 200


def fingerprint(batch: BatchOffset) -> str:
    """Identifies a batch among those of all queries of the group.

    >>> fingerprint(BatchOffset(1)) == fingerprint(BatchOffset(1, warm_ups=2)) != fingerprint(BatchOffset(2))
    True
    """
    logged = json.dumps(encode(replace(batch, warm_ups=0, group_id=None)), sort_keys=True)
    return hashlib.sha256(logged.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SkippedRanges:
    """The batches that have not read a partition although it is in their checkpoint.

    Args:
        batches: their fingerprints, the earliest first.

    >>> left = SkippedRanges().plus("a").plus("b").minus("a")
    >>> left, SkippedRanges.parse(left.encode()) == left
    (SkippedRanges(batches=('b',)), True)
    """

    batches: tuple[str, ...] = ()

    def plus(self, batch: str) -> SkippedRanges:
        """With one more batch."""
        return SkippedRanges((*self.minus(batch).batches, batch)[-MOST:])

    def minus(self, batch: str) -> SkippedRanges:
        """Without one batch."""
        return SkippedRanges(tuple(b for b in self.batches if b != batch))

    def encode(self) -> str:
        """The entry as metadata."""
        return write_entry({"left": list(self.batches)})

    @classmethod
    def parse(cls, metadata: str) -> SkippedRanges | None:
        """Parses metadata; ``None`` if it is not such an entry, or has a newer version.

        >>> SkippedRanges.parse("by hand") is None
        True
        """
        batches = read_entry(metadata).get("left")
        try:
            return cls(tuple(string(batch, most=64) for batch in batches[:MOST])) if isinstance(batches, list) else None
        except ValueError:
            return None


def changes(
    batch: str, left: Mapping[TopicPartition, bool], stored: Mapping[TopicPartition, SkippedRanges]
) -> dict[TopicPartition, SkippedRanges]:
    """The metadata entries to write again.

    Args:
        batch: the fingerprint of a replayed batch.
        left: for each of its partitions, whether the query skips it. A partition that was skipped before may be read
            now.
        stored: the stored entries.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> changes("b", {p0: True, p1: False}, {p1: SkippedRanges(("a", "b"))})[p1]
    SkippedRanges(batches=('a',))
    >>> changes("b", {p0: True}, {p0: SkippedRanges(("b",))})
    {}
    """
    found = {}
    for tp, is_left in left.items():
        before = stored.get(tp, SkippedRanges())
        if is_left != (batch in before.batches):
            found[tp] = before.plus(batch) if is_left else before.minus(batch)
    return found
