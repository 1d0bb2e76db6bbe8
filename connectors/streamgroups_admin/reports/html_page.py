"""The templates of self-contained HTML pages. They load no other files, and follow the reader's light or dark colours.

:mod:`streamgroups_admin.reports.ownership`, :mod:`streamgroups_admin.reports.event_time` and the demo render them. Source: CSS Color
Adjustment (``color-scheme``).
"""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import escape

_HERE = "streamgroups_admin.reports"
#: The height of a page without its chart: margins, the heading and the legend.
_PAGE_PX = 230


def templates(package: str = _HERE) -> Environment:
    """Returns the templates of a package, which can extend and include those of this one.

    Values are escaped, except ``markupsafe.Markup``. ``page.html`` requires ``title``, ``intro`` and, unless its block
    ``body`` is overridden, ``chart``.

    Args:
        package: the package with a folder ``templates``.

    >>> html = templates().get_template("page.html").render(title="Nobody <yet>", intro="", chart="")
    >>> "<h1>Nobody &lt;yet&gt;</h1>" in html
    True
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, _HERE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def in_frame(page: str, *, height_px: float) -> str:
    """Returns a page as a part of a notebook. The frame keeps the styles of the page and of the notebook apart.

    Args:
        page: a whole HTML page.
        height_px: the height of its chart. The page can be scrolled.

    >>> in_frame('<p class="x">', height_px=100)
    '<iframe srcdoc="&lt;p class=&#34;x&#34;&gt;" style="width: 100%; height: 330px; border: 0"></iframe>'
    """
    style = f"width: 100%; height: {round(height_px) + _PAGE_PX}px; border: 0"
    return f'<iframe srcdoc="{escape(page)}" style="{style}"></iframe>'
