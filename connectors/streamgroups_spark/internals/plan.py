"""What a query reads and does, by the plan that Spark has analysed.

Called by ``exactly_once``, ``event_time``, ``windows`` and ``active_queries`` on the driver, with Spark's own objects behind py4j. Source: Spark's
``LogicalPlan``, ``StreamingRelationV2``, ``StreamingDataSourceV2ScanRelation`` and ``MicroBatchExecution.containsStatefulOperator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

#: Operators that keep state from batch to batch, beside joins of streams.
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
        leaf: where the plan reads it.
        operators: the operators above it that keep state of it.
    """

    leaf: Any
    operators: frozenset[str] = frozenset()


def analyzed(df: DataFrame) -> Any:
    """The plan of a DataFrame."""
    return df._jdf.queryExecution().analyzed()


def nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, from the output on."""
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from nodes(children.apply(i))


def leaves(plan: Any) -> Iterator[Any]:
    """What a plan reads."""
    found = plan.collectLeaves()
    for i in range(found.size()):
        yield found.apply(i)


def is_data_source(leaf: Any) -> bool:
    """Whether it is a stream of a data source, which has a name and options."""
    return bool(leaf.nodeName() == "StreamingRelationV2")


def source_name(leaf: Any) -> str:
    """The data source that a leaf reads; of what is none, what Spark calls it."""
    return str(leaf.sourceName() if is_data_source(leaf) else leaf.nodeName())


def read_streams(plan: Any) -> list[ReadStream]:
    """The streams that a plan reads, with what keeps state of each. One that is read twice is there twice.

    What reads no stream keeps no state: a limit, an aggregate or a join of tables. A common table expression counts where it is used.
    """
    return _read_streams(plan, {})


def _read_streams(plan: Any, expressions: dict[int, list[ReadStream]]) -> list[ReadStream]:
    # Each call is a round trip to the JVM: nothing is looked up that is not needed.
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
