"""The options of the sources that a DataFrame reads.

Called by ``windows``, ``joins``, ``state.placement`` and ``event_time`` on the driver when a query is built. Source:
SEMANTICS S9, W11.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups_spark.bridge.plan import FORMAT, analyzed, leaves, source_name, source_options
from streamgroups_spark.bridge.punctuation_options import PUNCTUATIONS
from streamgroups_spark.source.options import SourceOptions, parse


def read_options(df: DataFrame) -> list[SourceOptions]:
    """Returns the options of the sources of this library that a DataFrame reads.

    If it reads streams, only their options count. A stream can be joined with bounded data, whose options do
    not apply to the records of the stream.
    """
    is_stream = df.isStreaming
    return [
        parse(source_options(leaf), streaming=is_stream)
        for leaf in leaves(analyzed(df))
        if source_name(leaf) == FORMAT and leaf.isStreaming() == is_stream
    ]


def has_event_time(df: DataFrame) -> bool:
    """Returns whether a DataFrame has passed through ``sg.with_event_time``."""
    return any(source_name(leaf) == PUNCTUATIONS for leaf in leaves(analyzed(df)))


def have_producers(df: DataFrame) -> bool:
    """Whether producers emit the watermark of all sources of this library that a DataFrame reads."""
    sources = read_options(df)
    return bool(sources) and all(it.watermark_header is not None for it in sources)
