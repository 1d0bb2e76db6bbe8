"""The effects of Spark's logical operators on a stream, by their names in a plan.

Used by ``bridge.plan``. An operator that no list contains is unknown: it can have state across batches, or move records
between tasks. Such a plan is rejected where one of both matters. Each list contains only operators with one effect, and
``component_tests/test_spark_operators.py`` compares the lists with all operators of the installed Spark. Source: Spark's
``org.apache.spark.sql.catalyst.plans.logical``, ``SparkStrategies``, ``UnsupportedOperationChecker``, ``ReplaceOperators``
and ``MicroBatchExecution`` (4.0 to 4.3).
"""

from __future__ import annotations

#: Operators that process row after row, or have no effect: each record stays in its task, in its order.
ROW_BY_ROW = frozenset(
    (
        "AppendColumns",
        "AppendColumnsWithObject",
        "ArrowEvalPython",
        "ArrowEvalPythonUDTF",
        "BatchEvalPython",
        "BatchEvalPythonUDTF",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "LimitAll",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "MapPartitionsInR",
        "MapPartitionsInRWithArrow",
        "PipeOperator",
        "Project",
        "ResolvedHint",
        "Sample",
        "ScriptTransformation",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
        "UpdateEventTimeWatermarkColumn",
        "View",
    )
)
#: Those that only select, rename and convert columns. Others can be between a reader and the operator that receives its
#: records directly only if Spark passes the records (``bridge.direct``).
SELECTING = frozenset(("EventTimeWatermark", "Project", "SubqueryAlias"))
#: Operators that only combine plans, or are the output of a query.
COMBINING = frozenset(
    (
        "CTERelationDef",
        "Union",
        "WithCTE",
        "WriteToMicroBatchDataSource",
        "WriteToMicroBatchDataSourceV1",
    )
)
#: Operators with state across batches. Spark replaces ``Except`` and ``Intersect`` by a join and an ``Aggregate``.
STATEFUL = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "Except",
        "Except All",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "Intersect",
        "Intersect All",
        "TransformWithState",
        # Its name in Spark 4.0.
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    )
)
#: The operator with state if all of its inputs are streams.
JOIN = "Join"
#: Operators without state that can move records to other tasks, or change their order.
MOVING = frozenset(
    (
        "CoGroup",
        "FlatMapCoGroupsInArrow",
        "FlatMapCoGroupsInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInR",
        "FlatMapGroupsInRWithArrow",
        "LateralJoin",
        "LocalLimit",
        "MapGroups",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "Window",
    )
)
KNOWN = ROW_BY_ROW | COMBINING | STATEFUL | MOVING | {JOIN}
