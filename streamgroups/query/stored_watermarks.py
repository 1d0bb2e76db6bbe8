"""Reads the watermark of any group of the cluster, by the event times that its queries store.

Used by ``streamgroups.query.imported_time``, in the background. A query with ``sg.with_event_time`` stores the time of
each partition in a metadata group (:mod:`streamgroups.event_time.stored_time`), and one with ``time="group"`` in its
commits (:mod:`streamgroups.query.group_time`). Source: SEMANTICS W2, W3, W10.

The queries can run anywhere, and can be stopped. So the partitions of the group are those of the topics that its members
read, or else those of the topics with stored offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.event_time.imported_watermark import StoredWatermark
from streamgroups.event_time.stored_time import TimeState, group_time, imported_groups
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Cluster, Committed, MetadataStore
from streamgroups.query.group_time import (
    Seen,
    group_watermark,
    has_group_time,
    observed_all,
    of_present_topics,
    used_watermark,
)
from streamgroups.state.origins import UNNAMED, Named

#: How often the members and the topics of a group are read.
_TOPICS_EVERY_MS = 10_000


class WatermarkReader(Protocol):
    """Reads stored watermarks. Used by one thread at a time."""

    def read(self, group_id: str) -> StoredWatermark:
        """The event time that the queries of a group have stored.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        ...

    def close(self) -> None:
        """Closes connections. Call it once."""
        ...


@dataclass(frozen=True, slots=True)
class _Topics:
    """The topics of a group when they were read last."""

    names: frozenset[str]
    partitions: frozenset[TopicPartition]
    has_members: bool
    read_ms: int


class StoredWatermarks(WatermarkReader):
    """See :mod:`streamgroups.query.stored_watermarks`.

    Args:
        cluster: the topics and groups of the cluster.
        metadata_store: the committed offsets of all groups. :meth:`close` closes it.
        now_ms: the time in milliseconds since the epoch.
        idle_timeout_ms: the partition idle timeout for groups that store the watermark in their commits; ``None`` if only
            the timeouts of their queries count. Other groups store which partitions are idle.
    """

    def __init__(
        self,
        cluster: Cluster,
        metadata_store: MetadataStore,
        now_ms: Callable[[], int],
        idle_timeout_ms: int | None = None,
    ) -> None:
        self._cluster, self._metadata_store = cluster, metadata_store
        self._now_ms, self._idle_timeout_ms = now_ms, idle_timeout_ms
        self._topics: dict[str, _Topics] = {}
        self._seen: dict[str, Mapping[TopicPartition, Seen]] = {}

    def read(self, group_id: str) -> StoredWatermark:
        """See :meth:`WatermarkReader.read`."""
        topics = self._topics_of(group_id)
        # An owner writes the entry before the commit. In this order no commit is older than its entry.
        entries = self._metadata_store.read(event_time_group_of(group_id), topics.partitions)
        commits = self._metadata_store.read(group_id, topics.partitions)
        places = {tp: Owned.committed(it.next_offset, it.metadata) for tp, it in commits.items()}
        has_offsets = bool(entries or commits)
        if has_group_time(places):
            watermark = self._of_states(group_id, topics.partitions, places)
            return StoredWatermark(watermark, topics.has_members, has_offsets, generates=True)
        texts = {tp: entry.metadata for tp, entry in entries.items()}
        time = group_time(texts, {})
        if time is None:
            lacks_time = any(map(_is_of_a_batch, places.values()))
            return StoredWatermark(NOT_YET, topics.has_members, has_offsets, lacks_time)
        now = group_time(_present(entries, commits), dict.fromkeys(topics.partitions))
        watermark = NOT_YET if now is None or now.watermark is None else now.watermark
        return StoredWatermark(
            watermark,
            topics.has_members,
            has_offsets,
            generates=any(it.state is not TimeState.ASSERTS_NOTHING for it in time.partitions.values()),
            imports=imported_groups(texts.values()),
        )

    def close(self) -> None:
        """See :meth:`WatermarkReader.close`."""
        self._metadata_store.close()

    def _of_states(
        self, group_id: str, partitions: frozenset[TopicPartition], places: Mapping[TopicPartition, Owned]
    ) -> Watermark:
        present = of_present_topics(places, self._cluster.identities({tp.topic for tp in places}))
        # Without a timeout no partition is ever idle, and nothing needs the ends.
        ends = {} if self._idle_timeout_ms is None else self._cluster.high_watermarks(partitions & present.keys())
        seen = observed_all(self._seen.get(group_id, {}), partitions, present, ends, self._now_ms())
        self._seen[group_id] = seen
        now = group_watermark(seen, {}, (), self._idle_timeout_ms)
        if any(it.state == UNNAMED for it in present.values()):
            # A tool has reset a partition. Its records are read again, and must not be late in this query.
            return now
        # The queries of the group have used it: without partitions that are idle, or with an import of their own.
        return latest(now, *(used_watermark(it.state) for it in present.values()))

    def _topics_of(self, group_id: str) -> _Topics:
        known, now_ms = self._topics.get(group_id), self._now_ms()
        if known is not None and 0 <= now_ms - known.read_ms < _TOPICS_EVERY_MS:
            return known
        existing = self._cluster.topics()
        members = self._cluster.describe(group_id).members
        # Members have no topics while the group rebalances.
        names = frozenset[str]().union(*(member.topics for member in members)) or (
            known.names if known else frozenset()
        )
        names = names or self._stored_topics(group_id, existing)
        partitions = frozenset(TopicPartition(name, p) for name in names for p in range(existing.get(name, 0)))
        found = self._topics[group_id] = _Topics(names, partitions, bool(members), now_ms)
        return found

    def _stored_topics(self, group_id: str, existing: Mapping[str, int]) -> frozenset[str]:
        """The topics in which a group without members has offsets."""
        every = [TopicPartition(name, p) for name, count in existing.items() for p in range(count)]
        stored = self._metadata_store.read(group_id, every) | self._metadata_store.read(
            event_time_group_of(group_id), every
        )
        return frozenset(tp.topic for tp in stored)


def _is_of_a_batch(place: Owned) -> bool:
    """Whether a query of this library has committed a batch, without event time. A tool leaves an offset without a mark."""
    return place.origin is not Origin.FOREIGN and (place.state == UNNAMED or isinstance(place.state, Named))


def _present(
    entries: Mapping[TopicPartition, Committed], commits: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, str]:
    """The entries without those after the committed offset: the group was reset, and reads their records again."""
    return {
        tp: entry.metadata
        for tp, entry in entries.items()
        if tp not in commits or entry.next_offset <= commits[tp].next_offset
    }
