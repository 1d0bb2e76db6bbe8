"""The pages of ``docs/reference`` are those that the code generates."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
pytest.importorskip("docutils", reason="the documentation needs Sphinx")
reference = importlib.import_module("reference")
api_pages = importlib.import_module("api_pages")
docstrings = importlib.import_module("docstrings")


def test_the_pages_are_fresh() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in reference.PAGES.glob("*")}
    generated = reference.pages()
    stale = sorted(it for it in committed | generated if committed.get(it) != generated.get(it))
    if stale:
        pytest.fail(f"The code has changed: run 'make reference', and commit docs/reference ({', '.join(stale)}).")


def test_a_page_that_is_no_longer_generated_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "pages", lambda: {"api.rst": "API\n"})
    (tmp_path / "old.rst").write_text("Old\n")
    reference.main(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"api.rst": "API\n"}


def test_a_module_of_the_api_has_a_page_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shape:
        """A shape of windows, for :func:`register`.

        Args:
            size, hop: durations.

        Raises:
            InvalidOption: if a value is no duration.
        """

        def __init__(self, size: str, *, hop: str = "1m") -> None: ...

    shapes = ModuleType("streamgroups.shapes", "Shapes of windows.")
    shapes.Shape = Shape  # type: ignore[attr-defined]
    shapes.__all__ = ["Shape"]  # type: ignore[attr-defined]

    public = api_pages._public

    def with_shapes(module: Any) -> dict[str, Any]:
        return public(module) | ({"shapes": shapes} if module is api_pages.sg else {})

    monkeypatch.setattr(api_pages, "_public", with_shapes)
    pages = api_pages.pages()
    assert "* - `sg.shapes <api-shapes.rst>`__\n     - Shapes of windows." in pages["api.rst"]
    text = pages["api-shapes.rst"]
    assert text.startswith("sg.shapes\n=========\n")
    assert "::\n\n    sg.shapes.Shape(size: str, *, hop: str = '1m')\n" in text
    assert "A shape of windows, for `register <api.rst#sg-register>`__." in text
    assert "Arguments:\n\n``size``, ``hop``\n    durations.\n" in text
    assert "Raises:\n\n``InvalidOption``\n    if a value is no duration.\n" in text


def test_a_default_without_a_literal_is_left_out() -> None:
    def f(clock: Any = lambda: 0, *names: str, at: int | None = None) -> None: ...

    assert api_pages.signature("f", f) == "f(clock: Any = ..., *names: str, at: int | None = None)"


def test_a_long_signature_has_one_argument_on_each_line() -> None:
    def f(self: Any, first: str, *, second: str = "x" * 60, third: str = "y" * 30) -> str: ...

    text = api_pages.signature("A.f", f)
    assert (
        text
        == f"A.f(\n    first: str,\n    *,\n    second: str = '{'x' * 60}',\n    third: str = '{'y' * 30}',\n) -> str"
    )


def test_a_role_of_an_undocumented_name_is_code() -> None:
    def f() -> None:
        """Calls :meth:`streamgroups.ledgers.Sink.begin` (SEMANTICS X1). Then it ends."""

    assert docstrings.summary(f, {}) == "Calls ``begin``."


@pytest.mark.parametrize("name", ["api_pages", "docstrings", "markup", "metric_tables", "option_tables"])
def test_examples(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted
    assert not failed
