"""The public names of ``import streamgroups``, and the cost of this import."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamgroups as sg

#: A first program needs no more names. Others are in modules by topic.
MOST_NAMES = 30
#: The modules with names that are loaded at their first use.
LAZY = {"": sg} | {name: getattr(sg, name) for name in sg._MODULES if name != "errors"}
lazy_modules = pytest.mark.parametrize("module", LAZY.values(), ids=LAZY.keys())


@lazy_modules
def test_everything_offered_is_there(module: Any) -> None:
    assert dir(module) == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name)
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'regsiter'"):
        _ = module.regsiter


def test_a_name_is_at_one_place() -> None:
    names = [name for module in LAZY.values() for name in module._PLACES]
    assert sorted(names) == sorted(set(names))
    assert len(set(sg.__all__) - {"__version__"}) <= MOST_NAMES
    assert issubclass(sg.errors.InvalidOption, sg.errors.StreamGroupsError)


@lazy_modules
def test_the_reference_documents_every_name_once(module: Any) -> None:
    topic = module.__name__.removeprefix("streamgroups").removeprefix(".")
    page = Path(__file__).parent.parent / "docs" / "reference" / f"{f'api-{topic}' if topic else 'api'}.rst"
    documented = re.findall(r"^sg\.(?:\w+\.)?(\w+)\n-+$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(documented) == set(module._PLACES) - set(sg.cursors.CursorType.__members__)


@lazy_modules
def test_type_checkers_see_the_same_names_from_the_same_places(module: Any) -> None:
    (checked,) = (it for it in ast.parse(inspect.getsource(module)).body if isinstance(it, ast.If))
    seen = {}
    for statement in checked.body:
        if isinstance(statement, ast.ImportFrom):
            seen |= {it.asname: f"{statement.module}" for it in statement.names if it.asname == it.name}
        elif isinstance(statement, ast.Assign):
            (target,), value = statement.targets, statement.value
            assert isinstance(target, ast.Name)
            assert ast.unparse(value) == f"CursorType.{target.id}"
            seen[target.id] = f"{sg.cursors.CursorType.__module__}:CursorType"
    assert {name for name, place in seen.items() if place == "streamgroups"} == set(sg._MODULES if module is sg else ())
    assert {name: place for name, place in seen.items() if place != "streamgroups"} == module._PLACES


def test_importing_it_and_its_fakes_imports_neither_spark_nor_a_client() -> None:
    code = """
import sys
import streamgroups, streamgroups.ports, streamgroups.fakes, streamgroups.query.offset_lookup
print(*sorted({name.partition(".")[0] for name in sys.modules} & {
    "pyspark", "pyarrow", "pandas", "confluent_kafka", "deltalake", "psycopg", "typer", "rich", "tenacity",
    "streamgroups_kafka", "streamgroups_sinks", "streamgroups_spark", "streamgroups_broker"}))
"""
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []


def test_no_name_hides_a_module() -> None:
    # The import of a module sets an attribute of its package, which would hide a name that is no module.
    assert not {m.name for m in pkgutil.iter_modules(sg.__path__)} & set(sg._PLACES)
    for name in sg._MODULES:
        assert getattr(sg, name).__name__ == f"streamgroups.{name}"
