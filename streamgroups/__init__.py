"""streamgroups: Kafka consumer groups for Spark Structured Streaming.

What a user imports as ``sg``. Names that need Spark or a Kafka client are loaded when they are first used, so that
``import streamgroups`` is quick and needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgroups._version import __version__

if TYPE_CHECKING:
    from streamgroups.event_time.aggregates import python_aggregate
    from streamgroups.event_time.shapes import hopping, session, tumbling
    from streamgroups.groups.cursors.message import Message
    from streamgroups.groups.cursors.starting import CursorType
    from streamgroups.supervision import RestartPolicy
    from streamgroups_delta.sink import DeltaSink
    from streamgroups_kafka.group_cursors import GroupCursors
    from streamgroups_postgres.sink import PostgresSink
    from streamgroups_spark.event_time import with_event_time
    from streamgroups_spark.exactly_once import KafkaSink, exactly_once
    from streamgroups_spark.explaining import explain_time
    from streamgroups_spark.foreach_ledger import LedgerPosition, ledger
    from streamgroups_spark.metrics_listener import MetricsListener
    from streamgroups_spark.registering import register
    from streamgroups_spark.supervising import supervise
    from streamgroups_spark.time_recorder import record_time
    from streamgroups_spark.windows import dead_letters, window_results, windows

    TRIM_HORIZON = CursorType.TRIM_HORIZON
    AT_TIME = CursorType.AT_TIME
    LATEST = CursorType.LATEST
    AT_OFFSET = CursorType.AT_OFFSET
    AFTER_OFFSET = CursorType.AFTER_OFFSET

_WHERE = {
    "DeltaSink": "streamgroups_delta.sink",
    "GroupCursors": "streamgroups_kafka.group_cursors",
    "KafkaSink": "streamgroups_spark.exactly_once",
    "LedgerPosition": "streamgroups_spark.foreach_ledger",
    "Message": "streamgroups.groups.cursors.message",
    "MetricsListener": "streamgroups_spark.metrics_listener",
    "PostgresSink": "streamgroups_postgres.sink",
    "RestartPolicy": "streamgroups.supervision",
    "dead_letters": "streamgroups_spark.windows",
    "exactly_once": "streamgroups_spark.exactly_once",
    "explain_time": "streamgroups_spark.explaining",
    "hopping": "streamgroups.event_time.shapes",
    "ledger": "streamgroups_spark.foreach_ledger",
    "python_aggregate": "streamgroups.event_time.aggregates",
    "record_time": "streamgroups_spark.time_recorder",
    "register": "streamgroups_spark.registering",
    "session": "streamgroups.event_time.shapes",
    "supervise": "streamgroups_spark.supervising",
    "tumbling": "streamgroups.event_time.shapes",
    "window_results": "streamgroups_spark.windows",
    "windows": "streamgroups_spark.windows",
    "with_event_time": "streamgroups_spark.event_time",
}
_CURSOR_TYPES = ("TRIM_HORIZON", "AT_TIME", "LATEST", "AT_OFFSET", "AFTER_OFFSET")

__all__ = [
    "AFTER_OFFSET",
    "AT_OFFSET",
    "AT_TIME",
    "LATEST",
    "TRIM_HORIZON",
    "DeltaSink",
    "GroupCursors",
    "KafkaSink",
    "LedgerPosition",
    "Message",
    "MetricsListener",
    "PostgresSink",
    "RestartPolicy",
    "__version__",
    "dead_letters",
    "exactly_once",
    "explain_time",
    "hopping",
    "ledger",
    "python_aggregate",
    "record_time",
    "register",
    "session",
    "supervise",
    "tumbling",
    "window_results",
    "windows",
    "with_event_time",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _CURSOR_TYPES:
        return import_module("streamgroups.groups.cursors.starting").CursorType[name]
    if name not in _WHERE:
        raise AttributeError(f"module 'streamgroups' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
