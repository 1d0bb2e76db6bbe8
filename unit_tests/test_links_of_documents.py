"""The documents can be read in the repository: docutils parses them without Sphinx, and their links lead to files.

A forge shows a page without extensions, ignores unknown options of directives, and names headings by docutils' ids. Source:
``rest2html`` of ``github/markup``.
"""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from unit_tests.documents import PAGES, ROOT

pytest.importorskip("docutils", reason="the documentation needs Sphinx")

from docutils import nodes
from docutils.core import publish_doctree

SHOWN = (*PAGES, ROOT / "CHANGELOG.rst", ROOT / "CONTRIBUTING.rst")
#: The start of the site: its tables of contents are lists of Sphinx.
START = ROOT / "docs" / "index.rst"
_PATH = re.compile(r"``((?:\.\./)?(?:docs|docker|demo|benchmarks|unit_tests|integration_tests)/[\w./-]+\.\w+)``")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def _parsed(page: Path) -> tuple[nodes.document, str]:
    text = re.sub(r"^ +:caption: .*\n", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if page == START:
        text = re.sub(r"^\.\. toctree::\n(?: .*\n|\n)+", "", text, flags=re.MULTILINE)
    messages = io.StringIO()
    settings = {"syntax_highlight": "none", "file_insertion_enabled": False, "doctitle_xform": False}
    found = publish_doctree(
        text,
        source_path=str(page),
        settings_overrides={**settings, "report_level": 2, "halt_level": 5, "warning_stream": messages},
    )
    return found, messages.getvalue()


@cache
def _headings(page: Path) -> frozenset[str]:
    return frozenset(name for node in _parsed(page)[0].findall(nodes.Element) for name in node.get("ids", ()))


def broken_links(page: Path) -> list[str]:
    """The links and images of a page that lead to no file, or to no heading of a page."""
    found = _parsed(page)[0]
    uris = [node["refuri"] for node in found.findall(nodes.reference) if "refuri" in node]
    uris += [node["uri"] for node in found.findall(nodes.image)]
    broken = []
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        is_missing = not target.exists() or not target.is_relative_to(ROOT.resolve())
        if is_missing or (parts.fragment and target.suffix == ".rst" and parts.fragment not in _headings(target)):
            broken.append(uri)
    return broken


@pytest.mark.parametrize("page", SHOWN, ids=_name)
def test_a_page_can_be_read_in_the_repository(page: Path) -> None:
    assert _parsed(page)[1] == "", "needs an extension"
    assert broken_links(page) == []
    paths = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert {path for path in paths if not (ROOT / path).exists()} == set(), "the text names files that do not exist"


def test_broken_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "sinks.rst").write_text("Sinks\n=====\n")
    page = tmp_path / "docs" / "page.rst"
    page.write_text(
        "Page\n====\n\n`a <sinks.rst#sinks>`_ `b <docs/sinks.rst>`_ `c <sinks.rst#no-such>`_ `d <#page>`_ `e <#no>`_\n"
        "`f <https://example.org/x.rst>`_ `g <../../outside.rst>`_\n\n.. image:: missing.svg\n"
    )
    assert broken_links(page) == ["docs/sinks.rst", "sinks.rst#no-such", "#no", "../../outside.rst", "missing.svg"]
