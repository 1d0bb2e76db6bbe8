"""The code of the documents, for the tests that check and run it.

A block is a ``code-block`` of a page, without the examples with a Python prompt, which run as doctests.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.rst", *sorted((ROOT / "docs").rglob("*.rst")))


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code.

    Args:
        page: the name of the page, such as ``sinks.rst``.
        line: the number of its first line.
        code: the code, without indentation.
        language: ``python`` or ``console``.
        caption: the caption; empty without one.
    """

    page: str
    line: int
    code: str
    language: str
    caption: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The blocks of a page in some languages, in order. Default: Python."""
    lines = page.read_text(encoding="utf-8").split("\n")
    for i, line in enumerate(lines):
        directive, _, language = line.strip().partition(":: ")
        if directive != ".. code-block" or language not in (languages or ("python",)):
            continue
        indent = len(line) - len(line.lstrip())
        body, caption = [], ""
        for text in lines[i + 1 :]:
            if text.strip() and len(text) - len(text.lstrip()) <= indent:
                break
            if text.strip().startswith(":caption: "):
                caption = text.strip().removeprefix(":caption: ")
            body.append("" if text.strip().startswith(":") else text)
        code = textwrap.dedent("\n".join(body))
        if ">>> " not in code:
            yield Block(page.name, i + 2, code, language, caption)
