"""The ranges of a batch that a query has left to its group, noted where its later runs find them.

Written and read by ``streamgroups.query.skipped_range_store``. A query that is restarted reads its unfinished batch again, but for the
partitions that another member owns by then. Spark's checkpoint cannot tell that: the batch is in it with all of its ranges,
and is done as soon as the rest of it is. Should the query be restarted once more before it has logged another batch, and own
such a partition then, it would take for read what nobody has read. So each run notes what it leaves, before Spark
can finish the batch. A note is a committed offset of :func:`streamgroups.coordination.reset_protocol.skipped_ranges_group_of` the group, with the fingerprints of
batches as its metadata. Source: SEMANTICS S1, S5.
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

#: So many fit into the 4,096 bytes of metadata that a broker allows. Older ones are forgotten.
MOST = 200


def fingerprint(batch: BatchOffset) -> str:
    """What a batch is known by: other queries of the group have other batches.

    >>> fingerprint(BatchOffset(1)) == fingerprint(BatchOffset(1, warm_ups=2)) != fingerprint(BatchOffset(2))
    True
    """
    logged = json.dumps(encode(replace(batch, warm_ups=0, group_id=None)), sort_keys=True)
    return hashlib.sha256(logged.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SkippedRanges:
    """Which batches have not read a partition though their checkpoints say so.

    Args:
        batches: their fingerprints, the oldest first.

    >>> left = SkippedRanges().plus("a").plus("b").minus("a")
    >>> left, SkippedRanges.parse(left.encode()) == left
    (SkippedRanges(batches=('b',)), True)
    """

    batches: tuple[str, ...] = ()

    def plus(self, batch: str) -> SkippedRanges:
        """With one more."""
        return SkippedRanges((*self.minus(batch).batches, batch)[-MOST:])

    def minus(self, batch: str) -> SkippedRanges:
        """Without one."""
        return SkippedRanges(tuple(b for b in self.batches if b != batch))

    def encode(self) -> str:
        """As metadata."""
        return write_entry({"left": list(self.batches)})

    @classmethod
    def parse(cls, metadata: str) -> SkippedRanges | None:
        """Reads metadata back; ``None`` if it is no such entry, or one of a newer version.

        >>> SkippedRanges.parse("by hand") is None
        True
        """
        batches = read_entry(metadata).get("left")
        try:
            return cls(tuple(string(batch, most=64) for batch in batches[:MOST])) if isinstance(batches, list) else None
        except ValueError:
            return None


def changes(
    batch: str, left: Mapping[TopicPartition, bool], noted: Mapping[TopicPartition, SkippedRanges]
) -> dict[TopicPartition, SkippedRanges]:
    """What is to be noted anew.

    Args:
        batch: the fingerprint of a batch that runs again.
        left: for each of its partitions, whether it is left to the group; what is read is read now, though it was left before.
        noted: what is there.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> changes("b", {p0: True, p1: False}, {p1: SkippedRanges(("a", "b"))})[p1]
    SkippedRanges(batches=('a',))
    >>> changes("b", {p0: True}, {p0: SkippedRanges(("b",))})
    {}
    """
    found = {}
    for tp, is_left in left.items():
        before = noted.get(tp, SkippedRanges())
        if is_left != (batch in before.batches):
            found[tp] = before.plus(batch) if is_left else before.minus(batch)
    return found
