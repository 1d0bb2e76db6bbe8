"""``sg.explain_time(query)``: the watermark of a running query, and the partitions that hold it back.

Called by users on the driver. The progress of the query names its groups, and their sources reply by driver RPC
(``internals.rpc``). Source: SEMANTICS W2, W3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.errors import InvalidOption
from streamgroups.event_time.explanation import as_text, explain
from streamgroups.event_time.watermark import NOT_YET
from streamgroups_spark.event_time.messages import TimeRequest
from streamgroups_spark.event_time.punctuation_source import group_in
from streamgroups_spark.internals.rpc import request_all
from streamgroups_spark.register import SESSION


def explain_time(query: StreamingQuery) -> str:
    """Returns the event time of each partition, and its effect on the watermark.

    Args:
        query: a running query of this session, on :func:`with_event_time`.

    Returns:
        A table for each stream of the query.

    Raises:
        InvalidOption: if the query does not use :func:`with_event_time`, or has not finished its first batch.

    Example::

        print(sg.explain_time(query))
    """
    progress = query.lastProgress
    groups = [] if progress is None else sorted(groups_of(progress))
    if not groups:
        raise InvalidOption(
            "The query does not use sg.with_event_time, or has not finished its first batch.",
            remedy=(
                "Create its DataFrame with sg.with_event_time. If the query has just started, wait for its first batch."
            ),
        )
    told = [(group_id, it) for group_id in groups for it in request_all(SESSION, TimeRequest(group_id, NOT_YET))]
    return "\n\n".join(as_text(group_id, it.member, it.state, explain(it.state, it.settings)) for group_id, it in told)


def groups_of(progress: Mapping[str, Any]) -> Iterator[str]:
    """Yields the groups whose watermark a query follows, from its progress.

    >>> offset = '{"version": 1, "kind": "streamgroups-time", "group": "board", "watermark": null}'
    >>> list(groups_of({"sources": [{"endOffset": offset}, {"endOffset": None}]}))
    ['board']
    """
    for source in progress.get("sources") or []:
        offset = source.get("endOffset")
        found = group_in(json.loads(offset) if isinstance(offset, str) else offset)
        if found is not None:
            yield found
