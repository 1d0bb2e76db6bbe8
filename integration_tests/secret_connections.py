"""Connections with secrets, and the search for these secrets in all that programs show or store.

Used by ``test_connections`` and ``test_an_instance_shows_no_secret``. One secret is in the environment, one in a file, and one in
plain text. Source: SEMANTICS P3.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from integration_tests.secret_forms import forms_of
from integration_tests.secured_brokers import Listeners
from streamgroups_testkit.postgres import PASSWORD, WITH_PASSWORD

KAFKA_PASSWORD = "right horse"
WRONG_PASSWORD = "wrong horse"
SECRETS = (KAFKA_PASSWORD, PASSWORD, WRONG_PASSWORD)
_LOGIN = """
bootstrap-servers = "{server}"
[connections.{name}.settings]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "ann"
"sasl.password" = {password}
"""


def write_connections(secured: Listeners, postgres: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the file of connections and the file with a secret, and sets the environment variables.

    ``prod`` and ``plain`` have the password of ann, ``missing`` a variable that is not set, and ``wrong`` another password.
    """
    database = conninfo_to_dict(postgres)
    (directory / "pg-password").write_text(f"{PASSWORD}\n")
    text = "".join(
        f'[connections.{name}]\ntype = "kafka"' + _LOGIN.format(server=secured.login, name=name, password=password)
        for name, password in (
            ("prod", '{ env = "BOARD_KAFKA_PASSWORD" }'),
            ("plain", f'"{KAFKA_PASSWORD}"'),
            ("missing", '{ env = "BOARD_MISSING" }'),
            ("wrong", '{ env = "BOARD_WRONG_PASSWORD" }'),
        )
    )
    text += (
        f'[connections.warehouse]\ntype = "postgres"\nconninfo = "host={database["host"]} port={database["port"]} '
        f'dbname={database["dbname"]} user={WITH_PASSWORD}"\nsettings = {{ password = {{ file = "pg-password" }} }}\n'
    )
    path = directory / "connections.toml"
    path.write_text(text)
    path.chmod(0o600)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(path))
    monkeypatch.setenv("BOARD_KAFKA_PASSWORD", KAFKA_PASSWORD)
    monkeypatch.setenv("BOARD_WRONG_PASSWORD", WRONG_PASSWORD)
    return path


def assert_no_secret(text: str | bytes, where: object = "") -> None:
    """Fails if a text contains a secret, also in a URL, in JSON or in base64.

    Args:
        text: the text.
        where: its name, for the error.
    """
    content = text.encode() if isinstance(text, str) else text
    for secret in SECRETS:
        for form in forms_of(secret):
            assert form not in content, where
