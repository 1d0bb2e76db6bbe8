"""Reads the streams and stateful operators of a query from its analyzed plan.

Called by ``sinks.exactly_once``, ``event_time.with_event_time``, ``windows.api`` and ``internals.active_queries`` on
the driver, with Spark's objects behind py4j. Source: Spark's ``LogicalPlan``, ``StreamingRelationV2``,
``StreamingDataSourceV2ScanRelation`` and ``MicroBatchExecution.containsStatefulOperator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

#: Operators with state across batches, besides stream-stream joins.
_STATEFUL = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
    )
)


@dataclass(frozen=True, slots=True)
class ReadStream:
    """A stream that a plan reads.

    Args:
        leaf: the node of the plan that reads it.
        operators: the stateful operators above it.
    """

    leaf: Any
    operators: frozenset[str] = frozenset()


def analyzed(df: DataFrame) -> Any:
    """Returns the analyzed plan of a DataFrame."""
    return df._jdf.queryExecution().analyzed()


def nodes(plan: Any) -> Iterator[Any]:
    """Yields all nodes of a plan, beginning with the output."""
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from nodes(children.apply(i))


def leaves(plan: Any) -> Iterator[Any]:
    """Yields the leaves of a plan."""
    found = plan.collectLeaves()
    for i in range(found.size()):
        yield found.apply(i)


def is_data_source(leaf: Any) -> bool:
    """Returns whether the leaf is a stream of a data source, which has a name and options."""
    return bool(leaf.nodeName() == "StreamingRelationV2")


def source_name(leaf: Any) -> str:
    """Returns the name of the data source of a leaf, or the name of the node if it has no data source."""
    return str(leaf.sourceName() if is_data_source(leaf) else leaf.nodeName())


def read_streams(plan: Any) -> list[ReadStream]:
    """Returns the streams that a plan reads, with their stateful operators.

    A stream that is read twice is contained twice.

    Operators without a stream as input are not stateful: a limit, an aggregate or a join of tables. The streams of a
    common table expression belong to each reference.
    """
    return _read_streams(plan, {})


def _read_streams(plan: Any, expressions: dict[int, list[ReadStream]]) -> list[ReadStream]:
    # Each call is a round trip to the JVM, so the plan is traversed once and only as far as needed.
    children = plan.children()
    below = [_read_streams(children.apply(i), expressions) for i in range(children.size())]
    if not below:
        if plan.nodeName() == "CTERelationRef":
            return expressions.get(plan.cteId(), [])
        return [ReadStream(plan)] if plan.isStreaming() else []
    streams = [stream for streams in below for stream in streams]
    if not streams:
        return []
    name = str(plan.nodeName())
    if name == "CTERelationDef":
        expressions[plan.id()] = streams
    if name in _STATEFUL or (name == "Join" and all(below)):
        return [ReadStream(stream.leaf, stream.operators | {name}) for stream in streams]
    return streams
