"""What Spark says of a streaming query after each batch, and what our source tells Spark to say.

Spark's progress names a query's sources only by their Java class, and knows nothing of groups. So :func:`encode_report` puts the group and
the member beside the end offsets that ``reportLatestOffset`` returns, which Spark repeats as ``latestOffset``; and our sources are told
from others by the offsets that :mod:`streamgroups.checkpoints.offset` writes. Called by ``streamgroups_spark``; judged by
:mod:`streamgroups.monitoring.queries`. Source: Spark's ``StreamingQueryProgress.json``; ``golden/`` in the unit tests has recorded ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from streamgroups.checkpoints.offset import BatchOffset, decode
from streamgroups.errors import OffsetFormat
from streamgroups.json_values import MAX_INT64, items, partition_number, read_json, string, whole, whole_or_none
from streamgroups.partitions import TopicPartition
from streamgroups.supervision.failures import failure_in

#: How the names begin under which ``sg.windows`` has Spark observe what its own state counts.
WINDOW_COUNTS = "streamgroups-windows"


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What a source has told of itself when its batch was planned.

    Args:
        group_id: its group.
        member: the ``client.id`` of its member.
        end_offsets: where the partitions it owned ended then.
    """

    group_id: str
    member: str
    end_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One of our sources after a batch.

    Args:
        report: what it has told; ``None`` for a batch that Spark ran again after a restart.
        first_offsets: the position of every partition before the batch.
        next_offsets: the same after it.
    """

    report: SourceReport | None
    first_offsets: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query after a batch, as far as Spark knows: what is ``None`` it has not said.

    Args:
        query_id: stays the same when the query is restarted.
        run_id: does not.
        name: what the user has called the query.
        trigger_ms: when the batch was begun, in milliseconds since the epoch.
        batch_id: Spark's number of the batch.
        duration_ms: how long the batch took.
        phases_ms: how long each of its phases took, by Spark's names (``addBatch``, ``latestOffset`` ...).
        input_rows: rows read, from all sources.
        input_rows_per_s: how fast they arrived, since the batch before.
        processed_rows_per_s: how fast they were processed.
        watermark_ms: the event-time watermark.
        state_rows: rows in the query's state.
        state_bytes: what the state takes in memory.
        late_records: records that were dropped, or came out as dead letters, because they were late.
        closed_windows: windows that closed, each key's own: rows that left the state, or are told for the first time by a state of ``sg.windows``.
        sources: those that are ours.
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
    closed_windows: int
    sources: tuple[SourceProgress, ...]


def encode_report(group_id: str, member: str, end_offsets: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What a source answers when Spark asks how far it could read.

    Args:
        group_id: its group.
        member: the ``client.id`` of its member.
        end_offsets: by topic and partition, as JSON has them.

    >>> encode_report("board", "carol", {"flights": {"0": 25}})
    {'group': 'board', 'member': 'carol', 'end': {'flights': {'0': 25}}}
    """
    return {"group": group_id, "member": member, "end": end_offsets}


def decode_report(json_object: Any) -> SourceReport | None:
    """Reads it back; ``None`` if it is none.

    >>> decode_report({"group": "board", "member": "carol", "end": {"flights": {"0": 25}}}).end_offsets
    {TopicPartition(topic='flights', partition=0): 25}
    >>> decode_report({"flights": {"0": 25}}) is None
    True
    """
    try:
        group_id, member = string(json_object["group"]), string(json_object["member"])
        by_topic = items(json_object["end"])
        ends = {TopicPartition(t, partition_number(p)): whole(end) for t, by in by_topic for p, end in items(by)}
    except (KeyError, TypeError, ValueError):
        return None
    return SourceReport(group_id, member, ends)


def read_progress(text: str) -> QueryProgress:
    """Understands the JSON of a progress.

    Raises:
        ValueError: it is none.
    """
    try:
        progress: dict[str, Any] = read_json(text)
        trigger_ms = read_time_ms(progress["timestamp"])
        if trigger_ms is None:
            raise ValueError(progress["timestamp"])
        operators = progress.get("stateOperators") or []
        counts = list(_window_counts(progress.get("observedMetrics") or {}))
        # What these have in their state are their own rows, many windows in each.
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
            # Spark leaves out what is not a number: the rates of a batch that took no time.
            input_rows_per_s=_rate(progress.get("inputRowsPerSecond")),
            processed_rows_per_s=_rate(progress.get("processedRowsPerSecond")),
            # Before the first watermark Spark says 1970.
            watermark_ms=read_time_ms((progress.get("eventTime") or {}).get("watermark")) or None,
            state_rows=_signed(sum(operator["numRowsTotal"] for operator in operators) if operators else None),
            state_bytes=_signed(sum(operator["memoryUsedBytes"] for operator in operators) if operators else None),
            late_records=whole(_sum(operators, "numRowsDroppedByWatermark") + _sum(counts, "late")),
            closed_windows=whole(_sum(windows, "numRowsRemoved") + _sum(counts, "closed")),
            sources=tuple(_ours(progress.get("sources") or [])),
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a progress event of a query: {type(e).__name__}: {e}") from e


def _signed(value: Any) -> int | None:
    return whole_or_none(value, least=-MAX_INT64)


def _rate(value: Any) -> float | None:
    """Spark writes a rate as a number with or without a fraction."""
    return value if value is None or isinstance(value, float) else float(whole(value))


def _window_counts(observed: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What each ``sg.windows`` with a state of its own has counted."""
    return (counts for name, counts in observed.items() if name.startswith(WINDOW_COUNTS) and counts)


def _sum(of: Iterable[Mapping[str, Any]], name: str) -> int:
    # Of nothing Spark's sum is null.
    return sum(it.get(name) or 0 for it in of)


def _ours(sources: list[Mapping[str, Any]]) -> Iterator[SourceProgress]:
    for source in sources:
        try:
            end = decode(_unpacked(source.get("endOffset")))
        except OffsetFormat:
            continue
        # A batch may read from another source only, or nothing: then this one is where its last batch ended.
        start = _unpacked(source.get("startOffset"))
        idle = isinstance(start, dict) and start.get("n") == end.number
        report = decode_report(_unpacked(source.get("latestOffset")))
        yield SourceProgress(report, end.next_offsets if idle else _first_offsets(end), end.next_offsets)


def _unpacked(offset: Any) -> Any:
    """Spark writes an offset as the JSON it is, or as a text that holds it."""
    if isinstance(offset, str):
        try:
            return read_json(offset)
        except ValueError:
            return None
    return offset


def _first_offsets(end: BatchOffset) -> dict[TopicPartition, int]:
    return {**end.resting, **{r.topic_partition: r.next_offset for r in end.ranges}}


def read_time_ms(timestamp: str | None) -> int | None:
    """Milliseconds since the epoch of a time as Spark writes it, always in UTC; ``None`` if it is no time.

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
    """Why a query was terminated, in one word that says nothing of its data; ``None`` if it was stopped.

    Args:
        exception: the text of the exception, Python's traceback included.
        error_class: Spark's name of the condition.

    >>> cause_of("pyspark...\\nstreamgroups.errors.DataLoss: Records are gone ...", "STREAM_FAILED")
    'data_loss'
    >>> cause_of("org.apache.spark.SparkException: Job aborted", None)
    'SparkException'
    >>> cause_of(None, None) is None
    True
    """
    if exception is None:
        return None
    ours = failure_in(exception).code
    if ours is not None:
        return ours
    java = _JAVA.findall(exception)
    return error_class or (java[-1] if java else "unknown")
