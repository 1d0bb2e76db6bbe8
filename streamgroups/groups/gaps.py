"""Gaps: offsets of a partition that a group never reads, recorded in Kafka so that every host can list them.

Recorded by ``streamgroups_kafka.admin.gap_records`` for running queries and their tasks, listed by ``streamgroups
gaps``. The gaps of a partition are the metadata of a committed offset in the metadata group
:func:`streamgroups.coordination.reset_protocol.gaps_group_of`. A broker limits metadata to 4,096 bytes: the newest gaps
that fit are stored, the others are counted.

An entry that cannot be read is not an entry without gaps: it is damaged, or a newer version has written it. It is not
overwritten. Gaps of an unknown form within an entry are stored again as they are. Source: SEMANTICS S7, O4, G17.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.json_values import elements, items, string, whole, whole_or_none
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import OffsetRange, TopicPartition

#: The default limit of a broker for metadata (``offset.metadata.max.bytes``), minus the NUL that confluent-kafka adds.
MAX_BYTES = 4_000


class Cause(Enum):
    """Why the records at a position no longer exist."""

    #: The position is before the earliest offset: retention, or DeleteRecords.
    EXPIRED = "expired"
    #: The position is past the end of a topic with the same ids, or past the offset at which its log was truncated.
    TRUNCATED = "truncated"
    #: The position is of an earlier topic of the same name.
    RECREATED = "recreated"
    #: The position is of another cluster.
    OTHER_CLUSTER = "other-cluster"


@dataclass(frozen=True, slots=True)
class Gap:
    """One gap.

    Args:
        from_offset: the position of the group; ``None`` if it was lost with the topic.
        to_offset: where reading continued. After :attr:`Cause.RECREATED` it is an offset of the new topic.
        cause: the cause.
        time_ms: when it was detected, in milliseconds since the epoch.
        before: the topic of the position.
        after: the current topic.

    >>> Gap(10, 15, Cause.EXPIRED, 0).lost_offsets
    5
    """

    from_offset: int | None
    to_offset: int
    cause: Cause
    time_ms: int
    before: TopicIdentity = UNKNOWN
    after: TopicIdentity = UNKNOWN

    @property
    def lost_offsets(self) -> int | None:
        """How many offsets were skipped; ``None`` if that is not known."""
        if self.cause is not Cause.EXPIRED or self.from_offset is None:
            return None
        return max(0, self.to_offset - self.from_offset)


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps of one partition.

    Args:
        newest: the stored gaps, in the order in which they were recorded.
        dropped: how many earlier gaps are not stored, by cause.
        dropped_offsets: how many offsets these gaps skipped, as far as that is known. All of them expired.
        unknown: the stored gaps of an unknown form or cause, as JSON.
        unknown_dropped: as ``dropped``, for unknown causes.

    >>> gaps = Gaps().plus(Gap(10, 15, Cause.EXPIRED, 0))
    >>> Gaps.parse(gaps.encode()) == gaps, gaps.count, gaps.lost_offsets
    (True, 1, 5)
    """

    newest: tuple[Gap, ...] = ()
    dropped: Mapping[Cause, int] = field(default_factory=dict)
    dropped_offsets: int = 0
    unknown: tuple[str, ...] = ()
    unknown_dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many gaps were ever recorded."""
        return sum(self.counts.values()) + self.unknown_count

    @property
    def unknown_count(self) -> int:
        """How many of them have an unknown form or cause. A newer version has recorded them."""
        return len(self.unknown) + sum(self.unknown_dropped.values())

    @property
    def counts(self) -> Mapping[Cause, int]:
        """How many gaps were ever recorded, by known cause. A cause without a gap is left out."""
        counted = Counter(self.dropped)
        counted.update(gap.cause for gap in self.newest)
        return {cause: counted[cause] for cause in Cause if counted[cause]}

    @property
    def not_kept(self) -> int:
        """How many earlier gaps are not stored."""
        return sum(self.dropped.values()) + sum(self.unknown_dropped.values())

    @property
    def lost_offsets(self) -> int:
        """How many offsets were skipped in all, as far as that is known."""
        return self.dropped_offsets + sum(gap.lost_offsets or 0 for gap in self.newest)

    def plus(self, gap: Gap) -> Gaps:
        """With one more gap. A gap that a killed run recorded, and recorded again after its restart, counts once."""
        if gap in self:
            return self
        gaps = replace(self, newest=(*self.newest, gap))
        while len(gaps.encode().encode()) > MAX_BYTES and gaps.newest:
            first, *rest = gaps.newest
            lost = gaps.dropped_offsets + (first.lost_offsets or 0)
            counted = {**gaps.dropped, first.cause: gaps.dropped.get(first.cause, 0) + 1}
            gaps = replace(gaps, newest=tuple(rest), dropped=counted, dropped_offsets=lost)
        return gaps

    def __contains__(self, gap: Gap) -> bool:
        return any(replace(known, time_ms=0) == replace(gap, time_ms=0) for known in self.newest)

    def encode(self) -> str:
        """The gaps as metadata."""
        gaps = [[g.from_offset, g.to_offset, g.cause.value, g.time_ms, *_ids(g)] for g in self.newest]
        dropped = {cause.value: count for cause, count in self.dropped.items()}
        return write_entry(
            {
                "gaps": [*map(json.loads, self.unknown), *gaps],
                "dropped": {**self.unknown_dropped, **dropped},
                "dropped_offsets": self.dropped_offsets,
            }
        )

    @classmethod
    def parse(cls, metadata: str) -> Gaps | None:
        """Parses metadata; ``None`` if it cannot be read.

        >>> Gaps.parse("by hand"), Gaps.parse("") == Gaps()
        (None, True)
        """
        try:
            return cls.decode(metadata)
        except ValueError:
            return None

    @classmethod
    def decode(cls, metadata: str) -> Gaps:
        """Parses metadata. An empty text contains no gaps.

        Raises:
            ValueError: if it is damaged, or has a newer version.
        """
        if not metadata:
            return cls()
        raw = read_entry(metadata)
        try:
            found = [(_gap(entry), entry) for entry in elements(raw["gaps"])]
            dropped = {string(cause): whole(count) for cause, count in items(raw["dropped"])}
            lost_offsets = whole(raw["dropped_offsets"])
        except KeyError as e:
            raise ValueError(f"it has no field {e}") from e
        known = {cause.value for cause in Cause}
        return cls(
            tuple(gap for gap, _ in found if gap is not None),
            {cause: count for cause in Cause if (count := dropped.get(cause.value))},
            lost_offsets,
            tuple(json.dumps(entry, separators=(",", ":")) for gap, entry in found if gap is None),
            {cause: count for cause, count in dropped.items() if cause not in known},
        )


@dataclass(frozen=True, slots=True)
class PartitionGap:
    """A gap and its partition."""

    topic_partition: TopicPartition
    gap: Gap

    @property
    def lost(self) -> OffsetRange | None:
        """The offsets that were skipped; ``None`` if they are not known, or if no offset was skipped.

        >>> str(PartitionGap(TopicPartition("flights", 3), Gap(10, 15, Cause.EXPIRED, 0)).lost)
        'flights-3[10,15)'
        """
        if self.gap.from_offset is None or not self.gap.lost_offsets:
            return None
        return OffsetRange(self.topic_partition, self.gap.from_offset, self.gap.to_offset)

    def __str__(self) -> str:
        gap = self.gap
        where = "unknown" if gap.from_offset is None else gap.from_offset
        return f"{self.topic_partition}: {gap.cause.value}, from {where} to {gap.to_offset}"


def _ids(gap: Gap) -> Sequence[str | None]:
    before, after = gap.before, gap.after
    ids = (before.cluster_id, before.topic_id, after.cluster_id, after.topic_id)
    # Most gaps are within one topic.
    return ids if before != after else ids[:2]


def _gap(entry: Any) -> Gap | None:
    try:
        begin, end, cause, found_ms, *ids = entry
        if len(ids) not in (2, 4):
            return None
        before, after = (
            TopicIdentity(*(None if i is None else string(i) for i in pair)) for pair in (ids[:2], ids[-2:])
        )
        return Gap(whole_or_none(begin), whole(end), Cause(cause), whole(found_ms), before, after)
    except (TypeError, ValueError):
        return None
