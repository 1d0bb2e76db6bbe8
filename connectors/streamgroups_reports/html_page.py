"""The templates of self-contained HTML pages. They load no other files, and follow the reader's light or dark colours.

:mod:`streamgroups_reports.ownership`, :mod:`streamgroups_reports.event_time` and the demo render them. Source: CSS Color
Adjustment (``color-scheme``).
"""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_HERE = "streamgroups_reports"


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
