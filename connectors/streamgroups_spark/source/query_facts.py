"""What a source has to know of its query, which Spark does not pass to it.

A source runs in a Python process of its own. Before its first batch it requests these facts from the user's own process (``rpc``), where
``active_queries`` answers; and when it stops, whether its last batch is done (``last_batch``). Source: SEMANTICS S2, S9, W2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups_spark.event_time.messages import StreamTime


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """Which query has the source that runs in this process? The answer is :class:`QueryFacts`.

    Args:
        process_ids: of the source's process, and of its parent: ``PYSPARK_PYTHON`` may be a script that starts Python.
        group_id: the group that the source reads for.
    """

    process_ids: frozenset[int]
    group_id: str


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """Is the batch done that ends here? The answer is true or false. A source sends it when it stops, and when a batch takes too long.

    Args:
        process_ids: as in the :class:`QueryRequest` of the source.
        end: the offset as Spark has logged it for the source.
    """

    process_ids: frozenset[int]
    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A query, as its source sees it.

    Args:
        checkpoint: where its checkpoint is, as Spark has resolved it; ``None`` if several queries could be meant.
        operators: what keeps state of the source's stream.
        time: the rules of the stream's event time; ``None`` if it has none.
    """

    checkpoint: str | None
    operators: frozenset[str]
    time: StreamTime | None = None
