"""The page of the reference about the packages, from their docstrings and from the contracts of their imports.

``reference`` calls it. It reads the sources and ``setup.cfg``, so that no package is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

from docstrings import converted
from markup import heading

_INTRODUCTION = """\
The purpose of each package, and the rules that concern one package only. `architecture.rst <../architecture.rst>`_ is the map.
W4, X3 and the like are numbers of `semantics.rst <../semantics.rst>`_.

"""

_LAYERS = """\
A package, a folder or a module imports only what is below it, and nothing beside it in its own layer. ``setup.cfg`` has
these contracts, and ``make lint`` checks them.

"""


def page(root: Path) -> str:
    """The text of the page.

    Args:
        root: the directory of the project.
    """
    sources = [root / "streamgroups", *sorted(path.parent for path in (root / "connectors").glob("*/__init__.py"))]
    sections = [part for source in sources for part in _packages(source, source.parent)]
    contracts = ConfigParser()
    contracts.read(root / "setup.cfg", encoding="utf-8")
    return heading("Packages", "=") + _INTRODUCTION + "".join(layers(contracts)) + "".join(sections)


def layers(contracts: ConfigParser) -> Iterator[str]:
    """The section about layers: a diagram of each contract that orders packages, folders or modules.

    Args:
        contracts: the configuration of import-linter.

    >>> contracts = ConfigParser()
    >>> contracts.read_string("[importlinter:contract:a]\\nname = All\\ntype = layers\\nlayers =\\n b | c\\n a")
    >>> print("".join(layers(contracts)).partition("flowchart TD")[2])
    <BLANKLINE>
            layer0["b, c"]
            layer1["a"]
            layer0 --> layer1
    <BLANKLINE>
    <BLANKLINE>
    """
    yield heading("Layers", "-") + _LAYERS
    for section in contracts.sections():
        contract = contracts[section]
        if contract.get("type") != "layers":
            continue
        names = [", ".join(part.strip() for part in line.split("|")) for line in contract["layers"].split("\n") if line]
        nodes = [f'        layer{i}["{text}"]\n' for i, text in enumerate(names)]
        arrows = " --> ".join(f"layer{i}" for i in range(len(names)))
        container = f"``{contract['containers'].strip()}``" if "containers" in contract else "All packages"
        yield f"{container}:\n\n.. code-block:: mermaid\n\n    flowchart TD\n{''.join(nodes)}        {arrows}\n\n"


def _packages(folder: Path, root: Path) -> Iterator[str]:
    name = ".".join(folder.relative_to(root).parts)
    module = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    yield heading(name, "-") + converted(ast.get_docstring(module) or "", {})
    for path in sorted(folder.glob("*/__init__.py")):
        yield from _packages(path.parent, root)
