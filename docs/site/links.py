"""Turns links between files of the repository into links of the site.

Sphinx loads this extension (``docs/conf.py``). A link such as ``source.rst#options`` is relative to
the file that contains it, as on a forge, and becomes the page of that document. If its text is the path, it shows the title of the page. A page or heading that does not exist is a warning, and so an
error of ``make docs``.
"""

from __future__ import annotations

import posixpath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _resolve(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for node in list(doctree.findall(nodes.reference)):
        path, _, anchor = node.get("refuri", "").partition("#")
        if ":" in path or not path.endswith(".rst"):
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)).removesuffix(".rst")
        if target not in app.env.found_docs:
            logger.warning("%s links to %s, which is no page", page, path, location=node)
        elif anchor and anchor not in _anchors(app, target):
            logger.warning("%s links to %s, which has no heading '%s'", page, path, anchor, location=node)
        else:
            if node.astext() == path:
                node.children = app.env.titles[target].deepcopy().children
            node["refuri"] = app.builder.get_relative_uri(page, target) + (f"#{anchor}" if anchor else "")
            node["internal"] = True


def _anchors(app: Sphinx, page: str) -> set[str]:
    return {name for node in app.env.get_doctree(page).findall(nodes.Element) for name in node.get("ids", ())}
