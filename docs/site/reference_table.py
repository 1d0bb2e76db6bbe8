"""A table of names and their meanings, in a generated page of the reference.

Used by ``option_tables`` and ``metric_tables``. Source: docutils' ``list-table``.
"""

from __future__ import annotations

from collections.abc import Iterable

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


def table(
    directive: SphinxDirective, title: str, widths: tuple[int, int], rows: Iterable[tuple[str, str, str]]
) -> list[nodes.Node]:
    """Returns the nodes of a table. The page depends on the code, so each build reads it again.

    Args:
        directive: the directive in whose place the table is.
        title: the heading of the names.
        widths: the widths of both columns, in percent.
        rows: a name, its meaning, and a second paragraph.
    """
    directive.env.note_reread()
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        f"   :widths: {widths[0]} {widths[1]}",
        "   :class: long-names",
        "",
        f"   * - {title}",
        "     - Meaning",
    ]
    for name, meaning, details in rows:
        lines += [f"   * - ``{name}``", f"     - {meaning}", "", f"       {details}"]
    section = nodes.Element()
    directive.state.nested_parse(StringList(lines), directive.content_offset, section)
    return section.children
