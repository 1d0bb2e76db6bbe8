"""streamgroups: Kafka consumer groups for Spark Structured Streaming.

The public API, which users import as ``sg``. Names that need Spark or a Kafka client are loaded at their first use, so
``import streamgroups`` is fast and needs neither. Source: PEP 562.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamgroups._version import __version__ as __version__

if TYPE_CHECKING:
    # For type checkers, which do not call __getattr__; a test compares these imports with _NAMES.
    from streamgroups import errors as errors
    from streamgroups.cursors.starting_position import CursorType as CursorType
    from streamgroups.cursors.state import GroupState as GroupState
    from streamgroups.decoding.formats import Avro as Avro
    from streamgroups.decoding.formats import Json as Json
    from streamgroups.decoding.formats import Protobuf as Protobuf
    from streamgroups.decoding.registry import SchemaRegistry as SchemaRegistry
    from streamgroups.dlq.settings import DeadLetters as DeadLetters
    from streamgroups.event_time.aggregates import PythonAggregate as PythonAggregate
    from streamgroups.event_time.aggregates import python_aggregate as python_aggregate
    from streamgroups.event_time.explanation import TimeExplanation as TimeExplanation
    from streamgroups.event_time.producer_watermarks import watermark_header as watermark_header
    from streamgroups.event_time.shapes import hopping as hopping
    from streamgroups.event_time.shapes import session as session
    from streamgroups.event_time.shapes import tumbling as tumbling
    from streamgroups.message import Message as Message
    from streamgroups.monitoring.group_tables import DescribedGroup as DescribedGroup
    from streamgroups.partitions import OffsetRange as OffsetRange
    from streamgroups.partitions import TopicPartition as TopicPartition
    from streamgroups.stable_input.idempotency import idempotency_key as idempotency_key
    from streamgroups.supervision.policy import RestartPolicy as RestartPolicy
    from streamgroups.tokens import OAuthBearerToken as OAuthBearerToken
    from streamgroups_delta.sink import DeltaSink as DeltaSink
    from streamgroups_kafka.admin.describe_group import describe_group as describe_group
    from streamgroups_kafka.cursors.group_cursors import GroupCursors as GroupCursors
    from streamgroups_kafka.write.watermark_markers import emit_watermark as emit_watermark
    from streamgroups_postgres.sink import PostgresSink as PostgresSink
    from streamgroups_reports.ownership_timeline import OwnershipTimeline as OwnershipTimeline
    from streamgroups_reports.ownership_timeline import ownership_timeline as ownership_timeline
    from streamgroups_spark.decoding.api import decode as decode
    from streamgroups_spark.decoding.api import encode as encode
    from streamgroups_spark.decoding.validating import validate as validate
    from streamgroups_spark.dlq.safely import safely as safely
    from streamgroups_spark.event_time.explain import explain_time as explain_time
    from streamgroups_spark.event_time.recorder import TimeRecorder as TimeRecorder
    from streamgroups_spark.event_time.recorder import record_time as record_time
    from streamgroups_spark.event_time.split_late import split_late as split_late
    from streamgroups_spark.event_time.with_event_time import with_event_time as with_event_time
    from streamgroups_spark.internals.active_session import session_active as session_active
    from streamgroups_spark.joins.api import join as join
    from streamgroups_spark.ops.metrics_listener import MetricsListener as MetricsListener
    from streamgroups_spark.ops.retry_batches import retry_batches as retry_batches
    from streamgroups_spark.ops.supervise import Outcome as Outcome
    from streamgroups_spark.ops.supervise import supervise as supervise
    from streamgroups_spark.register import register as register
    from streamgroups_spark.repartition.api import read_repartitioned as read_repartitioned
    from streamgroups_spark.repartition.api import repartition as repartition
    from streamgroups_spark.sinks.batch_write import write as write
    from streamgroups_spark.sinks.exactly_once import KafkaSink as KafkaSink
    from streamgroups_spark.sinks.exactly_once import exactly_once as exactly_once
    from streamgroups_spark.sinks.foreach_ledger import BatchLedger as BatchLedger
    from streamgroups_spark.sinks.foreach_ledger import LedgerBatch as LedgerBatch
    from streamgroups_spark.sinks.foreach_ledger import LedgerPosition as LedgerPosition
    from streamgroups_spark.sinks.foreach_ledger import LedgerPositions as LedgerPositions
    from streamgroups_spark.sinks.foreach_ledger import LedgerTable as LedgerTable
    from streamgroups_spark.sinks.foreach_ledger import ledger as ledger
    from streamgroups_spark.stable_input.batches import StableBatch as StableBatch
    from streamgroups_spark.stable_input.batches import StableBatches as StableBatches
    from streamgroups_spark.stable_input.batches import stable_batches as stable_batches
    from streamgroups_spark.state.dedup import dedup as dedup
    from streamgroups_spark.state.functions import stateful as stateful
    from streamgroups_spark.windows.api import dead_letters as dead_letters
    from streamgroups_spark.windows.api import window_results as window_results
    from streamgroups_spark.windows.api import windows as windows
    from streamgroups_state.operator import BatchTime as BatchTime

    TRIM_HORIZON = CursorType.TRIM_HORIZON
    AT_TIME = CursorType.AT_TIME
    LATEST = CursorType.LATEST
    AT_OFFSET = CursorType.AT_OFFSET
    AFTER_OFFSET = CursorType.AFTER_OFFSET

#: The names by the module that defines them. For a class, the names of some of its members.
_NAMES = {
    "streamgroups.decoding.formats": "Avro Json Protobuf",
    "streamgroups.decoding.registry": "SchemaRegistry",
    "streamgroups.event_time.aggregates": "PythonAggregate python_aggregate",
    "streamgroups.event_time.producer_watermarks": "watermark_header",
    "streamgroups.event_time.shapes": "hopping session tumbling",
    "streamgroups.event_time.explanation": "TimeExplanation",
    "streamgroups.message": "Message",
    "streamgroups.monitoring.group_tables": "DescribedGroup",
    "streamgroups.cursors.starting_position": "CursorType",
    "streamgroups.cursors.starting_position:CursorType": "TRIM_HORIZON AT_TIME LATEST AT_OFFSET AFTER_OFFSET",
    "streamgroups.cursors.state": "GroupState",
    "streamgroups.partitions": "OffsetRange TopicPartition",
    "streamgroups.stable_input.idempotency": "idempotency_key",
    "streamgroups.supervision.policy": "RestartPolicy",
    "streamgroups.tokens": "OAuthBearerToken",
    "streamgroups_delta.sink": "DeltaSink",
    "streamgroups_kafka.admin.describe_group": "describe_group",
    "streamgroups_kafka.cursors.group_cursors": "GroupCursors",
    "streamgroups_kafka.write.watermark_markers": "emit_watermark",
    "streamgroups_postgres.sink": "PostgresSink",
    "streamgroups_spark.dlq.safely": "safely",
    "streamgroups_reports.ownership_timeline": "OwnershipTimeline ownership_timeline",
    "streamgroups_spark.decoding.api": "decode encode",
    "streamgroups_spark.decoding.validating": "validate",
    "streamgroups_spark.event_time.with_event_time": "with_event_time",
    "streamgroups.dlq.settings": "DeadLetters",
    "streamgroups_spark.sinks.batch_write": "write",
    "streamgroups_spark.sinks.exactly_once": "KafkaSink exactly_once",
    "streamgroups_spark.event_time.explain": "explain_time",
    "streamgroups_spark.sinks.foreach_ledger": "BatchLedger LedgerBatch LedgerPosition LedgerPositions LedgerTable ledger",
    "streamgroups_spark.internals.active_session": "session_active",
    "streamgroups_spark.joins.api": "join",
    "streamgroups_spark.ops.metrics_listener": "MetricsListener",
    "streamgroups_spark.register": "register",
    "streamgroups_spark.repartition.api": "read_repartitioned repartition",
    "streamgroups_spark.ops.retry_batches": "retry_batches",
    "streamgroups_spark.ops.supervise": "Outcome supervise",
    "streamgroups_spark.event_time.recorder": "TimeRecorder record_time",
    "streamgroups_spark.event_time.split_late": "split_late",
    "streamgroups_spark.stable_input.batches": "StableBatch StableBatches stable_batches",
    "streamgroups_spark.state.dedup": "dedup",
    "streamgroups_spark.state.functions": "stateful",
    "streamgroups_state.operator": "BatchTime",
    "streamgroups_spark.windows.api": "dead_letters window_results windows",
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", "errors", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("streamgroups.errors")
    if name not in _PLACES:
        raise AttributeError(f"module 'streamgroups' has no attribute '{name}'")
    from streamgroups.extras import load

    module, _, holder = _PLACES[name].partition(":")
    found = load(module, needed_by=f"sg.{name}")
    return getattr(getattr(found, holder) if holder else found, name)


def __dir__() -> list[str]:
    return sorted(__all__)
