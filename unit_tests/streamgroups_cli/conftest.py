"""What tests of the command line share."""

from __future__ import annotations

import pytest

from unit_tests.cli_runner import CommandLine


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line on a cluster in memory; it is 00:16:40 on the first of January 1970."""
    return CommandLine(monkeypatch, capsys)
