"""The watermark that a query imports from another group, whichever application runs the queries of that group.

Created by ``streamgroups_spark.source.source_watermark``. ``streamgroups_spark.source.source_watermark`` uses it for
``sg.with_event_time``, and :class:`LaterTime` for windows with ``time="group"``. Source: SEMANTICS W2, W3, W10;
:mod:`streamgroups.event_time.imported_watermark` has the rules.

The check at the start of a query reads the watermark and waits for it. Later reads run in the background, so that no
batch waits for another group. If a read fails, the last watermark remains.

A query with ``sg.with_event_time`` stores the time of each partition in a metadata group
(:mod:`streamgroups.event_time.stored_time`), and one with ``time="group"`` in its commits
(:mod:`streamgroups.query.group_time`). The queries of the other group can run anywhere, and can be stopped. So its
partitions are those of the topics that its members read or have read. A group without members has the partitions with stored
offsets only: a query with ``assign`` is no member, and does not read the others. A member has
committed its starting positions, except those of added partitions that it has not read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import StreamGroupsError
from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.event_time.imported_watermark import (
    ImportState,
    ImportStatus,
    StoredWatermark,
    check_stored,
    imported,
    standstill,
)
from streamgroups.event_time.stored_time import TimeState, imported_groups, time_in_entries
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster, MetadataStore
from streamgroups.printable import printable
from streamgroups.query.alignment import EventTimes
from streamgroups.query.available_offsets import Start
from streamgroups.query.group_time import (
    GroupTime,
    Seen,
    group_watermark,
    has_group_time,
    observed_all,
    of_present_topics,
    used_watermark,
)
from streamgroups.query.missing_partitions import check_listed
from streamgroups.query.operator_time import OperatorTime
from streamgroups.state.origins import UNNAMED, Named

logger = logging.getLogger(__name__)

#: How often the watermark is read.
_EVERY_MS = 1_000
#: The pause after a failed read.
_BACK_OFF_MS = 10_000
#: How often the members and the topics of a group are read.
_TOPICS_EVERY_MS = 10_000
#: The limit of groups that import from each other in a row. Every principal with Read on a metadata group can add one.
_MAX_GROUPS = 16


@dataclass(frozen=True, slots=True)
class _Topics:
    """The topics of a group when they were read last. ``are_subscribed``: whether members read them, or have read them."""

    names: frozenset[str]
    partitions: frozenset[TopicPartition]
    are_subscribed: bool
    has_members: bool
    read_ms: int


class StoredWatermarks:
    """The watermark of any group of the cluster, by the event times that its queries store. Used by one thread at a time.

    Args:
        cluster: the topics and groups of the cluster.
        metadata_store: the committed offsets of all groups. :meth:`close` closes it.
        now_ms: the time in milliseconds since the epoch.
        idle_timeout_ms: the partition idle timeout for groups that store the watermark in their commits; ``None`` if only
            the timeouts of their queries count. Other groups store which partitions are idle.
    """

    def __init__(
        self, cluster: Cluster, metadata_store: MetadataStore, now_ms: Clock, idle_timeout_ms: int | None = None
    ) -> None:
        self._cluster, self._metadata_store = cluster, metadata_store
        self._now_ms, self._idle_timeout_ms = now_ms, idle_timeout_ms
        self._topics: dict[str, _Topics] = {}
        self._seen: dict[str, Mapping[TopicPartition, Seen]] = {}

    def read(self, group_id: str) -> StoredWatermark:
        """Returns the event time that the queries of a group have stored.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
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
        time = time_in_entries(texts, {})
        if time is None:
            lacks_time = any(map(_is_of_a_batch, places.values()))
            return StoredWatermark(NOT_YET, topics.has_members, has_offsets, lacks_time)
        # Without entries after the committed offset: the group was reset, and reads their records again.
        present = {
            tp: entry.metadata
            for tp, entry in entries.items()
            if tp not in commits or entry.next_offset <= commits[tp].next_offset
        }
        now = time_in_entries(present, dict.fromkeys(topics.partitions))
        return StoredWatermark(
            NOT_YET if now is None or now.watermark is None else now.watermark,
            topics.has_members,
            has_offsets,
            generates=any(it.state is not TimeState.NO_WATERMARK for it in time.partitions.values()),
            imports=imported_groups(texts.values()),
        )

    def close(self) -> None:
        """Closes connections. Call it once."""
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
        names = frozenset[str]().union(*(member.topics for member in members))
        are_subscribed = bool(names)
        if not names and known is not None:
            # Members have no topics while the group rebalances.
            names, are_subscribed = known.names, known.are_subscribed
        # Without one of them the minimum would be too late, and a stream never goes back behind it.
        check_listed(self._cluster, group_id, names, existing)
        partitions = _partitions_of(names or existing.keys(), existing)
        if not are_subscribed:
            stored = self._stored(group_id, partitions)
            names = frozenset(tp.topic for tp in stored)
            partitions = _partitions_of(names, existing) if members else stored
        found = _Topics(names, partitions, are_subscribed, bool(members), now_ms)
        self._topics[group_id] = found
        return found

    def _stored(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions with a committed offset or a stored event time of a group."""
        groups = group_id, event_time_group_of(group_id)
        return frozenset(tp for group in groups for tp in self._metadata_store.read(group, partitions))


def _partitions_of(topics: Collection[str], existing: Mapping[str, int]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, p) for topic in topics for p in range(existing.get(topic, 0)))


def _is_of_a_batch(place: Owned) -> bool:
    """Whether a query of this library has committed a batch, without event time. A tool leaves an offset without a mark."""
    return place.origin is not Origin.FOREIGN and (place.state == UNNAMED or isinstance(place.state, Named))


class ImportedTime:
    """Follows the watermark of another group. Used by one thread at a time.

    Args:
        group_id: the group of the query.
        import_from: the group whose watermark it imports.
        read: reads the stored watermark of a group. It raises a ``StreamGroupsError`` if it cannot.
        close: closes the connections of ``read``.
        now_ms: the time in milliseconds since the epoch.
        start: runs a read in the background.
        generates: whether the query also generates a watermark from its own records.
    """

    def __init__(
        self,
        group_id: str,
        import_from: str,
        read: Callable[[str], StoredWatermark],
        close: Callable[[], None],
        now_ms: Clock,
        start: Start,
        *,
        generates: bool,
    ) -> None:
        self._group_id, self._import_from, self._read_group, self._close = group_id, import_from, read, close
        self._now_ms, self._start, self._generates = now_ms, start, generates
        self._state: ImportState | None = None
        self._reading: Future[Mapping[str, StoredWatermark]] | None = None
        self._next_read_ms = 0
        self._is_failing = False

    def check(self) -> None:
        """Reads the watermark for the first time. Only the first call has an effect.

        A failure that can pass does not prevent the start of the query.

        Raises:
            InvalidOption: see :func:`~streamgroups.event_time.imported_watermark.check_stored`.
            StreamGroupsError: if this user may not read the offsets of a group.
        """
        if self._state is not None:
            return
        state = ImportState(self._now_ms())
        try:
            groups = self._read()
        except StreamGroupsError as e:
            if not e.retriable:
                raise
            self._failed(e)
        else:
            check_stored(self._group_id, self._import_from, groups, generates=self._generates)
            state = imported(state, groups, self._now_ms())
        self._next_read_ms = max(self._next_read_ms, self._now_ms() + _EVERY_MS)
        self._state = state

    def watermark(self) -> Watermark:
        """The watermark of the last read. Starts another one if it is due. Does not wait."""
        if self._state is None:
            return NOT_YET
        if self._reading is None and self._now_ms() >= self._next_read_ms:
            self._begin()
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            try:
                self._take(self._state, reading.result())
            except StreamGroupsError as e:
                self._failed(e)
        return self._state.watermark

    def forget(self) -> None:
        """Discards the watermark until the next read, which begins after this call.

        Called after a reset of the query: the watermark can be that before the reset of the other group.
        """
        if self._state is None:
            return
        self._state = replace(self._state, watermark=NOT_YET)
        self._reading, self._next_read_ms = None, 0

    @property
    def status(self) -> ImportStatus:
        """The watermark for users."""
        state = self._state or ImportState(self._now_ms())
        unchanged_ms = max(0, self._now_ms() - state.changed_ms)
        return ImportStatus(self._import_from, state.watermark, unchanged_ms, state.stopped)

    def close(self) -> None:
        """Closes connections in the background."""
        self._start(self._close)

    def _begin(self) -> None:
        reading = self._reading = Future[Mapping[str, StoredWatermark]]()

        def read() -> None:
            try:
                reading.set_result(self._read())
            except BaseException as e:
                reading.set_exception(e)

        self._start(read)

    def _take(self, before: ImportState, groups: Mapping[str, StoredWatermark]) -> None:
        now_ms = self._now_ms()
        self._is_failing, self._next_read_ms = False, now_ms + _EVERY_MS
        self._state = state = imported(before, groups, now_ms)
        if before.is_reported and not state.is_reported:
            logger.info("%s", printable(f"{self.status} It advances again."))
        warning = standstill(state, self._group_id, self._import_from, now_ms)
        if warning is not None:
            self._state = replace(state, is_reported=True)
            logger.warning("%s", printable(warning))

    def _failed(self, error: StreamGroupsError) -> None:
        self._next_read_ms = self._now_ms() + _BACK_OFF_MS
        if not self._is_failing:
            text = (
                f"Group '{self._group_id}' cannot read the watermark that it imports from group '{self._import_from}': "
                f"{error}"
            )
            logger.warning("%s", printable(text))
        self._is_failing = True

    def _read(self) -> dict[str, StoredWatermark]:
        """The group, the groups that it imports from, and so on."""
        found: dict[str, StoredWatermark] = {}
        waiting = [self._import_from]
        while waiting and len(found) < _MAX_GROUPS:
            group_id = waiting.pop(0)
            if group_id not in found and group_id != self._group_id:
                found[group_id] = self._read_group(group_id)
                waiting += sorted(found[group_id].imports)
        return found


class LaterTime(OperatorTime):
    """The time of the group with the later of its watermark and an imported one (SEMANTICS W10).

    Args:
        own: the time of the group.
        imported: the imported watermark.
    """

    def __init__(self, own: GroupTime, imported: ImportedTime) -> None:
        self._own, self._imported = own, imported
        self._next_offsets: dict[TopicPartition, int] = {}

    def check(self) -> None:
        """See :meth:`OperatorTime.check`."""
        self._imported.check()

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        """See :meth:`OperatorTime.watermark`."""
        next_offsets = {tp: it.next_offset for tp, it in owned.items()}
        if any(n < self._next_offsets.get(tp, n) for tp, n in next_offsets.items()):
            # A reset. Records that the query reads again are late by the watermark before it.
            self._imported.forget()
        self._next_offsets = next_offsets
        return latest(self._own.watermark(owned, read), self._imported.watermark())

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes | None:
        """See :meth:`OperatorTime.event_times`."""
        return self._own.event_times(owned)

    def explain(self, group_id: str, member: str, owned: Mapping[TopicPartition, Owned]) -> StreamExplanation | None:
        """See :meth:`OperatorTime.explain`."""
        return self._own.explain(group_id, member, owned, self._imported.status)
