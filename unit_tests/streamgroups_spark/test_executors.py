"""The function that ``streamgroups doctor --executors`` runs on executors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamgroups_spark.ops.executors import task_check


def interpreter() -> str:
    (facts,) = task_check((), (), 1.0)(())
    return str(facts["interpreter"])


def test_the_python_of_an_archive_has_the_same_path_on_each_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for executor in ("0", "1"):
        directory = tmp_path / executor
        directory.mkdir()
        monkeypatch.chdir(directory)
        monkeypatch.setattr(sys, "executable", str(directory / "environment" / "bin" / "python"))
        assert interpreter() == "./environment/bin/python"


def test_any_other_python_has_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/streamgroups/bin/python")
    for directory in (tmp_path, Path("/")):
        monkeypatch.chdir(directory)
        assert interpreter() == "/opt/streamgroups/bin/python"


def test_an_invalid_name_of_a_broker_is_an_unknown_host() -> None:
    brokers = ["kafka..internal:9092", f"{'a' * 64}.internal:9092", ".kafka:9092"]
    (facts,) = task_check((), brokers, 1.0)(())
    assert facts["unreachable"] == dict.fromkeys(brokers, "unknown host")
