"""The commands of connections: what they store and print, the current context, and which cluster a command uses."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamgroups_cli import connections_file, file_changes
from streamgroups_sinks.delta import probe
from unit_tests.cli_runner import CommandLine
from unit_tests.connections_file import SECRET, remove_secrets, write_connections


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


def test_set_creates_and_changes_a_connection_and_keeps_comments(cli: CommandLine, config: Path) -> None:
    created = cli("connections", "set", "prod", "-b", "kafka1:9092", "--setting", "client.id=operator")
    assert created.code == 0
    assert f"Connection 'prod' was created in {config}" in created.err
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    config.write_text("# The clusters of the airline\n" + config.read_text())
    assert cli("connections", "set", "prod", "--bootstrap-server", "kafka2:9092").code == 0
    assert cli("connections", "set", "test", "-b", "localhost:9092").code == 0
    assert cli("connections", "use", "prod").code == 0
    assert config.read_text().startswith("# The clusters of the airline\n")
    shown = cli("connections", "list", "-o", "json")
    kafka = {"type": "kafka", "command_config": None}
    assert json.loads(shown.out)["connections"] == [
        {
            "name": "prod",
            "current": True,
            "address": "kafka2:9092",
            "settings": {"client.id": "operator"},
            **kafka,
        },
        {"name": "test", "current": False, "address": "localhost:9092", "settings": {}, **kafka},
    ]
    assert cli("connections", "show").out.splitlines()[1].split() == [
        "*",
        "prod",
        "kafka",
        "kafka2:9092",
        "-",
        "client.id=operator",
    ]


def test_a_byte_order_mark_is_no_part_of_the_file(cli: CommandLine, config: Path) -> None:
    assert cli("connections", "set", "prod", "-b", "kafka1:9092").code == 0
    config.write_text(config.read_text(), encoding="utf-8-sig")
    assert server(cli, "--context", "prod") == "kafka1:9092"
    assert cli("connections", "set", "prod", "-b", "kafka2:9092").code == 0
    assert server(cli, "--context", "prod") == "kafka2:9092"


DOTTED = """# The clusters of the airline
[connections]
prod.type = "kafka"
prod.bootstrap-servers = "kafka1:9092"
"""
DOTTED_FROM_THE_TOP = DOTTED.replace("[connections]\n", "").replace("prod.", "connections.prod.")


@pytest.mark.parametrize("text", [DOTTED, DOTTED_FROM_THE_TOP], ids=["table", "top"])
@pytest.mark.parametrize(
    ("arguments", "addresses"),
    [
        (("set", "prod", "-b", "kafka2:9092"), {"prod": "kafka2:9092"}),
        (("set", "prod", "-b", "kafka2:9092", "--setting", "client.id=a"), {"prod": "kafka2:9092"}),
        (("set", "test", "-b", "test:9092"), {"prod": "kafka1:9092", "test": "test:9092"}),
        (("use", "prod"), {"prod": "kafka1:9092"}),
        (("delete", "prod"), {}),
    ],
    ids=["address", "setting", "new", "use", "delete"],
)
def test_a_change_of_dotted_keys_is_correct_or_rejected(
    cli: CommandLine, config: Path, text: str, arguments: tuple[str, ...], addresses: dict[str, str]
) -> None:
    config.parent.mkdir()
    config.write_text(text)
    results = [cli("connections", *arguments, *dry_run) for dry_run in (("--dry-run",), ())]
    codes = {it.code for it in results}
    assert len(codes) == 1, "a dry run has the same result"
    if codes == {0}:
        listed = json.loads(cli("connections", "list", "-o", "json").out)["connections"]
        assert {it["name"]: it["address"] for it in listed} == addresses
        assert [it["settings"] for it in listed if "--setting" in arguments] in ([], [{"client.id": "a"}])
        assert config.read_text().startswith("# The clusters of the airline\n")
        return
    for it in results:
        assert it.code == 2
        assert f"{config} has a form that cannot be changed, such as dotted keys." in it.err
        assert "Write each connection as a table, [connections.NAME]" in it.err
    assert config.read_text() == text


def test_a_new_connection_is_a_table_of_its_own(cli: CommandLine, config: Path) -> None:
    config.parent.mkdir()
    config.write_text('# mine\n[connections.a]\ntype = "kafka" # of Kafka\nbootstrap-servers = "a:1"\n')
    assert cli("connections", "set", "a", "--env", "sasl.password=A", "--setting", "client.id=a").code == 0
    assert cli("connections", "set", "a", "--file", "sasl.password=/a").code == 0
    assert cli("connections", "set", "b", "-b", "b:1").code == 0
    assert config.read_text() == (
        '# mine\n[connections.a]\ntype = "kafka" # of Kafka\nbootstrap-servers = "a:1"\n\n[connections.a.settings]\n'
        '"client.id" = "a"\n"sasl.password" = {file = "/a"}\n\n[connections.b]\ntype = "kafka"\nbootstrap-servers = "b:1"\n'
    )


def test_the_strongest_source_names_the_cluster(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:9092")
    for name in ("prod", "test"):
        cli("connections", "set", name, "-b", f"{name}:9092", "--setting", f"client.id={name}")
    assert server(cli) == "broker:9092", "there is no current context"
    cli("connections", "use", "prod")
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
    cli("connections", "set", "prod", "-b", "prod:9092")
    rejected = cli("groups", "list", "--context", "prod", *options)
    assert rejected.code == 2
    assert rejected.err == f"Error: --context and {name} both name a cluster. Use one of them.\n"


def test_the_properties_file_of_a_context(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    file = tmp_path / "prod.properties"
    file.write_text("bootstrap.servers=file:9092\nclient.id=from-file")
    assert cli("connections", "set", "prod", "--command-config", str(file), "-b", "prod:9092").code == 0
    assert server(cli, "--context", "prod") == "prod:9092"
    assert cli.config is not None
    assert cli.config.get("client.id") == "from-file"
    config.write_text(config.read_text().replace(str(file), "../prod.properties"))
    assert server(cli, "--context", "prod") == "prod:9092", "a relative path starts at the file of contexts"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sasl.password", ("-b", "prod:9092")),
        ("sasl.pasword", ("-b", "prod:9092")),
        ("password", ("--conninfo", "host=db")),
        ("AWS_SECRET_ACCESS_KEY", ("--location", "s3://bucket")),
        ("azure_storage_master_key", ("--location", "az://bucket")),
        ("scram_client_key", ("--conninfo", "host=db")),
        ("basic.auth.user.info", ("--url", "http://registry.example:8081")),
    ],
)
def test_a_secret_of_the_command_line_is_not_stored(
    cli: CommandLine, config: Path, name: str, options: tuple[str, ...]
) -> None:
    rejected = cli("connections", "set", "prod", *options, "--setting", f"{name}=hunter22")
    assert rejected.code == 2
    assert f"--env {name}=VARIABLE or --file {name}=/path" in rejected.err
    for option in ("--env", "--file"):
        # A secret without its name, or in the place of a reference.
        assert cli("connections", "set", "prod", *options, option, "hunter22").code == 2
    assert not config.exists()
    assert "hunter22" not in rejected.err


def test_a_login_in_an_address_is_not_stored(cli: CommandLine, config: Path) -> None:
    for options in (
        ("--location", "s3://me:hunter22@bucket"),
        ("--url", "http://me:hunter22@registry.example:8081"),
        ("--conninfo", "postgresql://me:hunt/hunter22@db/flights"),
        ("--location", "s3://AKIA:abc/hunter22@bucket/t"),
        ("--conninfo", "postgresql://me:hunter22@db/flights"),
        ("--conninfo", "host=db password=hunter22"),
        ("--conninfo", "host=db sslpassword=hunter22"),
        ("--conninfo", "postgresql://db/flights?oauth_client_secret=hunter22"),
    ):
        rejected = cli("connections", "set", "prod", *options)
        assert (rejected.code, rejected.out) == (2, "")
        assert "hunter22" not in rejected.err
    assert "Pass a reference: --env oauth_client_secret=VARIABLE" in rejected.err
    assert not config.exists()


def test_a_location_is_stored_as_a_path_or_a_url(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    for given, stored in (("file:/data", "/data"), (f"{tmp_path}/a", f"{tmp_path}/a"), ("s3://bucket", "s3://bucket")):
        assert cli("connections", "set", "lake", "--location", given).code == 0
        assert f'location = "{stored}"\n' in config.read_text()
    rejected = cli("connections", "set", "lake", "--location", "dbfs:/data")
    assert rejected.code == 2
    assert "--location has the scheme 'dbfs:' without a host or bucket. Write dbfs://HOST/PATH" in rejected.err


def test_references_are_stored_and_shown(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    for arguments in (
        ("prod", "-b", "prod:9092", "--env", "sasl.password=KAFKA_PASSWORD", "--setting", "sasl.username=me"),
        ("warehouse", "--conninfo", "host=db user=me", "--file", f"password={tmp_path}/pg"),
        ("url", "--type", "postgres", "--env", "conninfo=DATABASE_URL"),
        ("lake", "--location", str(tmp_path), "--env", "AWS_SECRET_ACCESS_KEY=KEY", "--setting", "AWS_REGION=eu"),
        ("registry", "--url", "http://registry.example:8081", "--env", "basic.auth.user.info=LOGIN"),
    ):
        created = cli("connections", "set", *arguments)
        assert created.code == 0, created.err
    found = {it["name"]: it for it in json.loads(cli("connections", "list", "-o", "json").out)["connections"]}
    assert found["prod"]["settings"] == {"sasl.password": {"env": "KAFKA_PASSWORD"}, "sasl.username": "me"}
    assert found["warehouse"]["address"] == "host=db user=me"
    assert found["warehouse"]["settings"] == {"password": {"file": f"{tmp_path}/pg"}}
    assert found["url"]["address"] == {"env": "DATABASE_URL"}
    assert found["lake"] == {
        "name": "lake",
        "type": "delta",
        "current": False,
        "address": str(tmp_path),
        "command_config": None,
        "settings": {"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": {"env": "KEY"}},
    }
    assert "sasl.password=env:KAFKA_PASSWORD sasl.username=me" in cli("connections", "show", "prod").out
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_secrets_in_the_file_are_not_printed(cli: CommandLine, config: Path) -> None:
    config.parent.mkdir()
    config.write_text(
        '[connections.prod]\ntype = "kafka"\nbootstrap-servers = "prod:9092"\n[connections.prod.settings]\n'
        '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n'
        '"sasl.password" = "hunter22"\n[connections.db]\ntype="postgres"\nconninfo="host=db password=hunter22"\n'
        '[connections.lake]\ntype="delta"\nlocation="s3://b"\nstorage-options={AWS_SECERT="hunter22"}\n'
    )
    config.chmod(0o644)
    exposed = cli("connections", "show", "prod")
    assert (exposed.code, exposed.out) == (2, "")
    assert f"Run: chmod 600 {config}." in exposed.err
    config.chmod(0o600)
    for output in ("table", "json", "yaml", "csv"):
        shown = cli("connections", "list", "-o", output)
        assert shown.code == 0
        assert "hunter22" not in shown.out + shown.err
        assert "***" in shown.out


def test_a_misspelt_setting_in_the_file_is_not_printed(cli: CommandLine, config: Path) -> None:
    config.parent.mkdir()
    config.write_text(
        '[connections.p]\ntype="kafka"\nbootstrap-servers = "p:1"\nsettings = {"sasl.usrname" = "hunter22"}\n'
    )
    assert "hunter22" not in cli("connections", "list").out


def test_a_command_resolves_the_secrets_of_its_context(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = (
        "--setting",
        "security.protocol=SASL_SSL",
        "--setting",
        "sasl.mechanism=PLAIN",
        "--setting",
        "sasl.username=u",
    )
    assert cli("connections", "set", "prod", "-b", "p:1", *login, "--env", "sasl.password=THE_SECRET").code == 0
    missing = cli("groups", "list", "--context", "prod")
    assert missing.code == 2
    assert "environment variable THE_SECRET of 'sasl.password' is not set" in missing.err
    monkeypatch.setenv("THE_SECRET", "hunter22")
    listed = cli("groups", "list", "--context", "prod")
    assert listed.code == 0
    assert cli.config is not None
    assert cli.config.get("sasl.password") == "hunter22"
    assert "hunter22" not in listed.out + listed.err


def test_a_dry_run_changes_nothing(cli: CommandLine, config: Path) -> None:
    made = cli("connections", "set", "prod", "-b", "a:1", "--dry-run", "-o", "json")
    assert made.code == 0
    assert json.loads(made.out)["connections"][0]["address"] == "a:1"
    assert made.err == "Dry run, nothing was changed.\n"
    assert not config.exists()
    cli("connections", "set", "prod", "-b", "a:1")
    content = config.read_text()
    for arguments in (("use", "prod"), ("delete", "prod"), ("set", "prod", "-b", "b:1")):
        dry = cli("connections", *arguments, "--dry-run")
        assert dry.code == 0
        assert "Dry run, nothing was changed" in dry.err
        assert config.read_text() == content
    assert cli("connections", "delete", "prd", "--dry-run").code == 2


def test_an_invalid_change_changes_nothing(cli: CommandLine, config: Path) -> None:
    for arguments, message in (
        (("set", "prod"), "The type of the connection is not known"),
        (("set", "prod", "--type", "kafka"), "names no cluster"),
        (("set", "prod", "--type", "kafak"), "Did you mean 'kafka'?"),
        (("set", "prod", "-b", "a:1", "--url", "http://a:1"), "The options belong to several types"),
        (("set", "prod", "--type", "delta", "-b", "a:1"), "is of type delta, and the options belong to kafka"),
        (("set", "prod/eu", "-b", "a:1"), "is not a name of a connection"),
        (("set", "prod", "-b", "a:1", "--setting", "sesion.timeout.ms=1"), "Did you mean 'session.timeout.ms'"),
        (("set", "prod", "-b", "a:1", "--env", "sasl.usrname=A"), "Did you mean 'sasl.username'"),
        (("set", "prod", "-b", "a:1", "--env", "sasl.username=A B"), "has the wrong type"),
        (("set", "prod", "-b", "a:1", "--env", "a=A", "--file", "a=/b"), "Setting 'a' is given twice"),
        (("set", "prod", "-b", "a:1", "--env", "a=A", "--file", "kafka.A=/b"), "Setting 'A' is given twice"),
        (("set", "prod", "--url", "nonsense"), "Write it as in http://localhost:8081"),
        (("set", "prod", "--url", "http://a:1", "--setting", "nonsense=1"), "is no setting of a schema registry"),
        (("use", "prod"), "Connection 'prod' does not exist"),
        (("use",), "Either a connection or --none is required"),
        (("delete", "prod"), "Connection 'prod' does not exist"),
        (("test", "prod"), "Connection 'prod' does not exist"),
        (("show",), "There is no current context"),
    ):
        rejected = cli("connections", *arguments)
        assert rejected.code == 2
        assert message in rejected.err
    assert not config.exists()


def test_an_existing_connection_keeps_its_type(cli: CommandLine, config: Path) -> None:
    cli("connections", "set", "prod", "-b", "kafka1:9092")
    changed = cli("connections", "set", "prod", "--setting", "client.id=a", "-o", "json")
    assert changed.code == 0, changed.err
    [shown] = json.loads(changed.out)["connections"]
    assert (shown["type"], shown["address"], shown["settings"]) == ("kafka", "kafka1:9092", {"client.id": "a"})
    rejected = cli("connections", "set", "prod", "--type", "delta")
    assert "Connection 'prod' is of type kafka, and the options belong to delta" in rejected.err


def test_use_and_delete_read_the_file_once(cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two reads another command could change the file, and the second one would not be checked."""
    assert cli("connections", "set", "prod", "-b", "kafka1:9092").code == 0
    reads = []
    read = connections_file.read_document

    def counted(path: Path) -> tuple[str, Mapping[str, Any]]:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(connections_file, "read_document", counted)
    assert cli("connections", "use", "prod").code == 0
    assert cli("connections", "delete", "prod").code == 0
    assert reads == [config, config], "one for each command"


def test_two_commands_at_the_same_time_change_the_file_one_after_the_other(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = _announced_locks(monkeypatch)
    with ThreadPoolExecutor() as threads, connections_file.changed_connections() as document:
        document["connections"] = {"prod": {"type": "kafka", "bootstrap-servers": "kafka1:9092"}}
        waits.clear()
        second = threads.submit(_add_connection, "test")
        assert waits.wait(10), "the second command changes the file during the change of the first one"
    second.result(10)
    assert set(connections_file.read_document(config)[1]["connections"]) == {"prod", "test"}
    assert os.listdir(config.parent) == [config.name]


def test_a_command_locks_again_if_the_one_before_it_has_deleted_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a third command would create a new lock, and not wait."""
    waits = _announced_locks(monkeypatch)
    file, lock = tmp_path / "config.toml", tmp_path / ".config.toml.streamgroups-lock"

    def is_there_for_others() -> bool:
        with file_changes.locked(file):
            return lock.exists()

    with ThreadPoolExecutor() as threads:
        with file_changes.locked(file):
            waits.clear()
            second = threads.submit(is_there_for_others)
            assert waits.wait(10)
        assert second.result(10)
    assert not lock.exists()


def test_commands_work_on_a_file_system_without_locks(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert cli("connections", "set", "prod", "-b", "kafka1:9092").code == 0
    assert os.listdir(config.parent) == [config.name]


def test_a_failed_write_leaves_the_file_as_it_was_and_no_copy_of_it(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("connections", "set", "prod", "-b", "kafka1:9092").code == 0
    before = config.read_text()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    failed = cli("connections", "set", "test", "-b", "kafka2:9092")
    assert (failed.code, f"{config} cannot be written: No space left on device." in failed.err) == (2, True)
    assert (config.read_text(), os.listdir(config.parent)) == (before, [config.name])


def test_a_dry_run_needs_no_lock(cli: CommandLine, config: Path) -> None:
    assert cli("connections", "set", "prod", "-b", "kafka1:9092", "--dry-run").code == 0
    assert not config.parent.exists()


def _add_connection(name: str) -> None:
    with connections_file.changed_connections() as document:
        document.setdefault("connections", {})[name] = {"type": "kafka", "bootstrap-servers": f"{name}:9092"}


def _announced_locks(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Returns an event that is set before a command waits for a lock."""
    flock, waits = fcntl.flock, threading.Event()

    def announce(number: int, operation: int) -> None:
        waits.set()
        flock(number, operation)

    monkeypatch.setattr(fcntl, "flock", announce)
    return waits


def test_delete_and_use_none(cli: CommandLine, config: Path) -> None:
    for name in ("prod", "test"):
        cli("connections", "set", name, "-b", f"{name}:9092")
    cli("connections", "use", "prod")
    assert (
        cli("connections", "delete", "prod").err == "Connection 'prod' was deleted. There is no current context now.\n"
    )
    assert server(cli) == "broker:9092"
    cli("connections", "use", "test")
    assert cli("connections", "use", "--none").err == "There is no current context.\n"
    assert server(cli) == "broker:9092"


def test_only_a_kafka_connection_is_a_context(cli: CommandLine, config: Path) -> None:
    cli("connections", "set", "warehouse", "--conninfo", "host=db")
    for arguments in (("connections", "use", "warehouse"), ("groups", "list", "--context", "warehouse")):
        rejected = cli(*arguments)
        assert rejected.code == 2
        assert "is of type postgres, but type kafka is required here" in rejected.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[connections\n", "is not TOML: line 1"),
        ('current-context = "prod"', "Connection 'prod' does not exist"),
        ('[connections.prod]\ntype="kafka"\nservers = "a:1"', "Key 'servers' of connection 'prod' is unknown"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_name(cli: CommandLine, config: Path, text: str, message: str) -> None:
    config.parent.mkdir()
    config.write_text(text)
    for arguments in (("list",), ("set", "other", "-b", "a:1")):
        rejected = cli("connections", *arguments)
        assert rejected.code == 2
        assert str(config) in rejected.err
    assert message in cli("connections", "list").err
    assert config.read_text() == text
    assert cli("groups", "list", "-b", "line:9092").code == 0, "a command that uses no context does not read the file"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prod", ("--table", "t")),
        ("warehouse", ("--topic", "t")),
        ("lake", ("--subject", "s")),
        ("registry", ("--group", "g")),
    ],
)
def test_a_test_rejects_options_of_other_types(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, str]
) -> None:
    write_connections(tmp_path, monkeypatch)
    rejected = cli("connections", "test", name, *options)
    assert rejected.code == 2
    assert f"which has no {options[0].removeprefix('--')}. Leave out {options[0]}." in rejected.err


@pytest.mark.parametrize("option", ["--topic", "--group"])
def test_a_test_rejects_an_empty_name(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    write_connections(tmp_path, monkeypatch)
    rejected = cli("connections", "test", "prod", option, " ")
    assert rejected.code == 2
    assert f"A name of {option} is empty. Write a name" in rejected.err


@pytest.mark.parametrize("name", ["prod", "plain", "properties", "warehouse", "url", "registry"])
def test_a_test_reports_an_unreachable_system_without_secrets(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_connections(tmp_path, monkeypatch)
    result = cli("connections", "test", name, "-o", "json")
    assert result.code == 1, result.err
    [check] = json.loads(result.out)["results"]
    assert check["state"] == "problem"
    assert check["remedy"]
    assert SECRET not in result.out + result.err
    remove_secrets(monkeypatch, tmp_path)
    if name in ("prod", "warehouse", "url", "registry"):
        missing = cli("connections", "test", name)
        assert missing.code == 2
        assert "The driver and all executors resolve the references" in missing.err


def test_a_test_of_a_location(cli: CommandLine, config: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    cli("connections", "set", "lake", "--location", str(lake))
    read = cli("connections", "test", "lake", "-o", "json")
    assert [it["about"] for it in json.loads(read.out)["results"]] == ["read"]
    written = cli("connections", "test", "lake", "--write")
    assert written.code == 0, written.out + written.err
    assert "was written, read and deleted" in written.out
    assert written.out.endswith("No problems found.\n")
    assert list(lake.iterdir()) == []
    missing = cli("connections", "test", "lake", "--table", "flights")
    assert missing.code == 1
    assert f"Delta table {lake}/flights does not exist" in missing.out
    assert cli("connections", "test", "lake", "--table", "../flights").code == 2


def test_a_test_of_a_repeated_table_has_one_result(
    cli: CommandLine, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[str] = []
    monkeypatch.setattr(probe, "probe_location", lambda _, tables, *, writes: probed.extend(tables) or [])
    cli("connections", "set", "lake", "--location", str(tmp_path))
    assert cli("connections", "test", "lake", "--table", "a", "--table", "b", "--table", "a").code == 0
    assert probed == ["a", "b"]
