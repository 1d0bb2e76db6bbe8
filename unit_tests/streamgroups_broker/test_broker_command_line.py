"""``streamgroups broker``: exit codes, messages, and that ``--help`` imports nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker import background
from streamgroups_cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["streamgroups", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "streamgroups"


def test_status_without_a_broker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "broker", "status") == 1
    assert "No broker is running." in capsys.readouterr().out
    assert run(monkeypatch, "broker", "status", "-o", "json") == 1
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "running": False}
    assert run(monkeypatch, "broker", "status", "-o", "csv") == 1
    assert capsys.readouterr().out == "running\nno\n"


def test_stop_without_a_broker_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "broker", "stop") == 0


def test_a_malformed_option_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "broker", "start", "--property", "nonsense") == 2
    assert capsys.readouterr().err == (
        "Error: --property 'nonsense' is not NAME=VALUE. Write it as log.retention.hours=1.\n"
    )


def test_what_start_is_given_reaches_the_broker_in_the_background(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, state: Path
) -> None:
    called: list[tuple[list[str], Path, float]] = []

    def launch(command: list[str], state: Path, timeout_s: float) -> background.Running:
        called.append((command, state, timeout_s))
        return background.Running(1, "127.0.0.1:9092", "/", "id", "4.0.0", 1)

    monkeypatch.setattr(background, "launch", launch)
    given = ["--kafka-version", "4.0.0", "--nodes", "2", "--port", "0", "--property", "a=b"]
    assert run(monkeypatch, "broker", "start", *given, "--timeout", "7500ms", "-o", "csv") == 0
    assert capsys.readouterr().out.splitlines()[1] == "yes,1,127.0.0.1:9092,/,id,4.0.0,1"
    ((command, where, timeout_s),) = called
    assert (where, timeout_s) == (state, 7.5)
    arguments = command[command.index("broker") :]
    assert arguments[:2] == ["broker", "run"]
    pairs = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    required = {"--kafka-version": "4.0.0", "--nodes": "2", "--port": "0", "--property": "a=b"}
    assert pairs == {**required, "--record-in": str(state)}


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


def test_a_record_left_by_a_dead_process_counts_for_nothing(state: Path) -> None:
    state.mkdir()
    (state / "background.lock").touch()
    record = background.Running(1, "127.0.0.1:9092", "/", "id", "4.1.2", 1)
    (state / "background.json").write_text(json.dumps(asdict(record)))
    assert background.find(state) is None
    assert background.stop(state) is None


def test_a_background_command_that_fails_passes_its_words_on(state: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"^no luck$"):
        background.launch([sys.executable, "-c", "import sys; sys.exit('Error: no luck')"], state, 20)


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
