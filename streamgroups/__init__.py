"""streamgroups: Kafka consumer groups for Spark Structured Streaming.

The public API, which users import as ``sg``: the names of a first program, and modules by topic. Names that need Spark or
a Kafka client are loaded at their first use, so ``import streamgroups`` is fast and needs neither. Source: PEP 562.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamgroups._lazy import accessors, places
from streamgroups._version import __version__ as __version__

if TYPE_CHECKING:
    # For type checkers, which do not call __getattr__; a test compares these imports with _PLACES.
    from streamgroups import cursors as cursors
    from streamgroups import errors as errors
    from streamgroups import event_time as event_time
    from streamgroups import groups as groups
    from streamgroups import ledgers as ledgers
    from streamgroups import reports as reports
    from streamgroups import savepoints as savepoints
    from streamgroups import schemas as schemas
    from streamgroups import shapes as shapes
    from streamgroups import side_effects as side_effects
    from streamgroups import supervision as supervision
    from streamgroups.dlq.limits import DeadLetters as DeadLetters
    from streamgroups_sinks.delta.sink import DeltaSink as DeltaSink
    from streamgroups_sinks.postgres.sink import PostgresSink as PostgresSink
    from streamgroups_spark.decoding.decode_encode import decode as decode
    from streamgroups_spark.decoding.decode_encode import encode as encode
    from streamgroups_spark.dlq.safely import safely as safely
    from streamgroups_spark.event_time.with_event_time import with_event_time as with_event_time
    from streamgroups_spark.joins.join import join as join
    from streamgroups_spark.ops.supervise import supervise as supervise
    from streamgroups_spark.processors.building import processor as processor
    from streamgroups_spark.register import register as register
    from streamgroups_spark.repartition.repartition import read_repartitioned as read_repartitioned
    from streamgroups_spark.repartition.repartition import repartition as repartition
    from streamgroups_spark.sinks.batch_write import write as write
    from streamgroups_spark.sinks.exactly_once import KafkaSink as KafkaSink
    from streamgroups_spark.sinks.exactly_once import exactly_once as exactly_once
    from streamgroups_spark.state.dedup import dedup as dedup
    from streamgroups_spark.state.stateful import stateful as stateful
    from streamgroups_spark.windows.windows import windows as windows


#: The modules of the API, by topic.
_MODULES = (
    "cursors",
    "errors",
    "event_time",
    "groups",
    "ledgers",
    "reports",
    "savepoints",
    "schemas",
    "shapes",
    "side_effects",
    "supervision",
)
_PLACES = places(
    {
        "streamgroups_sinks.delta.sink": "DeltaSink",
        "streamgroups_sinks.postgres.sink": "PostgresSink",
        "streamgroups_spark.dlq.safely": "safely",
        "streamgroups_spark.decoding.decode_encode": "decode encode",
        "streamgroups_spark.event_time.with_event_time": "with_event_time",
        "streamgroups.dlq.limits": "DeadLetters",
        "streamgroups_spark.sinks.batch_write": "write",
        "streamgroups_spark.sinks.exactly_once": "KafkaSink exactly_once",
        "streamgroups_spark.joins.join": "join",
        "streamgroups_spark.processors.building": "processor",
        "streamgroups_spark.register": "register",
        "streamgroups_spark.repartition.repartition": "read_repartitioned repartition",
        "streamgroups_spark.ops.supervise": "supervise",
        "streamgroups_spark.state.dedup": "dedup",
        "streamgroups_spark.state.stateful": "stateful",
        "streamgroups_spark.windows.windows": "windows",
    }
)

_get, _ = accessors(__name__, _PLACES)

__all__ = ["__version__", *_MODULES, *_PLACES]


def __getattr__(name: str) -> Any:
    return import_module(f"streamgroups.{name}") if name in _MODULES else _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
