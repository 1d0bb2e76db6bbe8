"""The Python code of the documents, for the tests that check and run it.

A block is a ``code-block:: python`` of a page, without the examples with a prompt, which run as doctests.
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
    """

    page: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    for i, line in enumerate(lines):
        if line.strip() != ".. code-block:: python":
            continue
        indent = len(line) - len(line.lstrip())
        body = []
        for text in lines[i + 1 :]:
            if text.strip() and len(text) - len(text.lstrip()) <= indent:
                break
            body.append("" if text.strip().startswith(":") else text)
        code = textwrap.dedent("\n".join(body))
        if ">>> " not in code:
            yield Block(page.name, i + 2, code)
