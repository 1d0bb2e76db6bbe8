"""O2: the commands about groups log in as other clients do. A missing permission is reported, without output and
without changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from integration_tests.command_line import streamgroups
from integration_tests.secured_brokers import PLAIN, SCRAM, Listeners
from integration_tests.tiers import LONG
from streamgroups_cli.exits import ExitCode
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.properties_file import command_config
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import QueryProcess, shared_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

SCRAMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
COMMAND = [sys.executable, "-c", "from streamgroups_cli import main; main()"]


@pytest.fixture(scope="module")
def listeners(secured: Listeners) -> Listeners:
    """A broker with a topic, and a user bob who logs in with SCRAM."""
    fill(secured, "arrivals")
    admin = AdminClient({"bootstrap.servers": secured.plain})
    for mechanism in SCRAMS.values():
        secret = UserScramCredentialUpsertion("bob", ScramCredentialInfo(mechanism, 4096), b"right horse")
        admin.alter_user_scram_credentials([secret])["bob"].result(30)
    return secured


def fill(listeners: Listeners, topic: str) -> None:
    """Creates a topic with 20 records in two partitions."""
    admin = AdminClient({"bootstrap.servers": listeners.plain})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    produce(listeners.plain, topic, 20, partitions=2)


def cli(server: str, file: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    return streamgroups(*command_line(server, file, *arguments))


def command_line(server: str, file: Path | None, *arguments: str) -> list[str]:
    login = [] if file is None else ["--command-config", str(file)]
    return [*arguments, "--bootstrap-server", server, *login, "--timeout", "5s"]


def command_lines() -> Iterator[bytes]:
    """The command lines of all processes. Processes of other tests can end during the call."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_bytes()


def login(
    tmp_path: Path, user: str, *, mechanism: str = "PLAIN", module: str = PLAIN, password: str = "right horse"
) -> Path:
    file = tmp_path / f"{user}.properties"
    jaas = f'{module} username="{user}" password="{password}";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return file


@pytest.fixture
def group(listeners: Listeners) -> str:
    """A group at offset 5 of both partitions, visible only to the super user."""
    name = f"board-{uuid.uuid4().hex[:8]}"
    done = cli(listeners.plain, None, "groups", "reset", name, "--topic", "arrivals", "--to-offset", "5", "--execute")
    assert done.returncode == 0, done.stderr
    return name


def test_what_a_user_may_not_see_is_not_listed(listeners: Listeners, group: str, tmp_path: Path) -> None:
    result = cli(listeners.login, login(tmp_path, "ann"), "groups", "list", "-o", "json")
    assert (result.returncode, json.loads(result.stdout)["groups"]) == (ExitCode.DONE, [])


def test_a_missing_permission_is_named(listeners: Listeners, group: str, tmp_path: Path) -> None:
    for arguments in (
        ["describe", group],
        ["export", group],
        ["reset", group, "--topic", "arrivals", "--to-latest", "--execute"],
        ["delete", group, "--execute"],
        ["delete-offsets", group, "--topic", "arrivals", "--execute"],
    ):
        result = cli(listeners.login, login(tmp_path, "ann"), "groups", *arguments)
        assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
        assert f"this user is not authorized to access the group '{group}'" in result.stderr
        assert f"on Group '{group}': kafka-acls.sh" in result.stderr
    assert committed_offsets(listeners.plain, group, "arrivals") == {0: 5, 1: 5}


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_both_kinds_of_clients_log_in_with_scram(listeners: Listeners, tmp_path: Path, mechanism: str) -> None:
    config = command_config(listeners.login, login(tmp_path, "bob", mechanism=mechanism, module=SCRAM))
    KafkaCluster(config).check_reachable()
    with closing(AdminSession(config, timeout_s=10)) as session:
        assert session.run("The brokers could not be listed", session.broker_ids)


def test_scram_and_just_the_permissions_that_are_needed(listeners: Listeners, group: str, tmp_path: Path) -> None:
    file = login(tmp_path, "bob", mechanism="SCRAM-SHA-512", module=SCRAM)
    reset = ["groups", "reset", group, "--topic", "arrivals", "--to-latest", "--execute"]
    for resource in ((ResourceType.GROUP, group), (ResourceType.TOPIC, "arrivals")):
        assert cli(listeners.login, file, *reset).returncode == ExitCode.ERROR
        listeners.allow("bob", AclOperation.READ, *resource)
    result = cli(listeners.login, file, *reset)
    assert result.returncode == ExitCode.DONE, result.stderr
    assert committed_offsets(listeners.plain, group, "arrivals") == {0: 10, 1: 10}
    # Deletion needs another permission.
    assert cli(listeners.login, file, "groups", "delete", group, "--execute").returncode == ExitCode.ERROR


def test_a_wrong_password_is_reported_and_not_shown(listeners: Listeners, tmp_path: Path) -> None:
    for user, mechanism, module in (("ann", "PLAIN", PLAIN), ("bob", "SCRAM-SHA-512", SCRAM)):
        file = login(tmp_path, user, mechanism=mechanism, module=module, password="wrong horse")
        # The client libraries write to the terminal of the process too.
        command = [*COMMAND, *command_line(listeners.login, file, "groups", "list", "--verbose")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
        assert "authentication failed" in result.stderr
        assert "horse" not in result.stderr


def test_over_tls(listeners: Listeners, group: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={listeners.certificate}\n"
    file.write_text(f"security.protocol=SSL\n{trust}")
    result = cli(listeners.tls, file, "groups", "describe", group, "-o", "json")
    assert result.returncode == ExitCode.DONE, result.stderr
    (described,) = json.loads(result.stdout)["groups"]
    # Another client reads the time lag; it uses TLS too.
    assert described["time_lag_ms"] is not None
    pem = "".join(listeners.certificate.read_text().split("\n")[1:-2])
    file.write_text(
        "security.protocol=SSL\nssl.truststore.certificates="
        f"-----BEGIN CERTIFICATE-----{pem}-----END CERTIFICATE-----\nssl.truststore.type=PEM\n"
    )
    assert cli(listeners.tls, file, "groups", "list").returncode == ExitCode.DONE


def test_a_certificate_that_is_not_trusted(listeners: Listeners, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    result = cli(listeners.tls, file, "groups", "list")
    assert (result.returncode, "TLS handshake failed" in result.stderr) == (ExitCode.ERROR, True)
    file.write_text("security.protocol=SSL\nenable.ssl.certificate.verification=false\n")
    assert cli(listeners.tls, file, "groups", "list").returncode == ExitCode.DONE


@LONG
def test_a_protocol_that_is_not_spoken(listeners: Listeners, tmp_path: Path) -> None:
    result = cli(listeners.tls, None, "groups", "list")
    assert (result.returncode, "set security.protocol to SSL" in result.stderr) == (ExitCode.ERROR, True)
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    result = cli(listeners.plain, file, "groups", "list")
    assert (result.returncode, "security.protocol" in result.stderr) == (ExitCode.ERROR, True)


def test_an_instance_needs_its_group_and_its_metadata_groups(
    listeners: Listeners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name, stream = f"billing-{uuid.uuid4().hex[:8]}", f"cargo-{uuid.uuid4().hex[:8]}"
    fill(listeners, stream)
    file = login(tmp_path, "bob", mechanism="SCRAM-SHA-512", module=SCRAM)
    create = ["cursors", "create", stream, "--group", name, "--instance", "worker-1"]

    def on(cursor: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, "cursors", command, cursor], capture_output=True, text=True, check=False)

    for permission in ((ResourceType.TOPIC, stream), (ResourceType.GROUP, name)):
        rejected = cli(listeners.login, file, *create)
        assert (rejected.returncode, rejected.stdout) == (ExitCode.ERROR, "")
        assert "this user is not authorized" in rejected.stderr
        listeners.allow("bob", AclOperation.READ, *permission)
    listeners.allow("bob", AclOperation.READ, ResourceType.GROUP, f"{name}.streamgroups", prefixed=True)
    made = cli(listeners.login, file, *create)
    assert made.returncode == ExitCode.DONE, made.stderr
    cursor = made.stdout.strip()
    for command in ("get", "commit"):
        assert on(cursor, command).returncode == ExitCode.DONE
    # Its process has the password, and no list of processes shows it.
    running = [line for line in command_lines() if b"instance_process" in line]
    assert running
    assert not any(b"horse" in line for line in running)
    assert on(cursor, "leave").returncode == ExitCode.DONE


@pytest.mark.long
def test_S6_a_query_that_may_not_read_the_metadata_groups_works_and_reports_that_it_cannot_be_reset(
    listeners: Listeners, tmp_path: Path
) -> None:
    name = f"board-{uuid.uuid4().hex[:8]}"
    for permission in ((ResourceType.TOPIC, "arrivals"), (ResourceType.GROUP, name)):
        listeners.allow("bob", AclOperation.READ, *permission)
    options = {
        **shared_options(listeners.login, name, "arrivals", "classic"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM} username="bob" password="right horse";',
    }
    query = QueryProcess(tmp_path, "alice", options)
    try:
        query.start().wait_for_batches(1)
        wait_until(lambda: "cannot be reset while this query runs" in query.log(), "the log contains it")
        before = query.batches()
        produce(listeners.plain, "arrivals", 2, partitions=2, first=20)
        query.wait_for_batches(before + 1)
        assert "right horse" not in query.log()
        query.stop()
    finally:
        query.kill()
