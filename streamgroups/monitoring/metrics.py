"""The Prometheus metrics of groups and queries: names, labels and meanings of all exported metrics.

``streamgroups metrics`` (:mod:`streamgroups_admin.reports.exporter`) and ``sg.reports.MetricsListener`` use it, so that both
export the same values under the same names. Series of the latter also have the labels ``query`` and ``query_id``. The label
``processor`` is ``<instance>.<name>``, and empty for a group or a query without a processor: Prometheus drops an empty label.
Source: Prometheus' naming practices (base units, a suffix for the unit). An unknown value has no sample, because a 0 or
the last known value would be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.groups.gaps import Cause, Gaps
from streamgroups.groups.lag import maximum, total
from streamgroups.groups.offset_audit import GroupAudit
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.monitor import WatchedGroup, WatchedPartition
from streamgroups.monitoring.queries import QueryGroup, QueryPartition, WatchedQuery
from streamgroups.partitions import Bounds, TopicPartition

MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """The metrics of one partition in one group; ``None`` where a value is unknown. See :data:`_OF_PARTITIONS`."""

    topic_partition: TopicPartition
    state: LagState
    lag_records: int | None = None
    lag_ms: int | None = None
    committed_offset: int | None = None
    processed_offset: int | None = None
    beginning_offset: int | None = None
    end_offset: int | None = None
    lost_records: int | None = None
    lag_exact: bool | None = None
    open_records: int | None = None
    #: Whether the group has a committed offset here, and its lag is unknown.
    is_lag_unknown: bool = False


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The metrics of one group, or of a query's part of it.

    Args:
        labels: the values of the labels that all its series have.
        members: the number of its live members; ``None`` if unknown.
        state: Kafka's name of its state, or ``None``.
        partitions: its partitions.
        gaps: the recorded gaps of its partitions.
    """

    labels: tuple[str, ...]
    members: int | None
    state: str | None
    partitions: tuple[PartitionFigures, ...]
    gaps: Mapping[TopicPartition, Gaps] = field(default_factory=dict)

    @property
    def lag_records(self) -> int | None:
        """The lag of all partitions in records, without those whose lag is unknown."""
        return total([p.lag_records for p in self.partitions])

    @property
    def open_records(self) -> int | None:
        """The records after the last stable offsets of all partitions; ``None`` if that is unknown for all of them."""
        known = [p.open_records for p in self.partitions if p.open_records is not None]
        return sum(known) if known else None

    @property
    def lag_ms(self) -> int | None:
        """The maximum time lag; ``None`` if that of a partition with a position is unknown."""
        return maximum([p.lag_ms for p in self.partitions if p.lag_records is not None or p.is_lag_unknown])


_OF_PARTITIONS: Mapping[str, tuple[str, Callable[[PartitionFigures], float | None]]] = {
    "lag_records": ("Lag of the partition in records, an upper bound.", lambda p: p.lag_records),
    "lag_exact": (
        "1 if the lag is exact; 0 if it may count transaction markers, gaps or aborted records.",
        lambda p: None if p.lag_exact is None else float(p.lag_exact),
    ),
    "open_records": ("Records after the last stable offset, which the lag does not include.", lambda p: p.open_records),
    "lag_seconds": ("Age of the first record that the group has not read.", lambda p: _seconds(p.lag_ms)),
    "committed_offset": ("Next offset that the group reads.", lambda p: p.committed_offset),
    "processed_offset": ("Next offset that the query reads.", lambda p: p.processed_offset),
    "beginning_offset": ("Earliest offset.", lambda p: p.beginning_offset),
    "end_offset": ("Offset after the last record.", lambda p: p.end_offset),
    "lost_records": ("Offsets that were deleted before the group read them.", lambda p: p.lost_records),
}
GROUP_LABELS = ("group", "processor")
QUERY_LABELS = ("query", "query_id", "processor")
#: The labels of a query's part of a group.
QUERY_GROUP_LABELS = ("group", *QUERY_LABELS)


def watched_group(group: WatchedGroup, processor: str = "") -> GroupFigures:
    """Returns the metrics of a group from a poll of the cluster.

    Args:
        group: the group.
        processor: its processor; empty without one.
    """
    description = group.snapshot.description
    return GroupFigures(
        (description.group_id, processor),
        len(description.members),
        description.state,
        tuple(_watched_partition(p) for p in group.partitions),
        group.gaps,
    )


def _watched_partition(partition: WatchedPartition, processed_offset: int | None = None) -> PartitionFigures:
    lag = partition.lag
    return PartitionFigures(
        lag.topic_partition,
        partition.state,
        lag.records,
        partition.time_lag_ms,
        lag.committed_offset,
        processed_offset,
        lag.bounds.beginning_offset if isinstance(lag.bounds, Bounds) else None,
        lag.end_offset,
        lag.lost_records,
        None if lag.records is None else lag.is_exact,
        lag.open_records,
        lag.is_unknown,
    )


def query_group(query: WatchedQuery, group: QueryGroup, polled: WatchedGroup | None = None) -> GroupFigures:
    """Returns the metrics of a query's part of a group.

    Args:
        query: the query.
        group: its part of the group, from its progress.
        polled: the same group from the last poll of the cluster, if any. Its values take precedence.
    """
    labels = (group.group_id, *query.labels)
    if polled is None:
        return GroupFigures(labels, None, None, tuple(map(_reported_partition, group.partitions)))
    found = {p.lag.topic_partition: p for p in polled.partitions}
    owners = polled.snapshot.description.owners
    # A member that has released a partition reports that only with its next batch; the cluster reports it at once.
    is_own = _recognizes(group, polled.snapshot.description)
    own = [p for p in group.partitions if (m := owners.get(p.topic_partition)) is None or is_own(m)]
    partitions = (
        _watched_partition(found[p.topic_partition], p.processed_offset)
        if p.topic_partition in found
        else _reported_partition(p)
        for p in own
    )
    description = polled.snapshot.description
    gaps = {p.topic_partition: polled.gaps[p.topic_partition] for p in own if p.topic_partition in polled.gaps}
    return GroupFigures(labels, len(description.members), description.state, tuple(partitions), gaps)


def _recognizes(group: QueryGroup, description: GroupDescription) -> Callable[[GroupMember], bool]:
    """Returns how the members of a query are recognized: by their ids, since other queries can have the same ``client.id``.

    A member has another id after each join. The report or the poll can be older than it, and then the ``client.id`` decides.
    """
    are_current = group.member_ids <= {m.member_id for m in description.members}
    if are_current and len(group.member_ids) >= max(1, len(group.members)):
        return lambda member: member.member_id in group.member_ids
    return lambda member: member.client_id in group.members


def _reported_partition(p: QueryPartition) -> PartitionFigures:
    return PartitionFigures(
        p.topic_partition,
        p.state,
        lag_records=p.records,
        lag_ms=p.time_lag_ms,
        committed_offset=p.committed_offset,
        processed_offset=p.processed_offset,
        end_offset=p.end_offset,
        # Offsets in between can be without records.
        lag_exact=None if p.records is None else p.records == 0,
    )


def group_metrics(groups: Iterable[GroupFigures], labels: Sequence[str] = GROUP_LABELS) -> Iterator[Metric]:
    """Returns the metrics of whole groups.

    Args:
        groups: the groups.
        labels: the names of the labels whose values the groups contain.
    """

    def gauge(name: str, text: str, more: Sequence[str] = ()) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"streamgroups_group_{name}", text, labels=[*labels, *more])

    members = gauge("members", "Number of members.")
    state = gauge("state", "1 for the current state of the group, by Kafka's name.", ["state"])
    lag = gauge("lag_records", "Lag of the group in records, an upper bound; without partitions whose lag is unknown.")
    open_ = gauge("open_records", "Records after the last stable offsets, which the lag does not include.")
    lag_s = gauge("lag_seconds", "Age of the first record that the group has not read. No sample if a lag is unknown.")
    partitions = gauge("partitions", "Number of partitions by lag state.", ["lag_state"])
    for g in groups:
        _add(members, g.labels, g.members)
        if g.state is not None:
            state.add_metric([*g.labels, g.state], 1)
        counted = Counter(p.state for p in g.partitions)
        for lag_state in LagState:
            partitions.add_metric([*g.labels, lag_state.value], counted[lag_state])
        _add(lag, g.labels, g.lag_records)
        _add(open_, g.labels, g.open_records)
        _add(lag_s, g.labels, _seconds(g.lag_ms))
    return iter((members, state, lag, open_, lag_s, partitions))


def partition_metrics(groups: Iterable[GroupFigures], labels: Sequence[str] = GROUP_LABELS) -> Iterator[Metric]:
    """Returns the metrics of the groups' partitions. Metrics without any known value are omitted."""
    families = {
        name: GaugeMetricFamily(f"streamgroups_partition_{name}", text, labels=[*labels, "topic", "partition"])
        for name, (text, _) in _OF_PARTITIONS.items()
    }
    for g in groups:
        for p in g.partitions:
            of_partition = [*g.labels, p.topic_partition.topic, str(p.topic_partition.partition)]
            for name, (_, value_of) in _OF_PARTITIONS.items():
                _add(families[name], of_partition, value_of(p))
    return (family for family in families.values() if family.samples)


#: The label of gaps that a newer version has recorded.
_UNKNOWN_CAUSE = "unknown"


def gap_metrics(groups: Iterable[GroupFigures], labels: Sequence[str] = GROUP_LABELS) -> Iterator[Metric]:
    """Returns the metrics of recorded gaps, by cause (:mod:`streamgroups.groups.gaps`).

    Args:
        groups: the groups.
        labels: the names of the labels whose values the groups contain.
    """
    names = [*labels, "topic", "partition", "cause"]
    count = CounterMetricFamily("streamgroups_partition_gaps", "Recorded gaps.", labels=names)
    lost = CounterMetricFamily(
        "streamgroups_partition_gap_lost_offsets",
        "Offsets that expired before the group read them, by its recorded gaps.",
        labels=names,
    )
    for g in groups:
        for tp, gaps in g.gaps.items():
            of_partition = [*g.labels, tp.topic, str(tp.partition)]
            for cause, n in gaps.counts.items():
                count.add_metric([*of_partition, cause.value], n)
            if gaps.unknown_count:
                count.add_metric([*of_partition, _UNKNOWN_CAUSE], gaps.unknown_count)
            if Cause.EXPIRED in gaps.counts:
                lost.add_metric([*of_partition, Cause.EXPIRED.value], gaps.lost_offsets)
    return (family for family in (count, lost) if family.samples)


_OF_QUERIES: Mapping[str, tuple[str, Callable[[WatchedQuery], float | None]]] = {
    "input_rows_per_second": (
        "Arrival rate of rows before the last batch, from all sources.",
        lambda q: q.progress.input_rows_per_s if q.progress else None,
    ),
    "processed_rows_per_second": (
        "Processing rate of the last batch.",
        lambda q: q.progress.processed_rows_per_s if q.progress else None,
    ),
    "batch_duration_seconds": (
        "Duration of the last batch.",
        lambda q: _seconds(q.progress.duration_ms) if q.progress else None,
    ),
    "batch_id": ("Spark's id of the last batch.", lambda q: q.progress.batch_id if q.progress else None),
    "trigger_timestamp_seconds": (
        "Start time of the last batch.",
        lambda q: _seconds(q.progress.trigger_ms) if q.progress else None,
    ),
    "last_event_timestamp_seconds": ("Time of Spark's last event of the query.", lambda q: _seconds(q.last_event_ms)),
    "watermark_timestamp_seconds": (
        "Event-time watermark.",
        lambda q: _seconds(q.progress.watermark_ms) if q.progress else None,
    ),
    "state_rows": ("Rows in the state of the query.", lambda q: q.progress.state_rows if q.progress else None),
    "state_memory_bytes": (
        "Memory used by the state of the query.",
        lambda q: q.progress.state_bytes if q.progress else None,
    ),
}
_COUNTS_OF_QUERIES: Mapping[str, tuple[str, Callable[[WatchedQuery], float]]] = {
    "batches": ("Finished batches.", lambda q: q.batches),
    "input_rows": ("Rows read, from all sources.", lambda q: q.input_rows),
    "late_records": ("Late records, and records without an event time, that were dropped.", lambda q: q.late_records),
    "adjusted_records": (
        "Records before the watermark whose event time was set to the watermark.",
        lambda q: q.adjusted_records,
    ),
    "duplicate_records": ("Duplicates that sg.dedup dropped.", lambda q: q.dedup.duplicates),
    "too_old_records": ("Records older than the horizon, that sg.dedup dropped.", lambda q: q.dedup.too_old),
    "id_lookups_avoided": ("Unseen ids for which sg.dedup read no stored ids.", lambda q: q.dedup.filtered),
    "id_false_positives": (
        "Unseen ids that a Bloom filter of sg.dedup matched.",
        lambda q: q.dedup.false_positives,
    ),
    "batch_seconds": ("Total duration of batches.", lambda q: q.busy_ms / MS_PER_S),
}


def query_metrics(queries: Iterable[WatchedQuery], failures: Mapping[tuple[str, str, str], int]) -> Iterator[Metric]:
    """Returns the metrics of queries.

    Args:
        queries: the running queries.
        failures: the number of failed runs, by name, processor and cause.
    """
    queries = list(queries)
    for name, (text, value_of) in _OF_QUERIES.items():
        gauge = GaugeMetricFamily(f"streamgroups_query_{name}", text, labels=QUERY_LABELS)
        for q in queries:
            _add(gauge, q.labels, value_of(q))
        yield gauge
    for name, (text, count_of) in _COUNTS_OF_QUERIES.items():
        counter = CounterMetricFamily(f"streamgroups_query_{name}", text, labels=QUERY_LABELS)
        for q in queries:
            counter.add_metric(q.labels, count_of(q))
        yield counter
    phases = GaugeMetricFamily(
        "streamgroups_query_phase_duration_seconds",
        "Duration of each phase of the last batch, by Spark's names.",
        labels=[*QUERY_LABELS, "phase"],
    )
    for q in queries:
        for phase, duration_ms in q.progress.phases_ms.items() if q.progress else ():
            phases.add_metric([*q.labels, phase], duration_ms / MS_PER_S)
    yield phases
    labels = ["query", "processor", "cause"]
    failed = CounterMetricFamily("streamgroups_query_failures", "Failed queries.", labels=labels)
    for of_query, count in failures.items():
        failed.add_metric(of_query, count)
    yield failed


def output_metrics(
    letters: Mapping[str, Mapping[str, int]],
    statements: Mapping[str, Mapping[str, int]],
    queries: Iterable[WatchedQuery],
) -> Iterator[Metric]:
    """Yields the metrics of dead letters and of divided batches.

    Args:
        letters: the number of dead letters by query id and step.
        statements: the number of statements of divided batches by query id and way.
        queries: the running queries.
    """
    watched = list(queries)
    for name, text, label, counts in (
        ("dead_letters", "Dead letters that were written.", "step", letters),
        ("divided_statements", "Statements of batches that a table cannot write at once.", "way", statements),
    ):
        metric = CounterMetricFamily(f"streamgroups_query_{name}", text, labels=[*QUERY_LABELS, label])
        for q in watched:
            for value, count in sorted(counts.get(q.query_id, {}).items()):
                metric.add_metric([*q.labels, value], count)
        yield metric


def audit_metrics(
    audits: Iterable[GroupAudit], time_ms: int | None, processors: Collection[str] = ()
) -> Iterator[Metric]:
    """Yields the metrics of the last audit.

    Args:
        audits: the audited groups.
        time_ms: the time of the audit, in milliseconds since the epoch; ``None`` before the first one.
        processors: the groups of processors.
    """
    offsets = GaugeMetricFamily(
        "streamgroups_group_audit_offsets",
        "Offsets in the window of the last audit, by verdict.",
        labels=[*GROUP_LABELS, "verdict"],
    )
    complete = GaugeMetricFamily(
        "streamgroups_group_audit_complete",
        "1 if each offset of the window has a verdict that is not unknown, else 0.",
        labels=GROUP_LABELS,
    )
    for found in audits:
        labels = (found.group_id, found.group_id if found.group_id in processors else "")
        for verdict, count in found.counts.items():
            offsets.add_metric([*labels, verdict.value], count)
        complete.add_metric(labels, float(found.is_complete))
    last = GaugeMetricFamily("streamgroups_last_audit_timestamp_seconds", "Time of the last successful audit.")
    if time_ms is not None:
        last.add_metric([], time_ms / MS_PER_S)
    yield from (offsets, complete, last)


def _add(family: GaugeMetricFamily, labels: Sequence[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / MS_PER_S
