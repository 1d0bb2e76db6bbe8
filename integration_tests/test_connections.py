"""P3: queries and commands with connections, on a broker with logins and ACLs, and on PostgreSQL with a password.

A search finds no secret in what Spark, the log, the errors and the commands show or store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from integration_tests.command_line import streamgroups
from integration_tests.programs import running
from integration_tests.secret_connections import assert_no_secret, write_connections
from integration_tests.secured_brokers import Listeners
from integration_tests.tiers import LONG
from streamgroups_testkit.postgres import WITH_PASSWORD
from streamgroups_testkit.producing import produce


@pytest.fixture
def file(secured: Listeners, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_connections(secured, postgres, tmp_path, monkeypatch)


@pytest.fixture
def topic(secured: Listeners, group: str) -> Iterator[str]:
    """A topic with ten records, which ann may read in a group of the same name, and an empty one for the output."""
    output = f"{group}-out"
    admin = AdminClient({"bootstrap.servers": secured.plain})
    for created in admin.create_topics([NewTopic(group, 2, 1), NewTopic(output, 1, 1)]).values():
        created.result(30)
    secured.allow("ann", AclOperation.READ, ResourceType.TOPIC, group)
    secured.allow("ann", AclOperation.READ, ResourceType.GROUP, group, prefixed=True)
    secured.allow("ann", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, group, prefixed=True)
    produce(secured.plain, group, 10, partitions=2)
    yield group
    # The broker is shared with the tests of users without ACLs.
    secured.revoke("ann", group)


def records_in(server: str, topic: str) -> list[bytes]:
    """The committed records of a topic with one partition, read by an independent consumer."""
    settings = {"bootstrap.servers": server, "group.id": "reader", "auto.offset.reset": "earliest"}
    reader = Consumer({**settings, "enable.partition.eof": "true", "isolation.level": "read_committed"})
    reader.subscribe([topic])
    found: list[bytes] = []
    while True:
        message = reader.poll(30)
        assert message is not None, f"{len(found)} records of {topic} were read"
        if message.error():
            break
        found.append(message.value() or b"")
    reader.close()
    return found


@LONG
def test_P3_queries_read_and_write_with_connections_and_show_no_secret(
    secured: Listeners, postgres: str, topic: str, file: Path, tmp_path: Path
) -> None:
    secured.allow("ann", AclOperation.WRITE, ResourceType.TOPIC, f"{topic}-out")
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {WITH_PASSWORD}")
    directory, log = tmp_path / "spark", tmp_path / "log"
    config = {"topic": topic, "group": topic, "output": f"{topic}-out", "directory": str(directory)}
    with running("connections_query", config, log) as program:
        program.wait_for_end(240)
    with psycopg.connect(postgres) as db:
        rows = sorted(value.encode() for (value,) in db.execute("SELECT value FROM board"))
    assert len(rows) == 10
    assert sorted(records_in(secured.plain, f"{topic}-out")) == rows
    errors = (directory / "shown" / "errors").read_text()
    assert re.search(
        r"Connection 'missing': environment variable BOARD_MISSING of 'sasl.password' is not set on", errors
    )
    assert re.search("LoginRejected|uthentication failed", errors)
    assert "it worked" not in errors
    searched = [path for path in (log, *directory.rglob("*")) if path.is_file()]
    assert {"plans", "environment", "SQL", "log"} <= {path.name for path in searched}
    assert any(path.parent.name == "events" or "events" in path.parts for path in searched)
    for path in searched:
        assert_no_secret(path.read_bytes(), path)


def test_P3_commands_with_connections(secured: Listeners, topic: str, file: Path) -> None:
    output = f"{topic}-out"
    offsets = ["groups", "reset", topic, "--topic", topic, "--to-offset", "1", "--execute", "-b", secured.plain]
    assert streamgroups(*offsets).returncode == 0, "the group exists"
    arguments = ["--topic", topic, "--topic", output, "--group", topic, "--write", "--transactional-id", topic]
    for name in ("prod", "plain"):
        result = streamgroups("connections", "test", name, *arguments, "-o", "json")
        assert_no_secret(result.stdout + result.stderr)
        found = {it["what"].split(":")[0]: it for it in json.loads(result.stdout)["results"]}
        assert found[f"Topic '{topic}'"]["what"].endswith("Describe, Read are permitted, and Write is not.")
        assert found[f"Topic '{topic}'"]["state"] == "warning"
        # Ann may not see the topic.
        missing = found[f"Topic '{output}' does not exist, or this user may not describe it."]
        assert missing["state"] == "problem"
        assert f"--operation Describe --topic {output}" in missing["remedy"]
        assert found[f"Group '{topic}'"]["state"] == "ok"
        assert found[f"A transaction of id '{topic}' was begun and aborted."]["state"] == "ok"
        assert result.returncode == 1
    not_mine = streamgroups("connections", "test", "prod", "--write", "--transactional-id", "other")
    assert not_mine.returncode == 1
    assert "--transactional-id other" in not_mine.stdout
    described = streamgroups("groups", "list", "--context", "prod")
    assert described.returncode == 0, described.stderr
    wrong = streamgroups("connections", "test", "wrong")
    assert wrong.returncode == 1
    assert_no_secret(wrong.stdout + wrong.stderr)
    missing_secret = streamgroups("connections", "test", "missing")
    assert missing_secret.returncode == 2
    assert "BOARD_MISSING" in missing_secret.stderr
