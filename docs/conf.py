"""The documentation as a site: ``make docs`` builds it with Sphinx. Warnings are errors.

The pages are also read in the repository, so they link to each other as files (```source.rst <source.rst#options>`_``).
``docs/site/links.py`` turns these links into links of the site, and rejects a link to a missing page or heading. The pages of
``docs/reference`` are text that ``make reference`` writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "site"), str(DOCS.parent)]

from streamgroups import __version__  # noqa: E402

project = "streamgroups"
author = "The authors of streamgroups"
copyright = author
version = release = __version__

extensions = [
    "sphinx_copybutton",
    "links",
    "diagrams",
]
exclude_patterns = ["_build"]
nitpicky = False

# The prompt is not part of a command or an example.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "streamgroups"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b34700", "color-brand-content": "#b34700"},
    "dark_css_variables": {"color-brand-primary": "#ff9a57", "color-brand-content": "#ff9a57"},
}
linkcheck_timeout = 20
linkcheck_ignore = [r"http://localhost.*"]
