"""Every number that a test name or a docstring cites is defined in ``docs/semantics.rst``."""

from __future__ import annotations

import re
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


def test_each_cited_number_is_defined() -> None:
    defined = set(re.findall(r"^\.\. _([A-Z]\d+):$", (ROOT / "docs" / "semantics.rst").read_text(), re.MULTILINE))
    cited: dict[str, str] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for match in (*_CITED.finditer(text), *_IN_NAMES.finditer(text)):
                cited |= dict.fromkeys(_numbers(match.group(1)), str(path.relative_to(ROOT)))
    assert len(cited) > 40
    assert {number: path for number, path in cited.items() if number not in defined} == {}
