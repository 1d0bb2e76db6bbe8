"""Writes the pages of ``docs/reference`` from the code. ``make reference`` runs it.

The pages are committed, so that they can be read in the repository. A test compares them with the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "connectors"), str(Path(__file__).parent)]

import api_pages  # noqa: E402
import commands  # noqa: E402
import metric_tables  # noqa: E402
import option_tables  # noqa: E402
import package_pages  # noqa: E402

PAGES = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    found = {
        "commands.rst": commands.page(),
        "metrics.rst": metric_tables.page(),
        "options.rst": option_tables.page(),
        "packages.rst": package_pages.page(ROOT),
        **api_pages.pages(),
    }
    return {name: text.rstrip() + "\n" for name, text in found.items()}


def main(folder: Path) -> None:
    """Writes all pages, and deletes other pages of the folder."""
    written = pages()
    for page in folder.glob("*.rst"):
        if page.name not in written:
            page.unlink()
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(PAGES)
