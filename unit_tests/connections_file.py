"""A file of connections for tests, whose secrets have one recognisable value."""

from __future__ import annotations

from pathlib import Path

import pytest

#: No plan, pickle, log, error or ``repr`` contains it.
SECRET = "hunter22"
TEXT = """
[connections.prod]
type = "kafka"
bootstrap-servers = "127.0.0.1:1"
settings = { "security.protocol" = "SASL_SSL", "sasl.mechanism" = "PLAIN", "sasl.username" = "me", "sasl.password" = { env = "THE_SECRET" } }

[connections.plain]
type = "kafka"
bootstrap-servers = "127.0.0.1:1"
settings = { "security.protocol" = "SASL_SSL", "sasl.mechanism" = "PLAIN", "sasl.username" = "me", "sasl.password" = "hunter22" }

[connections.properties]
type = "kafka"
command-config = "client.properties"

[connections.warehouse]
type = "postgres"
conninfo = "host=127.0.0.1 port=1 dbname=flights user=me"
settings = { password = { env = "THE_SECRET" } }

[connections.url]
type = "postgres"
conninfo = { file = "url" }

[connections.lake]
type = "delta"
location = "s3://bucket/tables"
storage-options = { AWS_REGION = "eu-1", AWS_SECRET_ACCESS_KEY = { env = "THE_SECRET" } }

[connections.registry]
type = "schema-registry"
url = "http://127.0.0.1:1"
settings = { "basic.auth.user.info" = { env = "THE_LOGIN" } }
"""


def write_connections(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the file, and makes it the file of this process."""
    path = directory / "config.toml"
    path.write_text(TEXT)
    path.chmod(0o600)
    (directory / "url").write_text(f"postgresql://me:{SECRET}@127.0.0.1:1/flights\n")
    (directory / "client.properties").write_text(
        f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'x.PlainLoginModule required username="me" password="{SECRET}";\n'
    )
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(path))
    _set_secrets(monkeypatch)
    return path


def _set_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables of the file."""
    monkeypatch.setenv("THE_SECRET", SECRET)
    monkeypatch.setenv("THE_LOGIN", f"me:{SECRET}")


def remove_secrets(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Removes the variables and the files of secrets."""
    for name in ("THE_SECRET", "THE_LOGIN"):
        monkeypatch.delenv(name, raising=False)
    (directory / "url").unlink()
