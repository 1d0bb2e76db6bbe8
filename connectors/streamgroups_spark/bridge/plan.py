"""Reads the streams and stateful operators of a query from its analyzed plan.

Called by ``sinks.exactly_once``, ``event_time.with_event_time``, ``state.operator_plan`` and ``bridge.active_queries`` on
the driver, with Spark's objects behind py4j. Source: Spark's ``LogicalPlan``, ``StreamingRelationV2``,
``StreamingDataSourceV2ScanRelation``, ``DataSourceV2Relation`` and ``MicroBatchExecution.containsStatefulOperator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from streamgroups_spark.internals.connect import require_classic
from streamgroups_spark.internals.logical_operators import JOIN, KNOWN, MOVING, ROW_BY_ROW, STATEFUL
from streamgroups_spark.internals.private_spark import analyzed_plan

#: The format of the source of this library.
FORMAT = "streamgroups"
_BOUNDED = "DataSourceV2Relation"
#: The name of the function of an operator with state (``state.stage``), before the name of the operator.
STAGE = "streamgroups_operators:"


@dataclass(frozen=True, slots=True)
class ReadStream:
    """A stream that a plan reads.

    Args:
        leaf: the node of the plan that reads it.
        operators: the stateful operators of Spark above it.
        stages: the operators of this library in the stage that reads it (``bridge.stage_name``), in the order in which they
            process its records.
        moved_by: operations between it and such an operator that move records to other tasks.
        moves: operations above it that move records to other tasks.
        unknown_before: unknown operators of Spark (``internals.logical_operators``) between it and such an operator.
        unknown: unknown operators of Spark above it. They can have state, or move records.
    """

    leaf: Any
    operators: frozenset[str] = frozenset()
    stages: tuple[str, ...] = ()
    moved_by: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()
    unknown_before: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


def analyzed(df: DataFrame) -> Any:
    """Returns the analyzed plan of a DataFrame.

    Raises:
        InvalidOption: if the DataFrame belongs to Spark Connect, whose client has no plan.
    """
    require_classic(df, "An operation of this library on the plan of a DataFrame")
    return analyzed_plan(df)


def operators(plan: Any) -> frozenset[str]:
    """Returns the names of the operators of a plan, without those of its leaves."""
    children = plan.children()
    if not children.size():
        return frozenset()
    below = (operators(children.apply(i)) for i in range(children.size()))
    return frozenset((str(plan.nodeName()),)).union(*below)


def columns_of(plan: Any) -> dict[str, str]:
    """Returns the columns of the output of a plan: their names by the ids of their expressions."""
    output = plan.output()
    return {output.apply(i).exprId().toString(): str(output.apply(i).name()) for i in range(output.size())}


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
    if leaf.nodeName() == _BOUNDED:
        return str(leaf.table().name())
    return str(leaf.sourceName() if is_data_source(leaf) else leaf.nodeName())


def source_options(leaf: Any) -> dict[str, str]:
    """Returns the options of a leaf that is a stream or a batch read of a data source."""
    if leaf.nodeName() == _BOUNDED:
        return dict(leaf.options().asCaseSensitiveMap())
    return dict(leaf.extraOptions())


def moves_of_bounded(plan: Any) -> frozenset[str]:
    """Returns the operations of a plan over bounded data that can move records to other tasks, or change their order."""
    return operators(plan) - ROW_BY_ROW


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
    stage = stage_of(plan) if name == "MapInArrow" else None
    is_stateful = name in STATEFUL or (name == JOIN and all(below))
    return [_below(name, stage, stream, is_stateful=is_stateful) for stream in streams]


def _below(name: str, stage: str | None, stream: ReadStream, *, is_stateful: bool) -> ReadStream:
    """Returns a stream with the operator above it.

    Args:
        name: the name of the operator.
        stage: the text of the operator with state that it runs; ``None`` if it runs none.
        stream: the stream.
        is_stateful: whether it has a state of Spark.
    """
    if is_stateful:
        stream = replace(stream, operators=stream.operators | {name})
    if name not in KNOWN:
        stream = replace(stream, unknown=stream.unknown | {name})
    elif name in MOVING or name in STATEFUL or name == JOIN:
        stream = replace(stream, moves=stream.moves | {name})
    if stage is None:
        return stream
    moved, unknown = stream.moved_by | stream.moves, stream.unknown_before | stream.unknown
    return replace(stream, stages=(*stream.stages, stage), moved_by=moved, unknown_before=unknown)


def stage_of(node: Any) -> str | None:
    """Returns the text of the operator with state (``bridge.stage_name``) that a ``MapInArrow`` node runs. ``None`` for any other function."""
    name = str(node.functionExpr().name())
    return name.removeprefix(STAGE) if name.startswith(STAGE) else None
