"""``streamgroups broker``: exit codes, messages, and that ``--help`` imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamgroups_broker import serving
from streamgroups_broker._cache import KafkaJars
from streamgroups_broker._java import Java
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
        "Error: A --property option is not NAME=VALUE. Write it as --property log.retention.hours=1.\n"
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


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that replaced the process, without those of Java."""
    replaced: list[list[str]] = []

    def execv(path: str, command: list[str]) -> None:
        assert path == command[0] == "/java"
        replaced.append(command[command.index("-cp") + 2 :])
        sys.exit(7)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "streamgroups").mkdir()
    monkeypatch.delenv("STREAMGROUPS_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.setattr(serving, "find_java", lambda: Java("/java", "17.0.15"))
    monkeypatch.setattr(serving, "release_jars", lambda version, _java: KafkaJars(version, tmp_path, ("a.jar",)))
    monkeypatch.setattr(serving.os, "execv", execv)
    return replaced


def test_a_tool_of_kafka_gets_its_arguments_and_a_server(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tool(*arguments: str) -> list[str]:
        assert run(monkeypatch, "broker", "tool", *arguments) == 7, "the exit code of the tool"
        return commands[-1][1:]

    assert tool("consumer-groups", "--describe", "--group", "x") == [
        *("--bootstrap-server", "localhost:9092", "--describe", "--group", "x")
    ]
    assert commands[-1][0] == "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    assert tool("kafka-topics.sh", "--help", "--", "-o", "json")[2:] == ["--help", "--", "-o", "json"]
    assert tool("topics", "--bootstrap-server", "a:1", "--list") == ["--bootstrap-server", "a:1", "--list"]
    assert tool("-b", "b:2", "topics", "--list") == ["--bootstrap-server", "b:2", "--list"]
    assert tool("dump-log", "--files", "x") == ["--files", "x"]
    monkeypatch.setenv("STREAMGROUPS_BOOTSTRAP_SERVER", "c:3")
    assert tool("topics", "--list") == ["--bootstrap-server", "c:3", "--list"]


def test_an_unknown_tool_is_rejected_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "broker", "tool", "fly") == 2
    assert "Kafka has no tool 'fly' here. One of: acls," in capsys.readouterr().err
