"""``sg.event_time.explain_time(query)``: the event time of a running query, and the partitions that hold back its watermark.

Called by users on the driver. The progress of the query names its groups, and their sources reply by driver RPC
(``bridge.rpc``): those with ``sg.with_event_time`` with their watermark, and those with windows of partitions with an
explanation. Source: SEMANTICS W2, W3, W5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.spark_kafka import punctuation_group
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups.event_time.explanation import StreamExplanation, TimeExplanation, stream_explanation
from streamgroups.event_time.watermark import NOT_YET
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.messages.time import ExplanationRequest, TimeRequest
from streamgroups_spark.session import SESSION


def explain_time(query: StreamingQuery) -> TimeExplanation:
    """Returns the event time of each partition, and its effect on the watermark.

    With ``time="partition"`` each partition has a watermark of its own. The table then contains when its idle timeout
    expires, and whether the idle timeout has advanced its watermark. It contains the partitions of the queries of this
    session. With ``time="group"`` it contains all partitions of the group.

    Args:
        query: a running query of this session, with :func:`with_event_time` or with windows of partitions.

    Returns:
        The explanation of each stream of the query. ``print`` shows it as text, and a notebook displays it as tables.

    Raises:
        InvalidOption: if the query has neither, or has not finished its first batch.

    Example::

        explanation = sg.event_time.explain_time(query)
        print(explanation)
        slow = [it for stream in explanation.streams for it in stream.partitions if it.holds_back]
    """
    progress = query.lastProgress
    streams = () if progress is None else (*_of_streams(progress), *_of_states(progress))
    if not streams:
        raise InvalidOption(
            "The query has neither sg.with_event_time nor windows of partitions by event time, or it has not finished its "
            "first batch.",
            remedy=(
                "Create its DataFrame with sg.with_event_time, or with sg.windows and time='partition' or time='group'. "
                "If the query has just started, wait for its first batch."
            ),
        )
    return TimeExplanation(streams)


def _of_streams(progress: Mapping[str, Any]) -> Iterator[StreamExplanation]:
    for group_id in sorted(groups_of(progress)):
        for it in request_all(SESSION, TimeRequest(group_id, NOT_YET)):
            yield stream_explanation(group_id, it.member, it.state, it.settings, it.imported)


def _of_states(progress: Mapping[str, Any]) -> Iterator[StreamExplanation]:
    for group_id in sorted(set(readers_in(progress))):
        yield from request_all(SESSION, ExplanationRequest(group_id))


def groups_of(progress: Mapping[str, Any]) -> Iterator[str]:
    """Yields the groups whose watermark a query follows, from its progress.

    >>> offset = '{"version": 1, "kind": "streamgroups-time", "group": "board", "watermark": null}'
    >>> list(groups_of({"sources": [{"endOffset": offset}, {"endOffset": None}]}))
    ['board']
    """
    for offset in _ends(progress):
        found = punctuation_group(offset)
        if found is not None:
            yield found


def readers_in(progress: Mapping[str, Any]) -> Iterator[str]:
    """Yields the groups whose records a query reads, from its progress.

    >>> offset = '{"version": 2, "n": 1, "ranges": {}, "resting": {}, "group": "board"}'
    >>> list(readers_in({"sources": [{"endOffset": offset}, {"endOffset": None}]}))
    ['board']
    """
    for offset in _ends(progress):
        try:
            group_id = decode(offset).group_id
        except OffsetFormat:
            continue
        if group_id is not None:
            yield group_id


def _ends(progress: Mapping[str, Any]) -> Iterator[Any]:
    for source in progress.get("sources") or []:
        offset = source.get("endOffset")
        yield json.loads(offset) if isinstance(offset, str) else offset
