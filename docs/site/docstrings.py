"""The docstrings of the library as reStructuredText that docutils reads without extensions.

``api_pages`` calls it. Sections such as ``Args:`` become definition lists, and roles such as ``:func:`windows``` become links
to the pages of the reference, or code.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any

_SECTIONS = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises"}
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)}):")
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): +(\S.*)")
_ROLE = re.compile(r":\w+:`~?([\w.]+)`")


def summary(found: Any, links: Mapping[str, str]) -> str:
    """The first sentence of a docstring, in one line; empty without a docstring.

    >>> summary(inspect.getdoc, {})
    'Get the documentation string for an object.'
    """
    paragraph = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
    first, dot, _ = re.sub(r" \(SEMANTICS [^)]*\)", "", paragraph).partition(". ")
    return _with_links(first + (dot and "."), links)


def body(found: Any, links: Mapping[str, str]) -> str:
    """The whole docstring of an object; see :func:`converted`."""
    return converted(inspect.getdoc(found) or "", links)


def converted(docstring: str, links: Mapping[str, str]) -> str:
    """A whole docstring.

    Args:
        docstring: the text, without its indentation.
        links: the place in the reference of each name that has one, such as ``#sg-windows``.
    """
    parts: list[str] = []
    section: list[str] | None = None
    for line in inspect.cleandoc(docstring).split("\n"):
        opened = _SECTION.fullmatch(line)
        if section is not None and line and not line.startswith(" "):
            parts += _entries(section)
            section = None
        if opened:
            parts += [f"{_SECTIONS[opened.group(1)]}:", ""]
            section = []
        elif section is not None:
            section.append(line)
        else:
            parts.append(line)
    parts += _entries(section or [])
    return _with_links("\n".join(parts).rstrip(), links) + "\n\n"


def _entries(lines: list[str]) -> list[str]:
    """The entries of a section as definitions. Text without a name stays a paragraph.

    >>> _entries(["    a: one", "        line.", "    b, c: two."])
    ['``a``', '    one', '    line.', '``b``, ``c``', '    two.', '']
    """
    found: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).strip("\n").split("\n"):
        if entry := _ENTRY.fullmatch(line):
            found += [", ".join(f"``{name}``" for name in entry.group(1).split(", ")), f"    {entry.group(2)}"]
        else:
            found.append(line)
    return [*found, ""] if any(found) else []


def _with_links(text: str, links: Mapping[str, str]) -> str:
    def link(role: re.Match[str]) -> str:
        name = role.group(1).rpartition(".")[2]
        return f"`{name} <{links[name]}>`__" if name in links else f"``{name}``"

    return _ROLE.sub(link, text)
