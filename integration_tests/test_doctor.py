"""``streamgroups doctor`` reports the problems of a cluster: no broker, an unreachable address, a failed login, a
missing permission.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from integration_tests.secured_brokers import FAR_AWAY, PLAIN, Listeners
from streamgroups_broker._ports import free_ports
from streamgroups_cli.command_line import app


@pytest.fixture
def listeners(secured: Listeners) -> Listeners:
    return secured


def doctor(server: str, file: Path | None = None, *, output: str = "json") -> Result:
    arguments = ["doctor", "--bootstrap-server", server, "-o", output]
    return CliRunner().invoke(app, arguments + (["--command-config", str(file)] if file else []))


def check_results(result: Result, *about: str) -> dict[str, list[Mapping[str, str]]]:
    """The check results of the cluster by subject; those of this machine are not the subject of this test."""
    found: dict[str, list[Mapping[str, str]]] = {subject: [] for subject in about}
    for check in json.loads(result.stdout)["results"]:
        if check["about"] in about:
            found[check["about"]].append(check)
    return found


def test_a_healthy_cluster(listeners: Listeners) -> None:
    result = doctor(listeners.plain)
    found = check_results(result, "cluster", "offsets")
    assert result.exit_code == 0, result.stdout
    assert {subject: [(f["state"], f["in_use"]) for f in reported] for subject, reported in found.items()} == {
        "cluster": [("ok", "1 broker")],
        "offsets": [("ok", "7 days")],
    }


def test_no_listener() -> None:
    (port,) = free_ports(1)
    result = doctor(f"127.0.0.1:{port}")
    (check,) = check_results(result, "cluster")["cluster"]
    assert result.exit_code == 1
    assert check["state"] == "problem"
    assert check["what"] == f"No broker can be reached. 127.0.0.1:{port}: connection refused."
    assert "Check that the broker runs" in check["remedy"]
    table = doctor(f"127.0.0.1:{port}", output="table")
    assert table.exit_code == 1
    assert check["what"] in table.stdout
    assert f"→ {check['remedy']}" in table.stdout


def test_a_broker_that_advertises_an_unreachable_address(listeners: Listeners) -> None:
    result = doctor(listeners.misled)
    (check,) = check_results(result, "cluster")["cluster"]
    assert result.exit_code == 1
    assert f"advertises {FAR_AWAY}, which is not reachable: unknown host" in check["what"]
    assert "advertised.listeners" in check["remedy"]


def _login(tmp_path: Path, password: str) -> Path:
    file = tmp_path / "client.properties"
    jaas = f'{PLAIN} username="ann" password="{password}";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    return file


def test_a_wrong_password_is_reported_and_not_shown(listeners: Listeners, tmp_path: Path) -> None:
    result = doctor(listeners.login, _login(tmp_path, "wrong horse"))
    (check,) = check_results(result, "cluster")["cluster"]
    assert result.exit_code == 1
    assert "authentication failed" in check["what"]
    assert "password" in check["remedy"]
    assert "horse" not in result.output


def test_a_user_without_permissions_sees_what_every_user_may(listeners: Listeners, tmp_path: Path) -> None:
    result = doctor(listeners.login, _login(tmp_path, "right horse"))
    found = check_results(result, "cluster", "offsets")
    assert result.exit_code == 0, result.stdout
    assert [f["state"] for f in found["cluster"]] == ["ok"]
    assert [f["state"] for f in found["offsets"]] == ["warning"]
    assert "DescribeConfigs on Cluster 'kafka-cluster'" in found["offsets"][0]["remedy"]
    assert "horse" not in result.output


def test_over_tls(listeners: Listeners, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={listeners.certificate}\n"
    file.write_text(f"security.protocol=SSL\n{trust}")
    result = doctor(listeners.tls, file)
    found = check_results(result, "cluster")
    assert result.exit_code == 0, result.stdout
    assert [f["state"] for f in found["cluster"]] == ["ok"]

    file.write_text("security.protocol=SSL\n")
    untrusted = doctor(listeners.tls, file)
    (check,) = check_results(untrusted, "cluster")["cluster"]
    assert untrusted.exit_code == 1
    assert "TLS handshake failed" in check["what"]
    assert "ssl.truststore.location" in check["remedy"]


def test_tls_is_required_and_not_spoken(listeners: Listeners) -> None:
    result = doctor(listeners.tls)
    (check,) = check_results(result, "cluster")["cluster"]
    assert result.exit_code == 1
    assert f"No server at these addresses uses Kafka's protocol in plaintext. {listeners.tls}: " in check["what"]
    assert "security.protocol" in check["remedy"]
