"""What a query reads and does, by the plan that Spark has analysed.

Called by ``exactly_once`` and ``event_time`` on the driver, with Spark's own objects behind py4j. Source: Spark's ``LogicalPlan`` and
``StreamingRelationV2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


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
