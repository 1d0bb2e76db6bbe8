"""The hook of ``.pre-commit-config.yaml`` rejects long commit subjects.

The hook is a regular expression, which pre-commit searches in the bytes of the message. Source: pre-commit's ``pygrep``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CONFIG: dict[str, Any] = yaml.safe_load((Path(__file__).parent.parent / ".pre-commit-config.yaml").read_text())
(HOOK,) = (hook for repo in CONFIG["repos"] for hook in repo["hooks"] if hook["id"] == "commit-subject")


def _is_rejected(message: str) -> bool:
    return re.compile(HOOK["entry"].encode(), re.MULTILINE | re.DOTALL).search(message.encode()) is not None


def test_the_hook_reads_commit_messages_and_is_installed_with_the_others() -> None:
    assert HOOK["language"] == "pygrep"
    assert HOOK["args"] == ["--multiline"]
    assert HOOK["stages"] == ["commit-msg"]
    assert set(CONFIG["default_install_hook_types"]) == {"pre-commit", "commit-msg"}
    assert CONFIG["default_stages"] == ["pre-commit"]


@pytest.mark.parametrize(
    "message",
    [
        "x" * 72 + "\n",
        "é" * 72 + "\n",
        "Read offsets\n\n" + "A long line of the body. " * 9,
        "Read offsets\n# A comment of git follows without an empty line.\n",
        "fixup! " + "x" * 72 + "\n",
    ],
)
def test_a_message_is_accepted(message: str) -> None:
    assert not _is_rejected(message)


@pytest.mark.parametrize("message", ["x" * 73, "é" * 73 + "\n", "Read\noffsets\n", "Read\n\tbody"])
def test_a_message_is_rejected(message: str) -> None:
    assert _is_rejected(message)
