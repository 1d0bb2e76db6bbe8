"""Each operator of the installed Spark is known to be stateless, stateful or moving, or it is rejected in a plan.

The test lists the classes of the jars of PySpark by reflection. After an upgrade of Spark it fails for each new operator:
add it to a list of ``internals.logical_operators``, or to the operators below.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from streamgroups_spark.internals.logical_operators import JOIN, KNOWN

_PACKAGE = "org.apache.spark.sql."
_LOGICAL = f"{_PACKAGE}catalyst.plans.logical."
#: Operators with children that a plan with a stream can contain only if Spark or this library rejects it. Those before the
#: analysis: the analyzer replaces them.
BEFORE_ANALYSIS = frozenset(
    [
        "DataFrameDropColumns",
        "GeneralParameterizedQuery",
        "NameParameterizedQuery",
        "NamedStreamingRelation",
        "Pivot",
        "PlanWithUnresolvedIdentifier",
        "PosParameterizedQuery",
        "Unpivot",
        "WithWindowDefinition",
    ]
)
#: Those of the optimizer, which come after the plan that this library reads.
OF_THE_OPTIMIZER = frozenset(["DomainJoin", "OrderedJoin", "ReturnAnswer", "Subquery", "WindowGroupLimit"])
#: Statements of SQL scripts, and writes. The plan of a stream contains none of them.
STATEMENTS = frozenset(
    [
        "AutoCdcInto",
        "Call",
        "CreateTable",
        "ErrorCondition",
        "ExceptionHandler",
        "ForStatement",
        "IfElseStatement",
        "InsertIntoDir",
        "InsertIntoStatement",
        "IterateStatement",
        "LeaveStatement",
        "LoopStatement",
        "MergeRows",
        "MultiResult",
        "RepeatStatement",
        "SearchedCaseStatement",
        "SimpleCaseStatement",
        "SingleStatement",
        "WhileStatement",
        "WriteFiles",
        "WriteToContinuousDataSource",
        "WriteToDataSourceV2",
        "WriteToStream",
        "WriteToStreamStatement",
    ]
)
#: Operators that a stream could have, and whose effect on it is not known. They are rejected.
REJECTED = frozenset(
    [
        "AsOfJoin",
        "AttachDistributedSequence",
        "BinBy",
        "MapPartitionsExternalUDF",
        "MetricViewPlaceholder",
        "NearestByJoin",
        "Offset",
        "ResolvedMetricView",
        "SQLFunctionNode",
        "SequentialStreamingUnion",
        "Tail",
        "UnionLoop",
        "Zip",
    ]
)
#: Operators that not all versions from 4.0 to 4.3 have.
OF_SOME_VERSIONS = frozenset(["LimitAll", "TransformWithStateInPandas", "TransformWithStateInPySpark"])
#: ``nodeName`` is the simple name of the class, with these exceptions.
OWN_NAMES = {"Except": {"Except", "Except All"}, "Intersect": {"Intersect", "Intersect All"}}


def _candidates() -> Iterator[str]:
    """The classes in the jars of Spark that refer to logical operators."""
    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("spark-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                is_class = name.startswith(_PACKAGE.replace(".", "/")) and name.endswith(".class") and "$" not in name
                if is_class and b"plans/logical/" in archive.read(name):
                    yield name.removesuffix(".class").replace("/", ".")


@pytest.fixture(scope="module")
def operators(local_spark: SparkSession) -> dict[str, Any]:
    """The classes of the logical operators with children, by their simple names."""
    jvm: Any = local_spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def load(name: str) -> Any:
        return jvm.java.lang.Class.forName(name, False, loader)

    is_abstract = jvm.java.lang.reflect.Modifier.isAbstract
    plan, command, leaf = (load(f"{_LOGICAL}{it}") for it in ("LogicalPlan", "Command", "LeafNode"))
    found = {}
    for name in _candidates():
        of = load(name)
        is_operator = plan.isAssignableFrom(of) and not is_abstract(of.getModifiers())
        if is_operator and not any(it.isAssignableFrom(of) for it in (command, leaf)):
            found[name.rpartition(".")[2]] = of
    return found


def test_each_operator_of_spark_is_known_or_rejected(operators: dict[str, Any]) -> None:
    classified = KNOWN | BEFORE_ANALYSIS | OF_THE_OPTIMIZER | STATEMENTS | REJECTED
    unknown = sorted(it for it in operators if it not in classified and not it.startswith("Unresolved"))
    assert not unknown, (
        f"PySpark {pyspark.__version__} has logical operators that no list contains: {', '.join(unknown)}. Add each of them to "
        "streamgroups_spark.internals.logical_operators if its effect on a stream is known, otherwise to a list of this test."
    )


def test_a_rejected_operator_is_not_known() -> None:
    assert not KNOWN & (BEFORE_ANALYSIS | OF_THE_OPTIMIZER | STATEMENTS | REJECTED)


def test_each_known_name_is_an_operator_of_spark(operators: dict[str, Any]) -> None:
    assert len(operators) > 80
    names = {name for it in operators for name in OWN_NAMES.get(it, {it})}
    assert JOIN in names
    unknown = sorted(KNOWN - names - OF_SOME_VERSIONS)
    assert not unknown, f"PySpark {pyspark.__version__} has no such operators: {', '.join(unknown)}"


def test_the_name_of_a_known_operator_is_that_of_its_class(
    operators: dict[str, Any], local_spark: SparkSession
) -> None:
    context: Any = local_spark.sparkContext
    no_arguments = context._gateway.new_array(context._jvm.java.lang.Class, 0)
    own = {
        name
        for name in KNOWN & operators.keys()
        if not operators[name].getMethod("nodeName", no_arguments).getDeclaringClass().getName().endswith(".TreeNode")
    }
    assert own == OWN_NAMES.keys()
