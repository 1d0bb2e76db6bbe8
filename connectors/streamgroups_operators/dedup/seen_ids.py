"""The ids that a partition has seen, as parts of a state: buckets of time, with a Bloom filter for each segment.

Used by ``dedup.run``. A bucket has two parts. The part of its ids is in a file apart, which is read only if a filter
matches an id. The part of its filters is in the state file. Both have the same number of segments. A bucket is dropped as
a whole, without a read. A batch writes its new ids only, and segments are merged as their number grows
(``first_to_merge``), and once when their bucket is closed. Source: SEMANTICS X5, S10.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups.state.id_filters import OPEN_SEGMENTS
from streamgroups.state.manifest import Segment
from streamgroups_operators.dedup.bloom_filter import BloomFilter
from streamgroups_operators.dedup.ids import Ids, contained, in_order
from streamgroups_operators.operator import Numbers, Part, PartReader, first_to_merge

#: After the end of a bucket: the part with its ids, and the part with its filters.
IDS, FILTERS = " ids", " filters"
#: The end of the bucket of an unseen id: before all watermarks, also without a timestamp.
UNSEEN = int(np.iinfo(np.int64).min)
#: The limit of the filters that a Python worker keeps for its next batches.
_CACHE_BYTES = 128 * 1024 * 1024


class FilterCache:
    """Filters of stored segments. Spark runs many tasks in a Python worker, one after the other, and a segment never changes.

    Args:
        most_bytes: the limit of their bytes. One filter is kept at any size.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        #: Least recently used first.
        self._kept: OrderedDict[Segment, BloomFilter] = OrderedDict()
        self._n_bytes = 0

    def each(self, part: Part, read: PartReader) -> Iterator[BloomFilter]:
        """Returns the filter of each segment. Those that are not kept are read, their files at once."""
        kept = {it: self._kept[it] for it in part if isinstance(it, Segment) and it in self._kept}
        rows = read.each([it for it in part if not isinstance(it, Segment) or it not in kept])
        for it in part:
            found = kept.get(it) if isinstance(it, Segment) else None
            if found is None:
                found = BloomFilter.from_table(next(rows))
            if isinstance(it, Segment):
                self._keep(it, found)
            yield found

    def _keep(self, segment: Segment, found: BloomFilter) -> None:
        if segment not in self._kept:
            self._kept[segment] = found
            self._n_bytes += found.octets.nbytes
        self._kept.move_to_end(segment)
        while len(self._kept) > 1 and self._n_bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._n_bytes -= oldest.octets.nbytes

    def clear(self) -> None:
        """Empties the cache."""
        self._kept.clear()
        self._n_bytes = 0


_cache = FilterCache(_CACHE_BYTES)


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of :meth:`SeenIds.find`.

    Args:
        ends_ms: for each id the end of its latest bucket, and :data:`UNSEEN` for an unseen one.
        filtered: the number of unseen ids that no filter has matched.
        false_positives: the number of unseen ids that a filter has matched.
    """

    ends_ms: Numbers
    filtered: int
    false_positives: int


@dataclass(frozen=True, slots=True)
class _Matching:
    """A segment whose filter matches some ids.

    Args:
        end_ms: the end of its bucket.
        segment: its ids.
        matches: the numbers of the ids that the filter matches.
    """

    end_ms: int
    segment: Segment | pa.Table
    matches: Numbers


class SeenIds:
    """The ids of one partition.

    Args:
        parts: the parts of its state.
        read: reads the rows of a part.
        false_positive_rate: the rate of new filters.
    """

    def __init__(self, parts: Mapping[str, Part], read: PartReader, false_positive_rate: float) -> None:
        self._read, self._rate = read, false_positive_rate
        self._buckets: dict[int, tuple[list[Segment | pa.Table], list[Segment | pa.Table]]] = {}
        for name, part in parts.items():
            if name.endswith(IDS):
                end = name.removesuffix(IDS)
                self._buckets[int(end)] = ([*part], [*parts[end + FILTERS]])

    def drop_until(self, time_ms: int) -> None:
        """Forgets the buckets that end at a time or before it."""
        self._buckets = {end_ms: bucket for end_ms, bucket in self._buckets.items() if end_ms > time_ms}

    def find(self, ids: Ids) -> Seen:
        """Returns in which bucket each id was seen.

        Args:
            ids: distinct ids.
        """
        ends_ms = np.full(len(ids), UNSEEN, np.int64)
        matched = np.zeros(len(ids), bool)
        segments = self._matching(ids)
        for it, rows in zip(segments, self._read.each([it.segment for it in segments]), strict=True):
            matched[it.matches] = True
            # An older bucket of an id has no effect.
            unseen = it.matches[ends_ms[it.matches] == UNSEEN]
            ends_ms[unseen[contained(ids[unseen], Ids.of(rows))]] = it.end_ms
        unmatched, left = int(len(ids) - matched.sum()), int((ends_ms == UNSEEN).sum())
        return Seen(ends_ms, unmatched, left - unmatched)

    def _matching(self, ids: Ids) -> list[_Matching]:
        """The segments whose filters match some of the ids, newest bucket first."""
        buckets = sorted(self._buckets.items(), reverse=True)
        filters = _cache.each([it for _, bucket in buckets for it in bucket[1]], self._read)
        found = [
            _Matching(end_ms, segment, np.flatnonzero(next(filters).matches(ids)))
            for end_ms, (segments, _) in buckets
            for segment in segments
        ]
        return [it for it in found if len(it.matches)]

    def add(self, end_ms: int, ids: Ids) -> None:
        """Adds unseen ids to a bucket."""
        segments, _filters = self._buckets.setdefault(end_ms, ([], []))
        new = in_order([ids]).to_table()
        # A merge reads files of ids, so most batches do without it.
        first = len(segments) if len(segments) < OPEN_SEGMENTS else first_to_merge([*segments, new])
        self._replace(end_ms, first, [*segments[first:], new])

    def close_until(self, time_ms: int) -> None:
        """Merges the segments of buckets that end at a time or before it: no record is added to them."""
        for end_ms, (segments, _) in self._buckets.items():
            if end_ms <= time_ms and len(segments) > 1:
                self._replace(end_ms, 0, segments)

    def _replace(self, end_ms: int, first: int, merged: Part) -> None:
        """Replaces the segments of a bucket, from a number on, by one."""
        segments, filters = self._buckets[end_ms]
        ids = in_order(Ids.of(it) for it in self._read.each(merged))
        segments[first:] = [ids.to_table()]
        filters[first:] = [BloomFilter.of(ids, self._rate).to_table()]

    def parts(self) -> dict[str, Part]:
        """The parts of the state."""
        parts: dict[str, Part] = {}
        for end_ms, (segments, filters) in sorted(self._buckets.items()):
            parts |= {f"{end_ms}{IDS}": segments, f"{end_ms}{FILTERS}": filters}
        return parts


def forget_filters() -> None:
    """Empties the cache, for tests whose files have equal names."""
    _cache.clear()
