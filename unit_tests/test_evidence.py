"""Recorded runs: the table has one row for each command, and the page is that of the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests import evidence
from integration_tests.evidence import TABLE, Run, read, result_of, table, with_run, write


def _run(command: str, **changed: object) -> Run:
    values: dict[str, object] = {
        "date": "2026-11-27",
        "commit": "1a2b3c4d",
        "minutes": 1.5,
        "exit_code": 0,
        "result": "1 passed in 2s",
    }
    return Run(command, **{**values, **changed})  # type: ignore[arg-type]


def test_the_table_of_the_documents_is_that_of_the_recorded_runs() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(read())


def test_a_later_run_of_a_command_replaces_its_row(tmp_path: Path) -> None:
    runs = with_run([_run("make b"), _run("make c")], _run("make a"))
    runs = with_run(runs, _run("make b", exit_code=2, result="1 failed in 2s"))
    write(runs, tmp_path / "rows", tmp_path / "table")
    assert read(tmp_path / "rows") == runs
    assert [(it.command, it.exit_code) for it in runs] == [("make a", 0), ("make b", 2), ("make c", 0)]
    assert "- exit code 2: ``1 failed in 2s``" in (tmp_path / "table").read_text()


def test_all_summaries_of_pytest_are_the_result() -> None:
    lines = [
        "\x1b[32m== \x1b[1m7 passed\x1b[0m in 3.1s ==\n",
        "passed in a text\n",
        "%3|17.810|FAIL|rdkafka#producer-7| 127.0.0.1:22205 failed: no connection (after 0ms in state CONNECT)\n",
        "= 2 skipped, 1 passed in 4s =\n",
        "bye\n",
    ]
    assert result_of(lines) == "7 passed in 3.1s; 2 skipped, 1 passed in 4s"
    assert result_of([]) == ""


def _git(*arguments: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=evidence.ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one file of code and one recorded run."""
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    for name in ("ROWS", "TABLE"):
        monkeypatch.setattr(evidence, name, tmp_path / "docs" / name)
    monkeypatch.setattr(evidence, "read", lambda: read(evidence.ROWS))
    monkeypatch.setattr(evidence, "write", lambda runs: write(runs, evidence.ROWS, evidence.TABLE))
    (tmp_path / "docs").mkdir()
    (tmp_path / "code").write_text("1")
    evidence.write([_run("make b")])
    _git("init", "--quiet")
    _git("add", ".")
    _git("commit", "--quiet", "-m", "Begin")
    return tmp_path


def test_a_run_has_the_exit_code_of_its_command(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "print('3 faults'); raise SystemExit(4)"]
    assert evidence.main(command) == 4
    finished, other = evidence.read()
    assert (finished.exit_code, finished.result, other) == (4, "3 faults", _run("make b"))
    assert capsys.readouterr().out == "3 faults\n"
    assert finished.commit == _git("rev-parse", "--short=8", "HEAD")


def test_a_run_of_changed_code_is_marked_and_one_of_changed_results_is_not(repository: Path) -> None:
    evidence.write([_run("make c")])
    (repository / "untracked").write_text("1")
    commit = _git("rev-parse", "--short=8", "HEAD")
    assert evidence.run(["true"]).commit == commit
    (repository / "code").write_text("2")
    assert evidence.run(["true"]).commit == commit + "+"


def test_without_a_command_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main([]) == 2
    assert "python -m integration_tests.evidence make nightly" in capsys.readouterr().err
