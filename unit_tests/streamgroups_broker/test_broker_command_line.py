"""``streamgroups broker``: exit codes, messages, and that ``--help`` imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamgroups_cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["streamgroups", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_malformed_option_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "broker", "run", "--property", "nonsense") == 2
    assert capsys.readouterr().err == (
        "Error: --property 'nonsense' is not NAME=VALUE. Write it as log.retention.hours=1.\n"
    )


def test_a_release_that_cannot_be_embedded_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "broker", "run", "--kafka-version", "3.6.2") == 2
    assert "3.6.2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["broker", "run", "--nodes", "4"], ["broker", "fly"], ["broker", "run", "--port", "x"]]
)
def test_usage_errors_are_exit_code_2(monkeypatch: pytest.MonkeyPatch, wrong: list[str]) -> None:
    assert run(monkeypatch, *wrong) == 2


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['streamgroups', 'broker', '--help']\n"
        "from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'confluent_kafka', 'pyarrow', 'streamgroups_broker') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.splitlines()[-1] == "[]"
