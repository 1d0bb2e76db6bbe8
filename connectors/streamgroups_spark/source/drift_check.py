"""Rejects ``maxDrift`` where no watermark over all partitions exists on the driver.

Called by ``windows.windows`` and ``state.operator_plan`` when a query is built, and by ``source.running_query`` before the first
batch of any query. Source: SEMANTICS W16.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from streamgroups.durations import exact
from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge.stage_name import StageName
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.source.read_options import has_event_time, read_options
from streamgroups_spark.source.source_options import SourceOptions

_REMEDY = "Use sg.with_event_time, or sg.windows with time='group'; or leave 'maxDrift' out."


def check_drift(source: SourceOptions, facts: QueryFacts | None) -> None:
    """Checks that the driver has the event times that ``maxDrift`` needs.

    Args:
        source: the options of the stream.
        facts: the facts about the query; ``None`` if they are unknown.

    Raises:
        InvalidOption: if it does not have them.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092", "maxDrift": "1h"}
    >>> check_drift(parse(options, streaming=True), QueryFacts(None, frozenset(), stages=frozenset({("windows:group",)})))
    >>> check_drift(parse(options, streaming=True), QueryFacts(None, frozenset()))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'maxDrift' is 1h, but the query of group 'board' has no watermark over all \
partitions. Use sg.with_event_time, or sg.windows with time='group'; or leave 'maxDrift' out.
    """
    drift_ms = source.limits.max_drift_ms
    if drift_ms is None:
        return
    if facts is None:
        raise InvalidOption(
            f"Option 'maxDrift' is {exact(drift_ms)}, but the process that started the query of group "
            f"'{source.group_id}' does not report its event time.",
            remedy="Call sg.register(spark) in that process, and start the query again; or leave 'maxDrift' out.",
        )
    if facts.time is None and not any(StageName.parse(it).has_group_time for branch in facts.stages for it in branch):
        raise InvalidOption(
            f"Option 'maxDrift' is {exact(drift_ms)}, but the query of group '{source.group_id}' has no watermark over "
            "all partitions.",
            remedy=_REMEDY,
        )


def reject_drift(sources: Collection[SourceOptions], called: str) -> None:
    """Rejects ``maxDrift`` for an operator whose partitions have no common watermark.

    Args:
        sources: the options of the streams that it reads.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if one of them has the option.
    """
    for source in sources:
        drift_ms = source.limits.max_drift_ms
        if drift_ms is not None:
            raise InvalidOption(
                f"Option 'maxDrift' of the source is {exact(drift_ms)}, but the partitions have no common watermark in "
                f"this call of {called}.",
                remedy=_REMEDY,
            )


def check_drift_of_query(df: DataFrame) -> None:
    """Checks that windows with the watermark of Spark have one over all partitions, if the source has ``maxDrift``.

    Raises:
        InvalidOption: if the DataFrame has not passed through ``sg.with_event_time``.
    """
    if df.isStreaming and not has_event_time(df):
        reject_drift(read_options(df), "sg.windows")
