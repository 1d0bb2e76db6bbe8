"""The site draws diagrams with a script of known content, and without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
diagrams = pytest.importorskip("diagrams", reason="the documentation needs Sphinx", exc_type=ImportError)


def test_another_script_is_rejected(tmp_path: Path) -> None:
    script = tmp_path / "mermaid.min.js"
    script.write_text("alert(1)")
    with pytest.raises(diagrams.ExtensionError, match="is not the script of mermaid"):
        diagrams._check(script)


def test_a_block_of_mermaid_becomes_a_diagram_and_other_blocks_stay() -> None:
    from docutils import nodes
    from docutils.frontend import get_default_settings
    from docutils.utils import new_document

    page = new_document("page", get_default_settings())
    for language, code in (("mermaid", "flowchart LR\n    a --> b"), ("python", "1 < 2")):
        page += nodes.literal_block(code, code, language=language)
    diagrams._draw(None, page)
    diagram, block = page.children
    assert "a --&gt; b" in diagram.astext()
    assert block["language"] == "python"
