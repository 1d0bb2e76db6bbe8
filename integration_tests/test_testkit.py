"""The example in ``docs/testkit.rst`` runs as it is written, with the plugin and no other settings of this project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from integration_tests.tiers import LONG

DOCUMENT = Path(__file__).parents[1] / "docs" / "testkit.rst"
_FILE = re.compile(r"\.\. code-block:: python\n   :caption: (\S+)\n\n((?:(?:   .*)?\n)+)")


@LONG
def test_the_documented_example(tmp_path: Path) -> None:
    files = dict(_FILE.findall(DOCUMENT.read_text(encoding="utf-8")))
    assert set(files) == {"conftest.py", "test_flights.py"}
    for name, content in files.items():
        (tmp_path / name).write_text(textwrap.dedent(content), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    # Only the plugin of this project is loaded.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
