"""P3: the sinks and the checks of ``connections test`` with connections, on PostgreSQL with a password and an object store."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from component_tests import delta_tables, postgres_process
from component_tests.object_store import BUCKET, ObjectStore
from component_tests.postgres_process import P0, execute
from streamgroups.connections.config_file import load_connections
from streamgroups.connections.variants import DeltaConnection, PostgresConnection
from streamgroups.errors import LoginRejected
from streamgroups_sinks.delta.probe import probe_location
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_sinks.postgres.probe import probe_database
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_testkit.postgres import PASSWORD, WITH_PASSWORD

WRONG = "geheim-password"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


@pytest.fixture
def password(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the password of the connection ``warehouse``."""
    path, to = tmp_path / "pg-password", conninfo_to_dict(postgres)
    path.write_text(f"{PASSWORD}\n")
    config = tmp_path / "connections.toml"
    config.write_text(
        f'[connections.warehouse]\ntype = "postgres"\nconninfo = "host={to["host"]} port={to["port"]} '
        f'dbname={to["dbname"]} user={WITH_PASSWORD}"\nsettings = {{ password = {{ file = "pg-password" }} }}\n'
    )
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    return path


def test_P3_a_table_is_written_with_a_connection(postgres: str, password: Path) -> None:
    execute(postgres, f"GRANT USAGE, CREATE ON SCHEMA public TO {WITH_PASSWORD}")
    sink = pickle.loads(pickle.dumps(PostgresSink(connection="warehouse", table="flights")))
    postgres_process.open_at(sink, {P0: 0})
    staged = postgres_process.stage(sink, pa.RecordBatch.from_pydict({"id": [1, 2]}))
    assert sum(it.n_rows for it in staged) == 2
    password.write_text(WRONG)
    with pytest.raises(LoginRejected, match="authentication failed") as raised, sink.open("billing"):
        pass
    assert WRONG not in str(raised.value)


def test_P3_a_test_of_a_database(postgres: str, password: Path) -> None:
    warehouse = load_connections().typed("warehouse", PostgresConnection)
    execute(
        postgres,
        "CREATE TABLE board (id int PRIMARY KEY)",
        "CREATE VIEW view AS SELECT 1 AS id",
        f"GRANT INSERT ON board TO {WITH_PASSWORD}",
        f"REVOKE CREATE ON SCHEMA public FROM PUBLIC, {WITH_PASSWORD}",
    )
    found = probe_database(warehouse, ["board", "absent", "view"], writes=True)
    assert [(it.about, it.state.value) for it in found] == [
        ("login", "ok"),
        ("table", "problem"),
        ("table", "problem"),
        ("table", "problem"),
        ("create", "problem"),
    ]
    assert f"User '{WITH_PASSWORD}' is connected to database" in found[0].what
    assert found[1].what == 'Table "board": SELECT, UPDATE, DELETE not granted, and INSERT granted.'
    assert "GRANT SELECT, UPDATE, DELETE" in found[1].remedy
    execute(
        postgres,
        f"GRANT ALL ON board TO {WITH_PASSWORD}",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {WITH_PASSWORD}",
    )
    with psycopg.connect(postgres) as db:
        before = db.execute("SELECT count(*) FROM pg_class").fetchone()
        for writes, about in ((False, "create"), (True, "write")):
            found = probe_database(warehouse, ["board"], writes=writes)
            assert [(it.about, it.state.value) for it in found] == [("login", "ok"), ("table", "ok"), (about, "ok")]
        assert db.execute("SELECT count(*) FROM pg_class").fetchone() == before
    execute(postgres, f"ALTER ROLE {WITH_PASSWORD} SET default_transaction_read_only = on")
    try:
        assert probe_database(warehouse, ["board"], writes=True)[-1].what.startswith("The server is a standby, or")
    finally:
        execute(postgres, f"ALTER ROLE {WITH_PASSWORD} RESET ALL")
    password.write_text(WRONG)
    with pytest.raises(LoginRejected, match="authentication failed") as raised:
        probe_database(warehouse, [], writes=False)
    assert WRONG not in str(raised.value)


def test_X2_a_store_without_conditional_writes_is_found() -> None:
    with ObjectStore(replaces=True) as replacing:
        lake = DeltaConnection("lake", f"s3://{BUCKET}/tables", replacing.storage_options)
        found = probe_location(lake, [], writes=True)
        assert not replacing.sizes
    assert [(it.about, it.state.value) for it in found] == [("read", "ok"), ("write", "ok"), ("commit", "problem")]
    assert "ignores If-None-Match" in found[2].what


def test_P3_a_table_on_an_object_store(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(store.storage_options)
    secret = options.pop("AWS_SECRET_ACCESS_KEY")
    config = tmp_path / "connections.toml"
    lines = "".join(f'{name} = "{value}"\n' for name, value in options.items())
    config.write_text(
        f'[connections.lake]\ntype = "delta"\nlocation = "s3://{BUCKET}/tables"\n[connections.lake.storage-options]\n'
        f'{lines}AWS_SECRET_ACCESS_KEY = {{ env = "LAKE_SECRET" }}\n'
    )
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    monkeypatch.setenv("LAKE_SECRET", secret)
    lake = load_connections().typed("lake", DeltaConnection)
    tested = probe_location(lake, [], writes=True)
    assert [(it.about, it.state.value) for it in tested] == [("read", "ok"), ("write", "ok"), ("commit", "ok")]
    assert not store.sizes
    sink = pickle.loads(pickle.dumps(DeltaSink(connection="lake", uri="board/flights")))
    delta_tables.open_at(sink)
    delta_tables.write_batch(sink, 0, 1, pa.table({"id": [1, 2]}))
    found = probe_location(lake, ["board/flights", "absent"], writes=False)
    assert [(it.about, it.state.value) for it in found] == [("read", "ok"), ("table", "ok"), ("table", "problem")]
    assert found[0].in_use == "1 entries"
    assert "does not exist" in found[2].what
