"""The page of the reference about the options of the source and the sink, with the defaults of their parsers.

``reference`` calls it. A default is the value that the parser returns when the option is missing. A test compares the names
with those that the parsers accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from markup import heading, table

from streamgroups.durations import exact
from streamgroups_spark.sinks.sink_options import parse_sink
from streamgroups_spark.source.source_options import parse

_INTRODUCTION = """\
Names are case-insensitive. Unknown options are rejected. ``kafka.*`` options configure the clients;
`security.rst <../security.rst>`_ has those of TLS, logins and tokens.

"""
_SOURCE = """\
`source.rst <../source.rst>`_ explains them. Exactly one of ``subscribe``, ``subscribePattern`` and ``assign`` is required.

"""
_SINK = """\
`sinks.rst <../sinks.rst>`_ explains them. ``connection`` or ``kafka.bootstrap.servers`` is required.

"""
_READ = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
_WRITE = {"kafka.bootstrap.servers": "broker:9092", "checkpointLocation": "/data/board"}

#: By name: the attribute of the parsed options with the default, or the default as text; the type; the meaning.
SOURCE: Mapping[str, tuple[str, str, str]] = {
    "connection": ("", "text", "The name of a connection of type ``kafka``."),
    "subscribe": ("", "topics, separated by commas", "The topics to read."),
    "subscribePattern": ("", "regular expression", "The topics to read, by a pattern."),
    "assign": ("", "JSON", "The partitions to read, without sharing."),
    "group.id": ("", "text", "The consumer group. Required in streams. ``kafka.group.id`` is a synonym."),
    "groupIdPrefix": (".group_id_prefix", "text", "The prefix of the group id of a batch read without ``group.id``."),
    "membership": (".mode", "``shared``, ``exclusive``", "Whether other queries of the group can own partitions."),
    "onRestart": (
        "``group``; with ``exclusive`` ``checkpoint``",
        "``group``, ``checkpoint``, ``fail``",
        "Which position is used if checkpoint and group differ.",
    ),
    "onOtherProgram": (
        ".on_other_program",
        "``fail``, ``continue``",
        "What happens if the group, or the checkpoint, belongs to another program.",
    ),
    "leaseTimeout": (
        "12 times ``kafka.max.poll.interval.ms``; off with ``exclusive``",
        "duration, ``off``",
        "The time after which a batch that hangs costs the query its partitions.",
    ),
    "maxGroupsPerTopic": (
        ".max_groups_per_topic",
        "number",
        "How many groups can read a topic before a new one starts.",
    ),
    "historyDir": (".history_dir", "directory", "Where the history of the member is written."),
    "startingOffsets": (
        "``latest``; in a batch read ``earliest``",
        "``earliest``, ``latest``, JSON",
        "The start of a group without committed offsets.",
    ),
    "startingTimestamp": ("", "time", "The start of a group without committed offsets."),
    "startingOffsetsByTimestamp": ("", "JSON", "As in Spark."),
    "startingOffsetsByTimestampStrategy": ("``error``", "``error``, ``latest``", "As in Spark."),
    "endingOffsets": ("``latest``", "``latest``, JSON", "The end of a batch read."),
    "endingTimestamp": ("", "time", "The end of a batch read."),
    "endingOffsetsByTimestamp": ("", "JSON", "The end of a batch read."),
    "maxOffsetsPerTrigger": (".limits.max_offsets", "number", "The maximum number of offsets in a batch."),
    "minOffsetsPerTrigger": (".limits.min_offsets", "number", "The number of offsets for which a batch waits."),
    "maxTriggerDelay": ("``15m``", "duration", "How long a batch waits for ``minOffsetsPerTrigger``."),
    "targetBatchTime": ("off", "duration", "The maximum duration of a batch."),
    "maxDrift": ("off", "duration", "How far a partition can be ahead of the watermark."),
    "minPartitions": (".min_tasks", "number", "The minimum number of tasks of a batch."),
    "maxRecordsPerPartition": (".max_task_offsets", "number", "The maximum number of offsets in a task."),
    "onDataLoss": (
        "``fail``",
        "``fail``, ``skip``, ``earliest``, JSON",
        "How the query continues if the records at its position are deleted.",
    ),
    "failOnDataLoss": ("``true``", "``true``, ``false``", "Spark's form of ``onDataLoss``."),
    "stateLocation": (
        "``streamgroups-state`` beside the checkpoint",
        "path, URI",
        "Where the state of partitions is stored.",
    ),
    "stateRetention": (".states.retention_ms", "duration", "How far back a reset keeps its state."),
    "onAddedPartitions": (
        ".states.on_added_partitions",
        "``fail``, ``continue``",
        "What happens to a query with state if a topic gets more partitions.",
    ),
    "onMissingState": (".states.on_missing", "``fail``, ``empty``", "What happens if a position has no state."),
    "directRecords": (
        ".direct_records",
        "``true``, ``false``",
        "Whether readers pass records to an operator with state directly. ``false``: through Spark.",
    ),
    "stateCopies": (
        ".state_copies",
        "``true``, ``false``",
        "Whether executors copy state files of an object store to their local disks.",
    ),
    "emitEvery": ("", "duration", "How often ``sg.with_event_time`` emits a watermark."),
    "watermarkDelay": (".watermark_delay_ms", "duration", "The delay of the watermark."),
    "importFrom": (".import_from", "group", "The group whose watermark this stream uses."),
    "partitionIdleTimeout": (".partition_idle_timeout_ms", "duration", "When a partition without records is idle."),
    "onViolation": (".on_violation", "", "How records behind the watermark are handled."),
    "columns": ("all", "columns, separated by commas", "The columns to read. Spark and the task process no others."),
    "includeHeaders": (".include_headers", "``true``, ``false``", "Adds the column ``headers``."),
    "includeWatermark": (".include_watermark", "``true``, ``false``", "Adds the column ``watermark``."),
    "eventTimeHeader": (".event_time_header", "header", "Adds the column ``eventTime`` with the value of this header."),
    "watermarkHeader": (".watermark_header", "header", "The header with watermarks of the producer."),
    "kafkaConsumer.pollTimeoutMs": (
        ".poll_timeout_ms",
        "milliseconds",
        "How long a partition can return neither a record nor its end.",
    ),
    "fetchOffset.numRetries": ("``3``", "number", "Retries of a request for offsets."),
    "fetchOffset.retryIntervalMs": (".retry_interval_ms", "milliseconds", "The wait between two retries."),
}
SINK: Mapping[str, tuple[str, str, str]] = {
    "connection": ("", "text", "The name of a connection of type ``kafka``."),
    "topic": (".topic", "topic", "The topic of all records. Without it, the column ``topic`` is required."),
    "includeHeaders": (".with_headers", "``true``, ``false``", "Whether the column ``headers`` is written."),
    "delivery": (".delivery", "``exactly-once``, ``at-least-once``", "Whether a batch is a transaction."),
    "checkpointLocation": ("", "path, URI", "The checkpoint of the query. Required for ``exactly-once``."),
    "group.id": (".group_id", "group", "The group whose metadata group stores the last no-data batch."),
}


def rows(kind: str) -> Iterator[tuple[str, str, str, str]]:
    """The name, type, default and meaning of each option.

    Args:
        kind: ``source`` or ``sink``.

    >>> next(row for row in rows("source") if row[0] == "stateRetention")[2]
    '``1h``'
    """
    parsed: Any = parse(_READ, streaming=True) if kind == "source" else parse_sink(_WRITE)
    for name, (default, values, meaning) in (SOURCE if kind == "source" else SINK).items():
        yield name, values or _variants(parsed, default), _shown(parsed, default, values), meaning


def _value(parsed: Any, path: str) -> Any:
    for part in path.removeprefix(".").split("."):
        parsed = getattr(parsed, part)
    return parsed


def _variants(parsed: Any, path: str) -> str:
    return ", ".join(f"``{variant.value}``" for variant in type(_value(parsed, path)))


def _shown(parsed: Any, default: str, values: str) -> str:
    if not default.startswith("."):
        return default or "not set"
    value = _value(parsed, default)
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        return f"``{value.value}``"
    return f"``{exact(value) if values == 'duration' else str(value).lower()}``"


def page() -> str:
    """The text of the page."""
    text = heading("Options", "=") + _INTRODUCTION
    text += heading("Options of the source", "-") + _SOURCE + _table("source")
    return text + heading("Options of the Kafka sink", "-") + _SINK + _table("sink")


def _table(kind: str) -> str:
    return table(
        ["Option", "Values", "Default", "Meaning"],
        [25, 20, 20, 35],
        ((f"``{name}``", values, default, meaning) for name, values, default, meaning in rows(kind)),
    )
