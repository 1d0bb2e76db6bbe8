"""Draws code blocks of the language ``mermaid``, without a network.

Sphinx loads this extension (``docs/conf.py``). GitHub draws such blocks too. The extension packs Mermaid's script into the
site: ``npm`` downloads the package at the first build, and its script stays in ``build/mermaid``. A machine without ``npm``
builds a site that loads the same script from a content delivery network. Both are verified with a hash.

``sphinxcontrib-mermaid`` is not used, because it imports Mermaid as a module. Browsers do not load modules into a page that
was opened from a file, as ``build/docs/index.html`` is after ``make docs``.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

_VERSION = "11.12.1"
_SHA384 = "LlKSgo4Eo5GuF/ZrstLti44dE+GC5XAJ7TSu0Nw9Q3vIZF2QMnkRcK7BUoLabYLF"
_SCRIPT = f"mermaid-{_VERSION}.min.js"
_CACHE = Path(__file__).parent.parent.parent / "build" / "mermaid"
_CDN = f"https://cdn.jsdelivr.net/npm/mermaid@{_VERSION}/dist/mermaid.min.js"
_TIMEOUT_S = 120


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", _provide)
    app.connect("doctree-read", _draw)
    app.connect("html-page-context", _load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _provide(app: Sphinx) -> None:
    if app.builder.format != "html":
        return
    script = _CACHE / _SCRIPT
    if not script.is_file() and (npm := shutil.which("npm")):
        _download(npm, script)
    if script.is_file():
        _check(script)
        app.config.html_static_path.append(str(_CACHE))


def _download(npm: str, script: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"mermaid@{_VERSION}", "--silent", "--ignore-scripts"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            logger.info("npm cannot download mermaid, so diagrams need a network: %s", error)
            return
        (package,) = Path(folder).glob("*.tgz")
        with tarfile.open(package) as archive:
            found = archive.extractfile("package/dist/mermaid.min.js")
            content = found.read() if found else b""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_bytes(content)


def _check(script: Path) -> None:
    digest = base64.b64encode(hashlib.sha384(script.read_bytes()).digest()).decode()
    if digest != _SHA384:
        raise ExtensionError(f"{script} is not the script of mermaid {_VERSION}: its hash is {digest}. Delete it.")


def _draw(app: Sphinx, doctree: nodes.document) -> None:
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            html = f'<pre class="mermaid" tabindex="0">{escape(block.astext())}</pre>'
            block.replace_self(nodes.raw("", html, format="html", classes=["diagram"]))


def _load(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    if doctree is None or not any("diagram" in node["classes"] for node in doctree.findall(nodes.raw)):
        return
    if (_CACHE / _SCRIPT).is_file():
        app.add_js_file(_SCRIPT, loading_method="defer")
    else:
        app.add_js_file(_CDN, loading_method="defer", integrity=f"sha384-{_SHA384}", crossorigin="anonymous")
    app.add_js_file("diagrams.js", loading_method="defer")
