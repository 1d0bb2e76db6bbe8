"""The public names of ``import streamgroups``, and the cost of this import."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamgroups as sg

#: The types of arguments and results of the API: type hints must only need documented paths.
HANDLED = {
    *("BatchLedger", "BatchTime", "LedgerBatch", "LedgerPosition", "LedgerPositions", "LedgerTable"),
    *("DescribedGroup", "GroupState", "Message", "OffsetRange", "Outcome", "OwnershipTimeline"),
    *("PythonAggregate", "TimeExplanation", "TimeRecorder", "TopicPartition"),
}


def test_everything_offered_is_there() -> None:
    assert dir(sg) == sorted(set(sg.__all__))
    assert set(sg.__all__) >= HANDLED | {"errors", "__version__"}
    for name in sg.__all__:
        assert getattr(sg, name)
    assert issubclass(sg.errors.InvalidOption, sg.errors.StreamGroupsError)


def test_the_reference_documents_every_name_once() -> None:
    text = (Path(__file__).parent.parent / "docs" / "reference" / "api.rst").read_text(encoding="utf-8")
    documented = re.findall(r"^sg\.(\w+)\n-+$", text, re.MULTILINE)
    assert len(documented) == len(set(documented))
    elsewhere = {"__version__", "errors", *sg.CursorType.__members__}
    assert set(documented) == set(sg.__all__) - elsewhere


def test_type_checkers_see_the_same_names_from_the_same_places() -> None:
    (checked,) = (it for it in ast.parse(inspect.getsource(sg)).body if isinstance(it, ast.If))
    seen = {}
    for statement in checked.body:
        if isinstance(statement, ast.ImportFrom):
            seen |= {it.asname: f"{statement.module}" for it in statement.names if it.asname == it.name}
        elif isinstance(statement, ast.Assign):
            (target,), value = statement.targets, statement.value
            assert isinstance(target, ast.Name)
            assert ast.unparse(value) == f"CursorType.{target.id}"
            seen[target.id] = f"{sg.CursorType.__module__}:CursorType"
    assert seen.pop("errors") == "streamgroups"
    assert seen == sg._PLACES


def test_what_is_not_offered_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'streamgroups' has no attribute 'regsiter'"):
        _ = sg.regsiter


def test_importing_it_and_its_fakes_imports_neither_spark_nor_a_client() -> None:
    code = """
import sys
import streamgroups, streamgroups.ports, streamgroups.fakes, streamgroups.query.offset_lookup
print(*sorted({name.partition(".")[0] for name in sys.modules} & {
    "pyspark", "pyarrow", "pandas", "confluent_kafka", "deltalake", "psycopg", "typer", "rich", "tenacity",
    "streamgroups_kafka", "streamgroups_delta", "streamgroups_postgres", "streamgroups_spark", "streamgroups_broker"}))
"""
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []


def test_no_name_of_the_facade_is_also_a_folder() -> None:
    # The import of a subpackage sets an attribute of the package, which would hide the name.
    assert {m.name for m in pkgutil.iter_modules(sg.__path__)} & set(sg.__all__) <= {"errors"}
