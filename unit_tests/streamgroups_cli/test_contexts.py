"""Contexts: named clusters, the current one, and which one a command uses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from streamgroups_cli import context_file
from unit_tests.cli_runner import CommandLine


@pytest.fixture
def config(tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "streamgroups" / "config.toml"
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(path))
    return path


def server(cli: CommandLine, *options: str) -> str | None:
    """The cluster that a command with these options connects to."""
    result = cli("groups", "list", *options)
    assert result.code == 0, result.err
    assert cli.config is not None
    return cli.config.get("bootstrap.servers")


def test_set_creates_and_changes_a_context_and_keeps_comments(cli: CommandLine, config: Path) -> None:
    created = cli("contexts", "set", "prod", "-b", "kafka1:9092", "--kafka", "client.id=operator")
    assert created.code == 0
    assert f"Context 'prod' was created in {config}" in created.err
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    config.write_text("# The clusters of the airline\n" + config.read_text())
    assert cli("contexts", "set", "prod", "--bootstrap-server", "kafka2:9092").code == 0
    assert cli("contexts", "set", "test", "-b", "localhost:9092").code == 0
    assert cli("contexts", "use", "prod").code == 0
    assert config.read_text().startswith("# The clusters of the airline\n")
    shown = cli("contexts", "list", "-o", "json")
    assert json.loads(shown.out)["contexts"] == [
        {
            "name": "prod",
            "current": True,
            "bootstrap_servers": "kafka2:9092",
            "command_config": None,
            "settings": {"client.id": "operator"},
        },
        {
            "name": "test",
            "current": False,
            "bootstrap_servers": "localhost:9092",
            "command_config": None,
            "settings": {},
        },
    ]
    assert cli("contexts", "show").out.splitlines()[1].split() == [
        "*",
        "prod",
        "kafka2:9092",
        "-",
        "client.id=operator",
    ]


def test_the_strongest_source_names_the_cluster(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:9092")
    for name in ("prod", "test"):
        cli("contexts", "set", name, "-b", f"{name}:9092", "--kafka", f"client.id={name}")
    assert server(cli) == "broker:9092", "there is no current context"
    cli("contexts", "use", "prod")
    assert server(cli) == "prod:9092"
    assert cli("groups", "list").err == "Context: prod\n"
    assert server(cli, "--context", "test") == "test:9092"
    assert server(cli, "--kafka", "client.id=other") == "prod:9092"
    assert cli.config is not None
    assert cli.config.get("client.id") == "other", "--kafka overrides a setting of the context"
    assert server(cli, "-b", "line:9092") == "line:9092"
    assert cli.config.get("client.id") != "prod", "no part of a context is used for another cluster"
    assert server(cli, "--command-config", str(file)) == "broker:9092"
    monkeypatch.setenv("STREAMGROUPS_CONTEXT", "test")
    assert server(cli) == "test:9092"
    assert server(cli, "-b", "line:9092") == "line:9092"
    monkeypatch.setenv("STREAMGROUPS_BOOTSTRAP_SERVER", "variable:9092")
    assert server(cli, "--context", "prod") == "prod:9092"
    assert "Unset one of them" in cli("groups", "list").err
    monkeypatch.delenv("STREAMGROUPS_CONTEXT")
    assert server(cli) == "variable:9092"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("-b", "line:9092"), "--bootstrap-server"),
        (("--command-config", "a.properties"), "--command-config"),
        (("--kafka", "Bootstrap.Servers=line:9092"), "--kafka bootstrap.servers"),
    ],
)
def test_a_context_and_another_cluster_are_rejected(
    cli: CommandLine, config: Path, options: tuple[str, str], name: str
) -> None:
    cli("contexts", "set", "prod", "-b", "prod:9092")
    rejected = cli("groups", "list", "--context", "prod", *options)
    assert rejected.code == 2
    assert rejected.err == f"Error: --context and {name} both name a cluster. Use one of them.\n"


def test_the_properties_file_of_a_context(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    file = tmp_path / "prod.properties"
    file.write_text("bootstrap.servers=file:9092\nclient.id=from-file")
    assert cli("contexts", "set", "prod", "--command-config", str(file), "-b", "prod:9092").code == 0
    assert server(cli, "--context", "prod") == "prod:9092"
    assert cli.config is not None
    assert cli.config.get("client.id") == "from-file"
    config.write_text(config.read_text().replace(str(file), "../prod.properties"))
    assert server(cli, "--context", "prod") == "prod:9092", "a relative path starts at the file of contexts"


def test_secrets_are_neither_stored_from_the_command_line_nor_printed(cli: CommandLine, config: Path) -> None:
    rejected = cli("contexts", "set", "prod", "-b", "prod:9092", "--kafka", "sasl.password=hunter22")
    assert rejected.code == 2
    assert "hunter22" not in rejected.err
    assert not config.exists()
    config.parent.mkdir()
    config.write_text(
        '[contexts.prod]\nbootstrap-servers = "prod:9092"\n[contexts.prod.settings]\n'
        '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n'
        '"sasl.password" = "hunter22"\n'
    )
    config.chmod(0o644)
    exposed = cli("contexts", "show", "prod")
    assert (exposed.code, exposed.out) == (2, "")
    assert f"Run: chmod 600 {config}." in exposed.err
    config.chmod(0o600)
    for output in ("table", "json", "yaml", "csv"):
        shown = cli("contexts", "show", "prod", "-o", output)
        assert shown.code == 0
        assert "hunter22" not in shown.out + shown.err
        assert "***" in shown.out


def test_a_misspelt_setting_in_the_file_is_not_printed(cli: CommandLine, config: Path) -> None:
    config.parent.mkdir()
    config.write_text('[contexts.p]\nbootstrap-servers = "p:1"\nsettings = {"sasl.pasword" = "hunter22"}\n')
    assert "hunter22" not in cli("contexts", "list").out


def test_an_invalid_change_changes_nothing(cli: CommandLine, config: Path) -> None:
    for arguments, message in (
        (("set", "prod"), "names no cluster"),
        (("set", "prod/eu", "-b", "a:1"), "is not a name of a context"),
        (("set", "prod", "-b", "a:1", "--kafka", "sesion.timeout.ms=1"), "Did you mean"),
        (("use", "prod"), "Context 'prod' does not exist"),
        (("use",), "Either a context or --none is required"),
        (("delete", "prod"), "Context 'prod' does not exist"),
        (("show",), "There is no current context"),
    ):
        rejected = cli("contexts", *arguments)
        assert rejected.code == 2
        assert message in rejected.err
    assert not config.exists()


def test_use_and_delete_read_the_file_once(cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two reads another command could change the file, and the second one would not be checked."""
    assert cli("contexts", "set", "prod", "-b", "kafka1:9092").code == 0
    reads = []
    read = context_file._read

    def counted(path: Path) -> object:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(context_file, "_read", counted)
    assert cli("contexts", "use", "prod").code == 0
    assert cli("contexts", "delete", "prod").code == 0
    assert reads == [config, config], "one for each command"


def test_delete_and_use_none(cli: CommandLine, config: Path) -> None:
    for name in ("prod", "test"):
        cli("contexts", "set", name, "-b", f"{name}:9092")
    cli("contexts", "use", "prod")
    assert cli("contexts", "delete", "prod").err == "Context 'prod' was deleted. There is no current context now.\n"
    assert server(cli) == "broker:9092"
    cli("contexts", "use", "test")
    assert cli("contexts", "use", "--none").err == "There is no current context.\n"
    assert server(cli) == "broker:9092"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[contexts", "is not TOML: line 1"),
        ('current-context = "prod"', "Context 'prod' does not exist"),
        ("[contexts.prod]\nbootstrap-servers = 9092", "has the wrong type"),
        ('[contexts.prod]\nservers = "a:1"', "Key 'servers' of context 'prod' is unknown"),
        (
            '[contexts.prod]\nbootstrap-servers="a:1"\nsettings={"bootstrap.servers"="b:1"}',
            "Use the key bootstrap-servers",
        ),
        ("contexts = 1", "Write a table"),
        ("[contexts.prod]\nsettings = 1", "Write a table"),
        ("contexts = {prod = 1}", "Write a table"),
        ('[contexts.prod]\nbootstrap-servers="a:1"\nsettings={"client.id"=1}', "Write a text in quotes"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_name(cli: CommandLine, config: Path, text: str, message: str) -> None:
    config.parent.mkdir()
    config.write_text(text)
    rejected = cli("contexts", "list")
    assert rejected.code == 2
    assert str(config) in rejected.err
    assert message in rejected.err
    assert cli("groups", "list", "-b", "line:9092").code == 0, "a command that uses no context does not read the file"
