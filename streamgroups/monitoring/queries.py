"""Running queries, from Spark's events: their positions in their groups, and their lag states.

``streamgroups_spark.ops.metrics_listener`` calls this module with every event. It sends no request to a cluster.
Positions and end offsets are in Spark's progress (:mod:`streamgroups.monitoring.query_progress`), and lag states follow
the rules of ``groups watch`` (:mod:`streamgroups.monitoring.lag_states`). Source: Spark's ``StreamingQueryListener``;
SEMANTICS S2, O3.

A progress of batch *n* proves that batch *n* was planned, that its end offsets were requested then, and that it has
finished. Its positions are committed when Spark requests the next batch: at once or, with a trigger of a minute, within
a minute. So ``committed_offset`` is the start of batch *n* until Spark reports another batch, or that no batch was
available. It is never ahead of the broker, except for the duration of a commit. Lag is counted from the end of the
batch, because processed records are not lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from streamgroups.monitoring.lag_states import WINDOW_MS, LagState, Sample, judge, written_at_ms
from streamgroups.monitoring.query_progress import DedupCounts, QueryProgress
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class QueryPartition:
    """One partition that a query reads.

    Args:
        topic_partition: the partition.
        committed_offset: the next offset of the group that is certainly committed.
        processed_offset: the next offset that the query reads.
        end_offset: the end of the partition when the last batch was planned; ``None`` if it was not requested.
        time_lag_ms: approximately how long the first available record has been waiting; ``None`` if unknown.
        state: its lag state.
    """

    topic_partition: TopicPartition
    committed_offset: int
    processed_offset: int
    end_offset: int | None
    time_lag_ms: int | None
    state: LagState

    @property
    def records(self) -> int | None:
        """The lag in records, as an upper bound."""
        return None if self.end_offset is None else max(self.end_offset - self.processed_offset, 0)


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """A query's part of one group.

    Args:
        group_id: the group.
        members: the ``client.id`` of the query's members: one for each of its sources in this group.
        partitions: the partitions it reads, in order.
        member_ids: the ids of these members in Kafka, as far as they are known. Other queries can have the same ``client.id``.
    """

    group_id: str
    members: frozenset[str]
    partitions: tuple[QueryPartition, ...]
    member_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """One running query.

    Args:
        query_id: stays the same when the query is restarted.
        name: the name that the user has set, or the id.
        progress: its last batch; ``None`` before the first.
        last_event_ms: the time of Spark's last event of it, in milliseconds since the epoch.
        batches: the number of batches that Spark has reported in this run.
        input_rows: the number of rows they read.
        late_records: the number of late records.
        adjusted_records: the number of records whose event time was set to the watermark.
        busy_ms: their total duration.
        groups: its part of each of its groups.
        dedup: the counts of ``sg.dedup``.
        processor: its processor, as ``<instance>.<name>``; empty for a query of a program.
    """

    query_id: str
    name: str
    progress: QueryProgress | None
    last_event_ms: int
    batches: int
    input_rows: int
    late_records: int
    adjusted_records: int
    busy_ms: int
    groups: tuple[QueryGroup, ...]
    dedup: DedupCounts = field(default_factory=DedupCounts)
    processor: str = ""

    @property
    def labels(self) -> tuple[str, str, str]:
        """The values of :data:`~streamgroups.monitoring.metrics.QUERY_LABELS`."""
        return self.name, self.query_id, self.processor


@dataclass(frozen=True, slots=True)
class _Position:
    committed_offset: int
    processed_offset: int
    end_offset: int | None

    def sample(self, time_ms: int) -> Sample | None:
        """Returns a sample for the lag state; ``None`` without an end offset."""
        if self.end_offset is None:
            return None
        return Sample(time_ms, self.processed_offset, max(self.end_offset - self.processed_offset, 0), self.end_offset)


@dataclass(slots=True)
class _Query:
    """The state of one run of a query. The values of its fields are replaced, never changed."""

    query_id: str
    run_id: str
    name: str | None
    last_event_ms: int
    processor: str
    #: Whether its start was observed, so that late events of an earlier run are not attributed to it.
    seen_start: bool
    progress: QueryProgress | None = None
    batches: int = 0
    input_rows: int = 0
    late_records: int = 0
    adjusted_records: int = 0
    busy_ms: int = 0
    dedup: DedupCounts = field(default_factory=DedupCounts)
    positions: dict[str, dict[TopicPartition, _Position]] = field(default_factory=dict)
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    member_ids: dict[str, frozenset[str]] = field(default_factory=dict)
    #: The time of the positions.
    reported_ms: int = 0
    samples: dict[tuple[str, TopicPartition], tuple[Sample, ...]] = field(default_factory=dict)
    sampled_ms: int | None = None


#: The maximum number of samples in a window: a query with ten batches a second would keep thousands.
_SAMPLES = 30


class Queries:
    """The queries of a Spark application. It is not thread-safe.

    Args:
        window_ms: the length of the time window of lag states.
        processors: the processor of each query that has one, by the name of the query.
    """

    def __init__(self, *, window_ms: int = WINDOW_MS, processors: Mapping[str, str] | None = None) -> None:
        self._window_ms = window_ms
        self._processors = {} if processors is None else processors
        self._running: dict[str, _Query] = {}
        #: The number of failed runs, by the query's name (empty without one), its processor and the cause.
        self.failures: Counter[tuple[str, str, str]] = Counter()

    def started(self, query_id: str, run_id: str, name: str | None, now_ms: int) -> None:
        """Handles the start or restart of a query."""
        self._running[query_id] = self._new(query_id, run_id, name, now_ms, seen_start=True)

    def progressed(self, progress: QueryProgress, now_ms: int) -> None:
        """Handles the end of a batch."""
        query = self._of_run(progress.query_id, progress.run_id, progress.name, now_ms)
        if query is None:
            return
        query.progress, query.last_event_ms = progress, now_ms
        query.batches += 1
        query.input_rows += progress.input_rows
        query.late_records += progress.late_records
        query.adjusted_records += progress.adjusted_records
        query.busy_ms += progress.duration_ms or 0
        query.dedup += progress.dedup
        query.positions, query.members, query.member_ids = _positions(progress)
        self._take_samples(query, progress.trigger_ms)

    def idle(self, query_id: str, run_id: str, trigger_ms: int | None, now_ms: int) -> None:
        """Handles a trigger without available records, which proves that the last batch is committed.

        Args:
            query_id: the query.
            run_id: its run.
            trigger_ms: the time of the trigger; ``None`` if Spark did not report it.
            now_ms: the time now.
        """
        query = self._of_run(query_id, run_id, None, now_ms)
        if query is None:
            return
        query.last_event_ms = now_ms
        query.positions = {
            group_id: {tp: replace(p, committed_offset=p.processed_offset) for tp, p in positions.items()}
            for group_id, positions in query.positions.items()
        }
        self._take_samples(query, now_ms if trigger_ms is None else trigger_ms)

    def terminated(self, query_id: str, run_id: str, cause: str | None) -> None:
        """Handles the end of a query, and removes its metrics.

        Args:
            query_id: the query.
            run_id: its run.
            cause: why it failed (:func:`~streamgroups.monitoring.query_progress.cause_of`); ``None`` if it was stopped.
        """
        query = self._running.get(query_id)
        is_this_run = query is not None and query.run_id == run_id
        if cause is not None:
            # A query without a name has a new id at each start, which would create a new time series each time.
            name, processor = ("", "") if query is None else (query.name or "", query.processor)
            self.failures[name, processor, cause] += 1
        if is_this_run:
            del self._running[query_id]

    def copy(self) -> Queries:
        """Returns a copy for another thread, which later changes do not affect. It is fast for any number of queries."""
        same = Queries(window_ms=self._window_ms, processors=self._processors)
        same._running = {query_id: replace(query) for query_id, query in self._running.items()}
        same.failures = self.failures.copy()
        return same

    @property
    def group_ids(self) -> frozenset[str]:
        """The groups that running queries have reported."""
        return frozenset(group_id for query in self._running.values() for group_id in query.positions)

    def watched(self, now_ms: int) -> list[WatchedQuery]:
        """Returns the running queries now, by name."""
        claims = self._claims()
        found = [
            WatchedQuery(
                query_id=q.query_id,
                name=q.name or q.query_id,
                progress=q.progress,
                last_event_ms=q.last_event_ms,
                batches=q.batches,
                input_rows=q.input_rows,
                late_records=q.late_records,
                adjusted_records=q.adjusted_records,
                busy_ms=q.busy_ms,
                groups=tuple(self._groups(q, claims, now_ms)),
                dedup=q.dedup,
                processor=q.processor,
            )
            for q in self._running.values()
        ]
        return sorted(found, key=lambda q: (q.name, q.query_id))

    def _new(self, query_id: str, run_id: str, name: str | None, now_ms: int, *, seen_start: bool) -> _Query:
        return _Query(query_id, run_id, name, now_ms, self._processors.get(name or "", ""), seen_start)

    def _of_run(self, query_id: str, run_id: str, name: str | None, now_ms: int) -> _Query | None:
        """Returns the query if the event is of its current run. A query that started before the listener is added."""
        query = self._running.get(query_id)
        if query is not None and query.run_id == run_id:
            return query
        if query is not None and query.seen_start:
            return None
        self._running[query_id] = query = self._new(query_id, run_id, name, now_ms, seen_start=False)
        return query

    def _take_samples(self, query: _Query, time_ms: int) -> None:
        query.reported_ms = time_ms
        if query.sampled_ms is not None and 0 <= time_ms - query.sampled_ms < self._window_ms / _SAMPLES:
            return
        query.sampled_ms = time_ms
        since_ms = time_ms - self._window_ms
        kept: dict[tuple[str, TopicPartition], tuple[Sample, ...]] = {}
        for group_id, positions in query.positions.items():
            for tp, position in positions.items():
                before = (s for s in query.samples.get((group_id, tp), ()) if s.time_ms >= since_ms)
                sample = position.sample(time_ms)
                kept[group_id, tp] = tuple(before) if sample is None else (*before, sample)
        query.samples = kept

    def _claims(self) -> dict[tuple[str, TopicPartition], str]:
        """Returns the query that owns each partition of each group: the last one that reported it.

        An idle query does not report that it has released a partition.
        """
        claims: dict[tuple[str, TopicPartition], str] = {}
        oldest_first = sorted(self._running.values(), key=lambda q: q.progress.trigger_ms if q.progress else 0)
        for query in oldest_first:
            for group_id, positions in query.positions.items():
                claims.update(dict.fromkeys(((group_id, tp) for tp in positions), query.query_id))
        return claims

    def _groups(
        self, query: _Query, claims: Mapping[tuple[str, TopicPartition], str], now_ms: int
    ) -> Iterator[QueryGroup]:
        for group_id, positions in sorted(query.positions.items()):
            own = {tp: p for tp, p in sorted(positions.items()) if claims[group_id, tp] == query.query_id}
            partitions = tuple(self._partition(query, group_id, tp, p, now_ms) for tp, p in own.items())
            yield QueryGroup(group_id, query.members[group_id], partitions, query.member_ids[group_id])

    def _partition(
        self, query: _Query, group_id: str, tp: TopicPartition, position: _Position, now_ms: int
    ) -> QueryPartition:
        # Spark sends no event while a batch runs, however long it takes. Samples before the window prove nothing any
        # more.
        samples = [s for s in query.samples.get((group_id, tp), ()) if s.time_ms >= now_ms - self._window_ms]
        newest = position.sample(query.reported_ms)
        if newest is not None and query.reported_ms > now_ms - self._window_ms:
            samples = [*(s for s in samples if s.time_ms < newest.time_ms), newest]
        at, end = position.processed_offset, position.end_offset
        time_lag_ms = None
        if end is not None:
            written_ms = now_ms if end <= at else written_at_ms(samples, at)
            time_lag_ms = None if written_ms is None else max(now_ms - written_ms, 0)
        state = judge(samples, owned=True, window_ms=self._window_ms)
        return QueryPartition(tp, position.committed_offset, at, end, time_lag_ms, state)


def _positions(
    progress: QueryProgress,
) -> tuple[dict[str, dict[TopicPartition, _Position]], dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Returns the positions of the query in each of its groups, its members, and their ids."""
    positions: dict[str, dict[TopicPartition, _Position]] = {}
    members: dict[str, frozenset[str]] = {}
    member_ids: dict[str, frozenset[str]] = {}
    for source in progress.sources:
        report = source.report
        if report is None:
            continue
        members[report.group_id] = members.get(report.group_id, frozenset()) | {report.member}
        ids = {report.member_id} if report.member_id else set()
        member_ids[report.group_id] = member_ids.get(report.group_id, frozenset()) | ids
        # While the group revokes a partition, the query owns it and does not read it. Its end is then unknown.
        positions.setdefault(report.group_id, {}).update(
            (tp, _Position(source.first_offsets[tp], next_offset, report.end_offsets.get(tp)))
            for tp, next_offset in source.next_offsets.items()
        )
    return positions, members, member_ids
