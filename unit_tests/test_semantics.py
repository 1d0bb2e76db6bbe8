"""Every number that a test name or a docstring cites is defined in ``docs/semantics.rst``, and ``make test`` tests it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("streamgroups", "connectors", "unit_tests", "component_tests", "integration_tests", "benchmarks", "demo")
_CITED = re.compile(r"SEMANTICS\s+((?:[A-Z]\d+(?:-[A-Z]?\d+)?(?:,\s+)?)+)")
_IN_NAMES = re.compile(r"def test_((?:[A-Z]\d{1,2}_)+)")


def _numbers(citation: str) -> set[str]:
    found = set()
    for first, section, last in re.findall(r"([A-Z]\d+)(?:-([A-Z]?)(\d+))?", citation):
        found.add(first)
        if last:
            assert section in {"", first[0]}, citation
            found |= {f"{first[0]}{n}" for n in range(int(first[1:]), int(last) + 1)}
    return found


def test_citations_are_parsed() -> None:
    assert _numbers("X2-X4, S9, G1-3") == {"X2", "X3", "X4", "S9", "G1", "G2", "G3"}


def _defined() -> set[str]:
    return set(re.findall(r"^\.\. _([A-Z]\d+):$", (ROOT / "docs" / "semantics.rst").read_text(), re.MULTILINE))


def test_each_cited_number_is_defined() -> None:
    defined = _defined()
    cited: dict[str, str] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for match in (*_CITED.finditer(text), *_IN_NAMES.finditer(text)):
                cited |= dict.fromkeys(_numbers(match.group(1)), str(path.relative_to(ROOT)))
    assert len(cited) > 40
    assert {number: path for number, path in cited.items() if number not in defined} == {}


def _is_long(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) in ("pytest.mark.long", "LONG") for decorator in function.decorator_list)


def promises() -> dict[str, list[str]]:
    """The tests of each number that run in ``make test``: by the name of the test, or the first words of its docstring or
    of its module's.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("unit_tests", "component_tests", "integration_tests"):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            of_module = _leading(ast.get_docstring(module))
            for function in ast.walk(module):
                if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test_"):
                    continue
                if _is_long(function):
                    continue
                named = re.match(r"test_((?:[A-Z]\d{1,2}_)+)", function.name)
                numbers = set(named[1].split("_")[:-1]) if named else of_module
                for number in numbers | _leading(ast.get_docstring(function)):
                    found[number].append(f"{path.relative_to(ROOT)}::{function.name}")
    return found


def _leading(docstring: str | None) -> set[str]:
    """The numbers before the first colon: ``S1, G11-G12: members that join``."""
    found = re.match(r"((?:[A-Z]\d{1,2}(?:-[A-Z]?\d{1,2})?(?:, | and )?)+):", docstring or "")
    return _numbers(found[1]) if found else set()


def test_make_test_covers_each_number() -> None:
    tested = promises()
    assert {number for number in _defined() if not tested.get(number)} == set()
