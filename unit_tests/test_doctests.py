"""Runs every example in a docstring, and every interactive example in a document."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

DOCUMENTS = [
    p for p in (Path(__file__).parent.parent / "docs").glob("*.rst") if ">>> " in p.read_text(encoding="utf-8")
]
PACKAGES = (
    "streamgroups",
    "streamgroups_kafka",
    "streamgroups_sinks",
    "streamgroups_spark",
    "streamgroups_broker",
    "streamgroups_cli",
    "streamgroups_admin",
    "streamgroups_schemas",
    "streamgroups_operators",
    "streamgroups_testkit",
)


def _modules() -> list[str]:
    found = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [m.name for m in pkgutil.walk_packages(path, f"{package}.") if not m.name.endswith("__main__")]
    return found


@pytest.mark.parametrize("name", _modules())
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    # The search for examples in a module without one takes most of the time: it searches the source of each class.
    file = Path(str(module.__file__))
    if file.suffix == ".py" and ">>> " not in file.read_text(encoding="utf-8"):
        return
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_in_documents(document: Path) -> None:
    failed, _ = doctest.testfile(str(document), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed
