"""The page of the reference about the packages, from their docstrings.

``reference`` calls it. It reads the sources, so that no package is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from docstrings import converted
from markup import heading

_INTRODUCTION = """\
The purpose of each package, and the rules that concern one package only. `architecture.rst <../architecture.rst>`_ is the map.
W4, X3 and the like are numbers of `semantics.rst <../semantics.rst>`_.

"""


def page(root: Path) -> str:
    """The text of the page.

    Args:
        root: the directory of the project.
    """
    sources = [root / "streamgroups", *sorted(path.parent for path in (root / "connectors").glob("*/__init__.py"))]
    sections = [part for source in sources for part in _packages(source, source.parent)]
    return heading("Packages", "=") + _INTRODUCTION + "".join(sections)


def _packages(folder: Path, root: Path) -> Iterator[str]:
    name = ".".join(folder.relative_to(root).parts)
    module = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    yield heading(name, "-") + converted(ast.get_docstring(module) or "", {})
    for path in sorted(folder.glob("*/__init__.py")):
        yield from _packages(path.parent, root)
