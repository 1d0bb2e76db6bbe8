"""Only one module for each dependency has the private parts of PySpark, the JVM of Spark, and kafka-python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_CONNECTORS = Path(__file__).parent.parent / "connectors"
#: The test kit and the embedded broker run no query of a user.
_MODULES = sorted(
    path
    for package in (
        "streamgroups_spark",
        "streamgroups_operators",
        "streamgroups_cli",
        "streamgroups_admin",
        "streamgroups_sinks",
    )
    for path in (_CONNECTORS / package).rglob("*.py")
)
_KAFKA_MODULES = sorted((_CONNECTORS / "streamgroups_kafka").rglob("*.py"))
_KAFKA_PYTHON = "streamgroups_kafka/client/private_kafka_python.py"
_INTERNALS = "streamgroups_spark/internals/"
_PRIVATE = f"{_INTERNALS}private_spark.py"
#: Private attributes of sessions, contexts, DataFrames and queries of PySpark.
_ATTRIBUTE = re.compile(
    r"_(j[a-z]\w*|sc|gateway|activeSession|instantiatedSession|active_spark_context|get_j_\w+|to_java\w*)"
)
#: Modules that PySpark's documentation does not contain.
_UNDOCUMENTED = re.compile(
    r"pyspark\.(cloudpickle|daemon|java_gateway|serializers|shell|shuffle|util|worker\w*|sql\.pandas|sql\.utils|sql\.worker"
    r"|sql\.streaming\.python_\w+|\w+\._\w+|_\w+)(\.|$)"
)
#: The Python functions of this module are documented by another one.
_DOCUMENTED = ("pyspark.sql.pandas.functions",)
#: Methods of Spark's objects of plans, of running queries, and of the application.
_OF_THE_JVM = frozenset(
    (
        "activeStreamingQueries",
        "cteId",
        "children",
        "collectLeaves",
        "exprId",
        "extraOptions",
        "functionExpr",
        "getActiveSession",
        "getExecutorInfos",
        "logicalPlan",
        "nodeName",
        "projectList",
        "queryExecution",
        "readField",
        "resolvedCheckpointRoot",
        "sessionState",
        "sharedState",
        "sourceName",
        "statusTracker",
        "streamingQuery",
    )
)
_READ_PLANS = ("bridge/plan.py", "bridge/direct.py", "bridge/active_queries.py")


def _name(path: Path) -> str:
    return path.relative_to(_CONNECTORS).as_posix()


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (it.name for it in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from (f"{node.module}.{it.name}" for it in node.names)


def private(source: str, name: str) -> list[str]:
    """The private accesses of a module that another module must make."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if _ATTRIBUTE.fullmatch(node.attr) and not is_own and name != _PRIVATE:
                found.append(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            may_read = name == _PRIVATE or name.removeprefix("streamgroups_spark/") in _READ_PLANS
            if node.func.attr in _OF_THE_JVM and not may_read:
                found.append(node.func.attr)
        if name.startswith(_INTERNALS):
            continue
        undocumented = [it for it in _imported(node) if _UNDOCUMENTED.match(it) and not it.startswith(_DOCUMENTED)]
        private_names = [it for it in _imported(node) if it.startswith("pyspark.") and "._" in it]
        found += {*undocumented, *private_names} - {"pyspark.__version__"}
    return found


@pytest.mark.parametrize("module", _MODULES, ids=_name)
def test_only_one_module_depends_on_private_parts_of_spark(module: Path) -> None:
    assert private(module.read_text(encoding="utf-8"), _name(module)) == [], f"move it to {_PRIVATE}"


@pytest.mark.parametrize("module", [*_MODULES, *_KAFKA_MODULES], ids=_name)
def test_only_one_module_imports_private_parts_of_kafka_python(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    found = [it for node in ast.walk(tree) for it in _imported(node) if it.startswith("kafka.")]
    private_names = [it for it in found if not it.startswith("kafka.errors")]
    assert _name(module) == _KAFKA_PYTHON or private_names == [], f"import it from {_KAFKA_PYTHON}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("df._jdf.queryExecution()", ["_jdf", "queryExecution"]),
        ("spark.sparkContext._jsc", ["_jsc"]),
        ("SparkSession._activeSession = spark", ["_activeSession"]),
        ("self._jobs, cls._sc", []),
        ("from pyspark import cloudpickle", ["pyspark.cloudpickle"]),
        ("from pyspark.sql.types import _parse_datatype_string", ["pyspark.sql.types._parse_datatype_string"]),
        ("from pyspark.sql.pandas.types import from_arrow_type", ["pyspark.sql.pandas.types.from_arrow_type"]),
        ("from pyspark import __version__", []),
        ("import pyspark.sql.functions", []),
        ("plan.nodeName() == 'Project'", ["nodeName"]),
    ],
)
def test_private_accesses_are_found(source: str, found: list[str]) -> None:
    assert sorted(private(source, "streamgroups_spark/ops/executors.py")) == sorted(found)


def test_the_modules_for_it_may() -> None:
    assert private("df._jdf.queryExecution()", _PRIVATE) == []
    assert private("plan.nodeName()", "streamgroups_spark/bridge/plan.py") == []
    assert private("df._jdf", "streamgroups_spark/bridge/plan.py") == ["_jdf"]
