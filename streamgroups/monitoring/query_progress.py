"""Parses Spark's progress of a streaming query, and encodes the report of our source in it.

Spark's progress identifies the sources of a query only by their Java class, and does not contain groups. So
:func:`encode_report` adds the group and the member to the end offsets that ``reportLatestOffset`` returns, and Spark
repeats them as ``latestOffset``. The offsets of :mod:`streamgroups.checkpoints.offset` distinguish our sources from
others. ``streamgroups_spark`` calls this module; :mod:`streamgroups.monitoring.queries` uses the result. Source:
Spark's ``StreamingQueryProgress.json``; ``unit_tests/golden`` contains recorded ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from streamgroups.checkpoints.offset import BatchOffset, decode
from streamgroups.errors import OffsetFormat
from streamgroups.json_values import MAX_INT64, items, partition_number, read_json, string, whole, whole_or_none
from streamgroups.partitions import TopicPartition
from streamgroups.supervision.failure_causes import failure_in

#: The prefix of the names under which ``sg.windows`` and ``sg.join`` have Spark observe the counts of their own state.
WINDOW_COUNTS = "streamgroups-windows"
#: The prefix of the names under which ``sg.event_time.split_late`` and ``sg.with_event_time`` have Spark observe late rows.
LATE_COUNTS = "streamgroups-late"
#: The prefix of the names under which ``sg.dedup`` has Spark observe its counts.
DEDUP_COUNTS = "streamgroups-dedup"


@dataclass(frozen=True, slots=True)
class DedupCounts:
    """The counts of ``sg.dedup``.

    Args:
        duplicates: dropped records whose id was seen.
        too_old: dropped records that were older than the horizon.
        filtered: unseen ids for which no stored ids were read, because no Bloom filter matched them.
        false_positives: unseen ids that a Bloom filter matched.
    """

    duplicates: int = 0
    too_old: int = 0
    filtered: int = 0
    false_positives: int = 0

    def __add__(self, other: DedupCounts) -> DedupCounts:
        """The counts of both.

        >>> DedupCounts(1, 2) + DedupCounts(1, 0, 5)
        DedupCounts(duplicates=2, too_old=2, filtered=5, false_positives=0)
        """
        return DedupCounts(
            self.duplicates + other.duplicates,
            self.too_old + other.too_old,
            self.filtered + other.filtered,
            self.false_positives + other.false_positives,
        )


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The report of a source when its batch was planned.

    Args:
        group_id: its group.
        member: the ``client.id`` of its member.
        end_offsets: the ends of the partitions that it owned then.
        member_id: the id of its member in Kafka; empty if it was not known.
    """

    group_id: str
    member: str
    end_offsets: Mapping[TopicPartition, int]
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One of our sources after a batch.

    Args:
        report: its report; ``None`` for a batch that Spark ran again after a restart.
        first_offsets: the position of every partition before the batch.
        next_offsets: the position of every partition after it.
    """

    report: SourceReport | None
    first_offsets: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query after a batch. A value is ``None`` if Spark did not report it.

    Args:
        query_id: stays the same when the query is restarted.
        run_id: changes when the query is restarted.
        name: the name that the user has set.
        trigger_ms: when the batch began, in milliseconds since the epoch.
        batch_id: Spark's number of the batch.
        duration_ms: the duration of the batch.
        phases_ms: the duration of each of its phases, by Spark's names (``addBatch``, ``latestOffset`` ...).
        input_rows: rows read, from all sources.
        input_rows_per_s: the rate at which they arrived, since the batch before.
        processed_rows_per_s: the rate at which they were processed.
        watermark_ms: the event-time watermark.
        state_rows: rows in the query's state.
        state_bytes: the memory of the state.
        late_records: records that were dropped, or emitted as dead letters: late ones, and those without an event time.
        adjusted_records: records before the watermark whose event time was set to the watermark.
        closed_windows: windows that closed, for each key: rows that left the state, or that a state of ``sg.windows``
            emits for the first time.
        sources: our sources.
        dedup: the counts of ``sg.dedup``.
    """

    query_id: str
    run_id: str
    name: str | None
    trigger_ms: int
    batch_id: int
    duration_ms: int | None
    phases_ms: Mapping[str, int]
    input_rows: int
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    watermark_ms: int | None
    state_rows: int | None
    state_bytes: int | None
    late_records: int
    adjusted_records: int
    closed_windows: int
    sources: tuple[SourceProgress, ...]
    dedup: DedupCounts = field(default_factory=DedupCounts)


def encode_report(
    group_id: str,
    member: str,
    end_offsets: Mapping[str, Mapping[str, int]],
    limits: Mapping[str, Any] = MappingProxyType({}),
    direct_records: int | None = None,
    member_id: str = "",
) -> dict[str, Any]:
    """Encodes the report that a source returns when Spark requests its latest offset.

    Args:
        group_id: its group.
        member: the ``client.id`` of its member.
        end_offsets: by topic and partition, as in JSON.
        limits: the limits of the next batch, for users. :func:`decode_report` ignores them.
        direct_records: the records of the last batch that operators with state received directly, also for users; ``None``
            for a query without such an operator.
        member_id: the id of its member in Kafka; empty before it has joined.

    >>> encode_report("board", "carol", {"flights": {"0": 25}})
    {'group': 'board', 'member': 'carol', 'end': {'flights': {'0': 25}}}
    >>> encode_report("board", "carol", {}, direct_records=25)
    {'group': 'board', 'member': 'carol', 'end': {}, 'directRecords': 25}
    """
    direct = {} if direct_records is None else {"directRecords": direct_records}
    ids = {"memberId": member_id} if member_id else {}
    return {"group": group_id, "member": member, **ids, "end": end_offsets, **limits, **direct}


def decode_report(json_object: Any) -> SourceReport | None:
    """Decodes a report; ``None`` if the object is not a report.

    >>> decode_report({"group": "board", "member": "carol", "end": {"flights": {"0": 25}}}).end_offsets
    {TopicPartition(topic='flights', partition=0): 25}
    >>> decode_report({"flights": {"0": 25}}) is None
    True
    """
    try:
        group_id, member = string(json_object["group"]), string(json_object["member"])
        member_id = string(json_object.get("memberId", ""))
        by_topic = items(json_object["end"])
        ends = {TopicPartition(t, partition_number(p)): whole(end) for t, by in by_topic for p, end in items(by)}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return SourceReport(group_id, member, ends, member_id)


def read_progress(text: str) -> QueryProgress:
    """Parses the JSON of a progress.

    Raises:
        ValueError: the text is not a progress.
    """
    try:
        progress: dict[str, Any] = read_json(text)
        trigger_ms = read_time_ms(progress["timestamp"])
        if trigger_ms is None:
            raise ValueError(progress["timestamp"])
        operators = progress.get("stateOperators") or []
        observed = progress.get("observedMetrics") or {}
        counts, late = _counts(observed, WINDOW_COUNTS), _counts(observed, LATE_COUNTS)
        # The state of these operators contains their own rows, with many windows in each.
        windows = [] if counts else operators
        return QueryProgress(
            query_id=str(progress["id"]),
            run_id=str(progress["runId"]),
            name=None if progress.get("name") is None else string(progress["name"], most=len(text)),
            trigger_ms=trigger_ms,
            batch_id=whole(progress["batchId"]),
            duration_ms=_signed(progress.get("batchDuration")),
            phases_ms={name: whole(ms, least=-MAX_INT64) for name, ms in items(progress.get("durationMs") or {})},
            input_rows=whole(progress.get("numInputRows") or 0),
            # Spark omits values that are not numbers: the rates of a batch with a duration of 0.
            input_rows_per_s=_rate(progress.get("inputRowsPerSecond")),
            processed_rows_per_s=_rate(progress.get("processedRowsPerSecond")),
            # Before the first watermark Spark reports the start of 1970.
            watermark_ms=read_time_ms((progress.get("eventTime") or {}).get("watermark")) or None,
            state_rows=_signed(sum(operator["numRowsTotal"] for operator in operators) if operators else None),
            state_bytes=_signed(sum(operator["memoryUsedBytes"] for operator in operators) if operators else None),
            late_records=whole(_sum(operators, "numRowsDroppedByWatermark") + _sum([*counts, *late], "late")),
            adjusted_records=whole(_sum(late, "adjusted")),
            closed_windows=whole(_sum(windows, "numRowsRemoved") + _sum(counts, "closed")),
            sources=tuple(_own_sources(progress.get("sources") or [])),
            dedup=_dedup_counts(_counts(observed, DEDUP_COUNTS)),
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a progress event of a query: {type(e).__name__}: {e}") from e


def _signed(value: Any) -> int | None:
    return whole_or_none(value, least=-MAX_INT64)


def _rate(value: Any) -> float | None:
    """Returns a rate, which Spark writes with or without a fraction."""
    return value if value is None or isinstance(value, float) else float(whole(value))


def _counts(observed: Mapping[str, Any], prefix: str) -> list[Mapping[str, Any]]:
    """Returns the counts that Spark observes under names with a prefix."""
    return [counts for name, counts in observed.items() if name.startswith(prefix) and counts]


def _dedup_counts(observed: list[Mapping[str, Any]]) -> DedupCounts:
    names = (it.name for it in fields(DedupCounts))
    return DedupCounts(*(whole(_sum(observed, name)) for name in names))


def _sum(of: Iterable[Mapping[str, Any]], name: str) -> int:
    # Spark's sum of no rows is null.
    return sum(it.get(name) or 0 for it in of)


def _own_sources(sources: list[Mapping[str, Any]]) -> Iterator[SourceProgress]:
    for source in sources:
        try:
            end = decode(_unpacked(source.get("endOffset")))
        except OffsetFormat:
            continue
        # A batch can read nothing from this source. The source is then at the end of its last batch.
        start = _unpacked(source.get("startOffset"))
        idle = isinstance(start, dict) and start.get("n") == end.number
        report = decode_report(_unpacked(source.get("latestOffset")))
        yield SourceProgress(report, end.next_offsets if idle else _first_offsets(end), end.next_offsets)


def _unpacked(offset: Any) -> Any:
    """Returns an offset, which Spark writes as JSON or as a text that contains JSON."""
    if isinstance(offset, str):
        try:
            return read_json(offset)
        except ValueError:
            return None
    return offset


def _first_offsets(end: BatchOffset) -> dict[TopicPartition, int]:
    return {**end.resting, **{r.topic_partition: r.next_offset for r in end.ranges}}


def read_time_ms(timestamp: str | None) -> int | None:
    """Returns the milliseconds since the epoch of a Spark timestamp, which is always UTC; ``None`` if it is invalid.

    >>> read_time_ms("2013-01-01T10:00:00.250Z")
    1357034400250
    """
    if timestamp is None:
        return None
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return round(datetime.strptime(timestamp, form).replace(tzinfo=timezone.utc).timestamp() * 1000)
        except ValueError:
            continue
    return None


_JAVA = re.compile(r"\b(?:[a-z_][\w]*\.)+([A-Z]\w*(?:Exception|Error))\b")


def cause_of(exception: str | None, error_class: str | None) -> str | None:
    """Returns why a query was terminated, in one word without any of its data; ``None`` if it was stopped.

    Args:
        exception: the text of the exception, including the Python traceback.
        error_class: Spark's name of the error condition.

    >>> cause_of("streamgroups.errors.DataLoss: Records are gone ...", "STREAM_FAILED")
    'data_loss'
    >>> cause_of("org.apache.spark.SparkException: Job aborted", None)
    'SparkException'
    >>> cause_of(None, None) is None
    True
    """
    if exception is None:
        return None
    own_code = failure_in(exception).code
    if own_code is not None:
        return own_code
    java = _JAVA.findall(exception)
    return error_class or (java[-1] if java else "unknown")
