"""The watermark of the source of one running query, and the imported watermark of a query.

Created by ``source.running_query`` for a query with ``with_event_time``. ``streamgroups.query.micro_batches`` calls it
on the thread of the query, for each batch and each poll of the log. The punctuation source calls it on any thread. The
rules are in :mod:`streamgroups.event_time`. This module collects their input from tasks, log and metadata store.
An import that the query cannot use is rejected before the first batch. Source: SEMANTICS W2, W3, W8, W10;
docs/architecture.rst, "Event time".

The time of a partition is stored in a metadata group before its offsets are committed. The next owner reads it, which
is another query, or this one after a restart. If an entry cannot be written or read, the watermark advances later than
necessary. If the user's process does not return the observations of a batch, the watermark waits for them
(:mod:`streamgroups.event_time.unreported_batches`). They are lost only if the query ends before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import InvalidOption, QueryUnknown, StreamGroupsError
from streamgroups.event_time.observations import Observation, TaskObservation, observations
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import (
    PartitionTime,
    SourceTime,
    add_partitions,
    advance_to,
    observe,
    remove_partitions,
)
from streamgroups.event_time.time_entries import came_in, read_time, time_of_assigned, write_entry
from streamgroups.event_time.unreported_batches import Unreported, still_current, with_finished
from streamgroups.event_time.watermark import At, latest
from streamgroups.groups.membership import InFlight, Membership
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster, Committed, MetadataStore
from streamgroups.query.alignment import EventTimes
from streamgroups.query.available_offsets import Start
from streamgroups.query.imported_time import ImportedTime, StoredWatermarks
from streamgroups.query.query_ports import Times
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.clock import SteadyClock
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.messages.time import TimeReply, TimeRequest
from streamgroups_spark.source.source_options import SourceOptions

logger = logging.getLogger(__name__)

#: The minimum interval between two polls of an idle source.
_POLL_EVERY_MS = 200
#: The pause after a failed request to the metadata store.
_BACK_OFF_MS = 30_000
#: The minimum interval between two requests for the same observations, unless another batch has ended.
_AGAIN_MS = 1_000
#: How long a read of another group is retried.
_RETRY_TIMEOUT_S = 5.0


class QueryTime(Times):
    """Computes the watermark of one query.

    Args:
        member: the name of the member.
        group_id: its group.
        settings: the event-time settings.
        seen: returns the observations of the tasks of a batch. Called for each batch, in their order, until it returns; once
            for several that have waited. Raises ``QueryUnknown`` if they are not available now.
        metadata_store: the metadata entries of all groups. Not closed here.
        cluster: returns the end offsets of partitions, including open transactions. ``None`` if the query reads uncommitted
            records.
        now_ms: returns milliseconds since the epoch.
        imported: the watermark of another group; ``None`` if the stream imports no watermark.
    """

    def __init__(
        self,
        member: str,
        group_id: str,
        settings: TimeSettings,
        seen: Callable[[InFlight], Iterable[TaskObservation]],
        metadata_store: MetadataStore,
        cluster: Cluster | None,
        now_ms: Clock,
        imported: ImportedTime | None = None,
    ) -> None:
        self._member, self._group_id, self._settings = member, group_id, settings
        self._seen, self._metadata_store, self._cluster, self._now_ms = seen, metadata_store, cluster, now_ms
        self._imported = imported
        self._lock = threading.Lock()
        self._state = SourceTime()
        self._polled: tuple[int, Mapping[TopicPartition, int]] | None = None
        self._metadata_store_off_until_ms: int | None = None
        #: The finished batches without observations, in their order, and when these were last requested in vain.
        self._unreported: tuple[Unreported, ...] = ()
        self._in_vain_ms: int | None = None

    # ---- the thread of the query -------------------------------------------------------------------------------------

    def check(self) -> None:
        """See :meth:`streamgroups.query.query_ports.Times.check`."""
        if self._imported is not None:
            self._imported.check()

    def finished(self, membership: Membership, number: int) -> None:
        """See :meth:`streamgroups.query.query_ports.Times.finished`."""
        gone = self._state.partitions.keys() - membership.owned.keys()
        if gone:
            with self._lock:
                self._state = remove_partitions(self._state, gone)
        positions = {tp: owned.next_offset for tp, owned in membership.owned.items()}
        if not self._unreported:
            self._place(positions)
        batch = membership.in_flight
        if batch is not None and batch.number <= number and batch.ranges:
            self._unreported = with_finished(self._unreported, batch)
        elif self._in_vain_ms is not None and 0 <= self._now_ms() - self._in_vain_ms < _AGAIN_MS:
            return
        self._take_reports(positions)

    def _take_reports(self, positions: Mapping[TopicPartition, int]) -> None:
        """Observes the finished batches, as far as their observations are available."""
        while self._unreported:
            first, *later = self._unreported
            try:
                found = self._seen(first.batch)
            except QueryUnknown as e:
                if self._in_vain_ms is None:
                    logger.warning(
                        "The watermark of group '%s' does not advance until the event times of its last batch arrive: %s",
                        self._group_id,
                        e,
                    )
                self._in_vain_ms = self._now_ms()
                return
            self._unreported = tuple(later)
            seen = observations(still_current(first, later, positions), found)
            self._observe(seen)
            self._write_entries(seen.keys())
        self._in_vain_ms = None

    def polled(self, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """See :meth:`streamgroups.query.query_ports.Times.polled`."""
        if self._unreported:
            # Partitions that are observed without their last batch would be at its end, and could count as idle.
            return
        now_ms = self._now_ms()
        if self._polled is not None:
            at_ms, before = self._polled
            if before == next_offsets and 0 <= now_ms - at_ms < _POLL_EVERY_MS:
                return
        whole = dict(ends)
        if self._cluster is not None:
            # For a read_committed consumer a partition ends before open transactions, whose records become available.
            whole |= self._cluster.high_watermarks([tp for tp, n in next_offsets.items() if n >= ends[tp]])
        self._polled = now_ms, dict(next_offsets)
        # A restart, a reset or a data loss can have changed positions since ``finished``.
        self._place(next_offsets)
        idle = self._idle()
        self._observe({tp: Observation(n, whole[tp]) for tp, n in next_offsets.items()})
        # No member needs this entry to resume. It is for monitoring of the group.
        self._write_entries(idle ^ self._idle())

    def event_times(self) -> EventTimes:
        """See :meth:`streamgroups.query.query_ports.Times.event_times`.

        The records of a partition can be newer than its watermark, if it emits one only every few records.
        """
        generation = self._settings.generation
        delay_ms = 0 if generation is None else generation.delay_ms
        watermarks = {
            tp: time.watermark
            if time.event_time_ms is None
            else latest(time.watermark, At(time.event_time_ms - delay_ms))
            for tp, time in self._state.partitions.items()
        }
        return EventTimes(watermarks, self._idle(), self._state.watermark)

    def _place(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads the stored times of assigned partitions, and of those at another position than the last known one."""
        new = came_in(self._state.partitions, positions)
        if not new:
            return
        committed = self._read(new)
        metadata = {tp: c.metadata for tp, c in committed.items()}
        read = read_entries(event_time_group_of(self._group_id), metadata, lambda _, text: read_time(text))
        known = self._state.partitions

        def time_of(tp: TopicPartition) -> PartitionTime | None:
            if tp in committed:
                return time_of_assigned(read.get(tp), committed[tp].next_offset, positions[tp])
            # Without a stored time, such as without the metadata group, the last known one.
            last = known.get(tp)
            if last is None or last.next_offset is None:
                return None
            return time_of_assigned(last, last.next_offset, positions[tp])

        times = {tp: time_of(tp) or PartitionTime(next_offset=positions[tp]) for tp in new}
        with self._lock:
            self._state = add_partitions(self._state, times)

    def _idle(self) -> set[TopicPartition]:
        timeout_ms = self._settings.partition_idle_timeout_ms
        return {tp for tp, time in self._state.partitions.items() if time.is_idle(timeout_ms)}

    def _observe(self, seen: Mapping[TopicPartition, Observation]) -> None:
        with self._lock:
            self._state = observe(self._state, seen, self._settings, self._now_ms())

    # ---- any thread --------------------------------------------------------------------------------------------------

    def reply_to(self, question: TimeRequest) -> TimeReply:
        """Returns the watermark to a request about its group.

        Raises:
            InvalidOption: if the query expects other settings.
        """
        if question.settings not in (None, self._settings):
            raise InvalidOption(
                f"Two queries of this session read for group '{self._group_id}' with different watermark strategies.",
                remedy="Call with_event_time with the same arguments for both, or use another group.id.",
            )
        with self._lock:
            # The watermark does not fall behind the one that this query emitted before a restart, or by ``importFrom``.
            self._state = advance_to(self._state, question.asserted)
            status = None
            if self._imported is not None:
                self._state = advance_to(self._state, self._imported.watermark())
                status = self._imported.status
            return TimeReply(self._member, self._state, self._settings, self._now_ms(), status)

    # ---- metadata entries --------------------------------------------------------------------------------------------

    def _read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        found: Mapping[TopicPartition, Committed] = {}

        def read(metadata_store: MetadataStore) -> None:
            nonlocal found
            found = metadata_store.read(event_time_group_of(self._group_id), partitions)

        self._try(read)
        return found

    def _write_entries(self, partitions: Collection[TopicPartition]) -> None:
        times = {tp: self._state.partitions[tp] for tp in partitions if tp in self._state.partitions}
        entries = {
            tp: Committed(t.next_offset, write_entry(t, self._settings))
            for tp, t in times.items()
            if t.next_offset is not None
        }
        if entries:
            self._try(lambda metadata_store: metadata_store.write(event_time_group_of(self._group_id), entries))

    def _try(self, use: Callable[[MetadataStore], None]) -> None:
        now_ms = self._now_ms()
        if self._metadata_store_off_until_ms is not None and now_ms < self._metadata_store_off_until_ms:
            return
        self._metadata_store_off_until_ms = None
        try:
            use(self._metadata_store)
        except StreamGroupsError as e:
            self._metadata_store_off_until_ms = now_ms + _BACK_OFF_MS
            logger.warning("The watermark of group '%s' cannot be stored in its metadata group: %s", self._group_id, e)


def imported_time(
    options: SourceOptions, facts: QueryFacts | None, cluster: KafkaCluster, start: Start
) -> ImportedTime | None:
    """Returns the imported watermark of a query; ``None`` if it imports no watermark.

    Args:
        options: the options of the stream.
        facts: the facts about the query; ``None`` if they are unknown.
        cluster: the topics and groups of the cluster.
        start: runs a job in the background.

    Raises:
        InvalidOption: see :func:`import_of`.
    """
    import_from = None if facts is None else import_of(options, facts)
    if facts is None or import_from is None:
        return None
    clock, idle_timeout_ms, generates = SteadyClock(), options.partition_idle_timeout_ms, True
    if facts.time is not None:
        idle_timeout_ms = facts.time.settings.partition_idle_timeout_ms
        generates = facts.time.settings.has_own_watermark
    # A store of its own: a request about another group must not delay those about this one.
    store = KafkaMetadataStore(options.client, retry_timeout_s=_RETRY_TIMEOUT_S)
    reader = StoredWatermarks(cluster, store, clock, idle_timeout_ms)
    return ImportedTime(
        str(options.group_id), import_from, reader.read, reader.close, clock, start, generates=generates
    )


def import_of(options: SourceOptions, facts: QueryFacts) -> str | None:
    """Returns the group whose watermark a query imports; ``None`` if it imports no watermark.

    Args:
        options: the options of the stream.
        facts: the facts about the query.

    Raises:
        InvalidOption: if the stream has the option, and the query has no operator of this library with event time.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "prices", "subscribe": "t", "kafka.bootstrap.servers": "broker:9092", "importFrom": "trades"}
    >>> parsed = parse(options, streaming=True)
    >>> import_of(parsed, QueryFacts(None, frozenset(), stages=frozenset({("windows",)})))
    'trades'
    >>> import_of(parsed, QueryFacts(None, frozenset()))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'importFrom' of group 'prices' has no effect: its query uses neither sg.with_event_time \
nor sg.windows with time='group'. Use one of them, or leave 'importFrom' out.
    """
    if facts.time is not None:
        return facts.time.settings.import_from
    if options.import_from is not None and not facts.stages:
        raise InvalidOption(
            f"Option 'importFrom' of group '{options.group_id}' has no effect: its query uses neither "
            "sg.with_event_time nor sg.windows with time='group'.",
            remedy="Use one of them, or leave 'importFrom' out.",
        )
    return options.import_from
