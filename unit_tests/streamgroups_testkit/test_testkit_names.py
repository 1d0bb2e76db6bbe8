"""The public names of ``streamgroups_testkit``, and the document that lists them."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import streamgroups_testkit as testkit

DOCUMENT = Path(__file__).parents[2] / "docs" / "testkit.rst"


def test_every_name_exists_and_is_documented() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert dir(testkit) == sorted(testkit.__all__)
    for name in testkit.__all__:
        assert getattr(testkit, name)
        assert name in document
    with pytest.raises(AttributeError, match="module 'streamgroups_testkit' has no attribute 'prodcue'"):
        _ = testkit.prodcue


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    (checked,) = (it for it in ast.parse(inspect.getsource(testkit)).body if isinstance(it, ast.If))
    seen = {
        it.asname: statement.module
        for statement in checked.body
        if isinstance(statement, ast.ImportFrom)
        for it in statement.names
        if it.asname == it.name
    }
    assert seen == testkit._PLACES


def test_no_name_is_also_a_module() -> None:
    # The import of a module sets an attribute of the package, which would hide the name.
    assert not {m.name for m in pkgutil.iter_modules(testkit.__path__)} & set(testkit.__all__)


def test_importing_it_and_its_plugin_imports_neither_spark_nor_a_client() -> None:
    code = """
import sys
import streamgroups_testkit, streamgroups_testkit.pytest_plugin
print(*sorted({name.partition(".")[0] for name in sys.modules} & {
    "pyspark", "pyarrow", "confluent_kafka", "psycopg", "testcontainers", "streamgroups_kafka", "streamgroups_spark"}))
"""
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []
