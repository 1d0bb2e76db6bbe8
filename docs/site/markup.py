"""reStructuredText for the generated pages of the reference, which docutils reads without extensions.

The modules that generate pages call it. The pages are read in the repository, on a forge, and in the site.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def heading(text: str, mark: str) -> str:
    """A heading and the empty line after it.

    >>> heading("Options", "=")
    'Options\\n=======\\n\\n'
    """
    return f"{text}\n{mark * len(text)}\n\n"


def literal(code: str) -> str:
    """A block of code without a language.

    >>> literal("a = 1")
    '::\\n\\n    a = 1\\n\\n'
    """
    return f"::\n\n{textwrap.indent(code, '    ')}\n\n"


def table(titles: Sequence[str], widths: Sequence[int], rows: Iterable[Sequence[str]]) -> str:
    """A table of lists.

    Args:
        titles: the headings of the columns.
        widths: the widths of the columns, in percent.
        rows: the cells of each row. A cell can have several paragraphs, which empty lines separate.

    >>> print(table(["Option", "Meaning"], [40, 60], [["``a``", "One."]]).rstrip())
    .. list-table::
       :header-rows: 1
       :widths: 40 60
    <BLANKLINE>
       * - Option
         - Meaning
       * - ``a``
         - One.
    """
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {' '.join(map(str, widths))}", ""]
    for row in (titles, *rows):
        for i, cell in enumerate(row):
            first, *rest = cell.split("\n")
            lines.append(f"   {'* -' if i == 0 else '  -'} {first}")
            lines += [f"       {line}" if line else "" for line in rest]
    return "\n".join(lines) + "\n\n"
