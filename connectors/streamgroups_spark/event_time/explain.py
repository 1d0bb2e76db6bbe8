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
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups.event_time.explanation import StreamExplanation, TimeExplanation, stream_explanation
from streamgroups.event_time.watermark import NOT_YET
from streamgroups_spark.bridge.rpc import request_all
from streamgroups_spark.internals.kept_progress import MIN_RETENTION, no_progress
from streamgroups_spark.internals.private_spark import progress_retention
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
        InvalidOption: if the query has neither, or has not finished its first batch; or if Spark keeps no progress of the query.

    Example::

        explanation = sg.event_time.explain_time(query)
        print(explanation)
        slow = [it for stream in explanation.streams for it in stream.partitions if it.holds_back]
    """
    progress = query.lastProgress
    if progress is None:
        check_kept_progress(query, "sg.event_time.explain_time")
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


def check_kept_progress(query: StreamingQuery, what: str) -> None:
    """Checks that Spark keeps the progress of the last batch of a query.

    Args:
        query: the query.
        what: the function of the API that needs it.

    Raises:
        InvalidOption: if it keeps none.
    """
    retention = progress_retention(query)
    if retention is not None and retention < MIN_RETENTION:
        raise no_progress(what)


def _of_streams(progress: Mapping[str, Any]) -> Iterator[StreamExplanation]:
    for group_id, cluster_id in readers_in(progress):
        for it in request_all(SESSION, TimeRequest(group_id, NOT_YET, cluster_id=cluster_id)):
            yield stream_explanation(group_id, it.member, it.state, it.settings, it.imported)


def _of_states(progress: Mapping[str, Any]) -> Iterator[StreamExplanation]:
    for group_id, cluster_id in readers_in(progress):
        yield from request_all(SESSION, ExplanationRequest(group_id, cluster_id))


def readers_in(progress: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Returns the groups whose records a query reads, each with the id of its cluster, from the progress of the query.

    The id is ``None`` if it is unknown, such as before the first batch with partitions.

    >>> offset = '{"version": 2, "n": 1, "ranges": {}, "resting": {}, "cluster": "MkU3OEVBNTc", "group": "board"}'
    >>> readers_in({"sources": [{"endOffset": offset}, {"endOffset": None}]})
    [('board', 'MkU3OEVBNTc')]
    """
    found: dict[tuple[str, str | None], None] = {}
    for offset in _ends(progress):
        try:
            end = decode(offset)
        except OffsetFormat:
            continue
        if end.group_id is not None:
            found[end.group_id, end.cluster_id] = None
    return sorted(found, key=lambda it: (it[0], it[1] or ""))


def _ends(progress: Mapping[str, Any]) -> Iterator[Any]:
    for source in progress.get("sources") or []:
        offset = source.get("endOffset")
        yield json.loads(offset) if isinstance(offset, str) else offset
