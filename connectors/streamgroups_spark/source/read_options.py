"""The options of the sources that a DataFrame reads.

Called by ``windows``, ``joins``, ``state.operator_plan`` and ``event_time`` on the driver when a query is built. Source:
SEMANTICS S9, W11.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups_spark.bridge.plan import FORMAT, analyzed, leaves, source_name, source_options
from streamgroups_spark.source.source_options import SourceOptions, parse


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


def source_delay_ms(df: DataFrame) -> int | None:
    """Returns the option ``watermarkDelay`` of the sources of a stream, in milliseconds; ``None`` if it is not set.

    Raises:
        InvalidOption: if the sources have different values.
    """
    found = {it.watermark_delay_ms for it in read_options(df)} if df.isStreaming else set()
    if len(found) > 1:
        raise InvalidOption(
            "The sources have different values of 'watermarkDelay'.",
            remedy="Set the same value, or call df.withWatermark(...) before.",
        )
    return found.pop() if found else None


def reject_idle_timeout(df: DataFrame, called: str, *, remedy: str) -> None:
    """Rejects ``partitionIdleTimeout`` for an operator whose partitions each have a watermark of their own.

    Args:
        df: the stream.
        called: the name of the operator, for the error.
        remedy: what closes the windows, or drops the rows, of an idle partition.

    Raises:
        InvalidOption: if a source has the option.
    """
    for options in () if has_event_time(df) else read_options(df):
        if options.partition_idle_timeout_ms is not None:
            raise InvalidOption(
                f"Option 'partitionIdleTimeout' of group '{options.group_id}' has no effect on {called}: each partition has a "
                "watermark of its own, and an idle one holds back no other.",
                remedy=remedy,
            )


def source_policy(df: DataFrame) -> OnViolation:
    """Returns the option ``onViolation`` of the sources of a stream, or of bounded data.

    ``keep`` after ``sg.with_event_time``, which has applied the option.

    Raises:
        InvalidOption: if the sources have different values.
    """
    if has_event_time(df):
        return OnViolation.KEEP
    found = {it.on_violation for it in read_options(df)}
    if len(found) > 1:
        raise InvalidOption(
            f"The sources have different values of 'onViolation': {', '.join(sorted(it.value for it in found))}.",
            remedy="Set the same value, or pass the argument 'on_violation'.",
        )
    return found.pop() if found else OnViolation.KEEP
