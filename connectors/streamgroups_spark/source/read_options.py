"""The options of the sources that a DataFrame reads.

Called by ``windows``, ``joins``, ``state.placement`` and ``event_time`` on the driver when a query is built. Source:
SEMANTICS S9, W11.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups_spark.bridge.plan import analyzed, leaves, source_name, source_options
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.source.options import SourceOptions, parse

_SOURCE = "streamgroups"


def read_options(df: DataFrame) -> list[SourceOptions]:
    """Returns the options of the sources of this library that a DataFrame reads.

    If it reads streams, only their options count. A stream can be joined with bounded data, whose options do
    not apply to the records of the stream.
    """
    is_stream = df.isStreaming
    return [
        parse(source_options(leaf), streaming=is_stream)
        for leaf in leaves(analyzed(df))
        if source_name(leaf) == _SOURCE and leaf.isStreaming() == is_stream
    ]


def has_event_time(df: DataFrame) -> bool:
    """Returns whether a DataFrame has passed through ``sg.with_event_time``."""
    return any(source_name(leaf) == TimeDataSource.name() for leaf in leaves(analyzed(df)))
