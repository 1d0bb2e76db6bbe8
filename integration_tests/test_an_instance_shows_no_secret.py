"""P2, P3: a search finds no secret of any connection in what an instance shows or stores.

The manager and its worker log in with a connection. Two processors run, and two fail with the error of a connection. The search
covers logs, the entries of the topic, command lines, Spark's plans, event log, local files and web pages, checkpoints, and the
output of all commands about the instance.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import psycopg
import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from integration_tests.command_line import streamgroups
from integration_tests.copying_instance import spark_worker
from integration_tests.instances import RealInstance
from integration_tests.secret_connections import assert_no_secret, write_connections
from integration_tests.secured_brokers import Listeners
from integration_tests.tiers import LONG
from streamgroups.instances.entries import topic_of
from streamgroups_broker._ports import free_ports
from streamgroups_testkit.postgres import WITH_PASSWORD
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_messages, read_committed
from streamgroups_testkit.waits import wait_until

PARTITIONS = 2
RECORDS = 20
_PAGES = ("jobs", "stages", "environment", "executors", "SQL", "StreamingQuery", "api/v1/applications")


@pytest.fixture
def instance(
    secured: Listeners, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RealInstance]:
    write_connections(secured, postgres, tmp_path, monkeypatch)
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "runs"))
    instance = RealInstance(secured.plain, tmp_path)
    _create_topics(secured, instance.name)
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {WITH_PASSWORD}")
    yield instance
    instance.close()
    for name in (instance.name, topic_of(instance.name), f"streamgroups-{instance.name}"):
        secured.revoke("ann", name)


def _create_topics(secured: Listeners, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": secured.plain})
    for created in admin.create_topics([NewTopic(f"{name}{it}", PARTITIONS, 1) for it in ("-in", "-out")]).values():
        created.result(30)
    produce(secured.plain, f"{name}-in", RECORDS, partitions=PARTITIONS)
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS):
        secured.allow("ann", operation, ResourceType.TOPIC, topic_of(name))
    for kind, operation in (
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.TOPIC, AclOperation.WRITE),
        (ResourceType.GROUP, AclOperation.READ),
    ):
        secured.allow("ann", operation, kind, name, prefixed=True)
    # Of the manager, and of the processor.
    for prefix in ("streamgroups.instance-", "streamgroups-"):
        secured.allow("ann", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, f"{prefix}{name}", prefixed=True)


def _declare(instance: RealInstance) -> Path:
    files = instance.directory / "processors"
    files.mkdir()
    sinks = {
        "copy": ("prod", f"{{connection: prod, topic: {instance.name}-out}}"),
        "store": ("plain", "{connection: warehouse, table: board}"),
        "wrong": ("wrong", "{connection: warehouse, table: other}"),
        "missing": ("missing", "{connection: warehouse, table: other}"),
    }
    for name, (connection, sink) in sinks.items():
        (files / f"{name}.yaml").write_text(
            f"name: {name}\n"
            f"source: {{connection: {connection}, subscribe: {instance.name}-in, startingOffsets: earliest}}\n"
            "steps:\n  - sql: SELECT CAST(value AS STRING) AS value FROM input\n"
            f"sink: {sink}\n"
        )
    return files


def _manager_command(instance: RealInstance, spark: Path, port: int) -> list[str]:
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.local.dir": str(spark / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (spark / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.broadcast.compress": "false",
    }
    worker = " ".join([spark_worker(), *(f"--conf {shlex.quote(f'{it}={value}')}" for it, value in settings.items())])
    main = "from streamgroups_cli import main; main()"
    return [
        sys.executable,
        "-c",
        main,
        *("instance", "run", instance.name, "--context", "prod"),
        "--worker-command",
        worker,
    ]


def _command(instance: RealInstance, *arguments: str) -> str:
    named = () if arguments[0] == "instance" else ("--instance", instance.name)
    done = streamgroups(*arguments, *named, "--context", "prod")
    return f"{done.stdout}{done.stderr}"


@LONG
@pytest.mark.timeout(1_200)
def test_P3_an_instance_shows_no_secret(instance: RealInstance, postgres: str) -> None:
    directory, files = instance.directory, _declare(instance)
    spark, shown = directory / "spark", directory / "shown"
    for it in (spark / "local", spark / "events", shown):
        it.mkdir(parents=True)
    (port,) = free_ports(1)
    assert "added" in _command(instance, "processors", "apply", "-f", str(files), "--execute")
    with instance.running("manager-1", _manager_command(instance, spark, port)):
        started = _command(instance, "processors", "start", "copy", "store", "wrong", "missing", "--wait", "10m")
        (shown / "started").write_text(started)
        wait_until(lambda: _are_written(instance, postgres), "both processors write", 300)
        instance.wait_until(lambda _: instance.view("wrong").state == "failed", "the wrong password is rejected", 300)
        for page in _PAGES:
            with urlopen(f"http://localhost:{port}/{page}/") as response:
                (shown / page.replace("/", "-")).write_bytes(response.read())
        # The end of the session deletes them.
        with suppress(shutil.Error):
            shutil.copytree(spark / "local", shown / "local")
        (shown / "command-lines").write_text(_command_lines(instance))
        (shown / "files").write_text(streamgroups("processors", "explain", str(files)).stdout)
        (shown / "commands").write_text(_commands(instance))
    with (shown / "topic").open("wb") as topic:
        for message in committed_messages(instance.bootstrap, topic_of(instance.name)):
            for part in (message.key(), message.value()):
                topic.write(part if isinstance(part, bytes) else (part or "").encode())
    errors = (shown / "commands").read_text()
    assert "environment variable BOARD_MISSING of 'sasl.password' is not set" in errors
    assert instance.view("wrong").error_code == "login_rejected"
    assert "data_loss" not in errors
    _search(directory)


def _are_written(instance: RealInstance, postgres: str) -> bool:
    with psycopg.connect(postgres) as db:
        if db.execute("SELECT to_regclass('board')").fetchone() == (None,):
            return False
        rows = db.execute("SELECT count(*) FROM board").fetchone()
    return rows == (RECORDS,) and len(read_committed(instance.bootstrap, f"{instance.name}-out")) == RECORDS


def _command_lines(instance: RealInstance) -> str:
    workers = [psutil.Process(it.pid) for it in instance.state().workers.values()]
    processes = [it for worker in workers for it in (worker, *worker.parents(), *worker.children(recursive=True))]
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found.append(" ".join(process.cmdline()))
    assert any("python_streaming_source_runner" in it for it in found), found
    return "\n".join(found)


def _commands(instance: RealInstance) -> str:
    """The output of all commands about an instance."""
    page = instance.directory / "shown" / "page.html"
    commands = [
        *(
            ("processors", "describe", name, *more)
            for name in ("copy", "store", "wrong", "missing")
            for more in ((), ("-o", "json"))
        ),
        ("processors", "list"),
        ("processors", "list", "-o", "json"),
        ("instance", "status", instance.name, "--html", str(page)),
        ("instance", "status", instance.name, "-o", "json"),
        ("processors", "apply", "-f", str(instance.directory / "processors")),
    ]
    found = [_command(instance, *it) for it in commands]
    assert json.loads(found[1])["definition"]["source"]["connection"] == "prod"
    return "\n".join(found)


def _search(directory: Path) -> None:
    """Searches all files but those of the connections."""
    own = {"connections.toml", "pg-password"}
    searched = [it for it in directory.rglob("*") if it.is_file() and it.name not in own]
    names = {it.name for it in searched}
    assert {"manager-1.log", "SQL", "environment", "commands", "topic", "command-lines", "page.html"} <= names
    assert any("events" in it.parts and it.stat().st_size for it in searched)
    for it in searched:
        with suppress(FileNotFoundError):
            assert_no_secret(it.read_bytes(), it)
