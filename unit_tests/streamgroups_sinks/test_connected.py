"""The sinks and the schema registry with a connection: what they pickle, what they reject, what they connect with."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from streamgroups.connections.variants import DeltaConnection
from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import InvalidOption, SinkUnreachable
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_sinks.postgres.sink import PostgresSink
from unit_tests.connections_file import SECRET, remove_secrets, write_connections


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_connections(tmp_path, monkeypatch)


def used(it: Any) -> str:
    if isinstance(it, PostgresSink):
        return it._login
    return str(it.configuration()) if isinstance(it, SchemaRegistry) else str(it._target.storage_options)


MADE = {
    "postgres": lambda: PostgresSink(connection="warehouse", table="t"),
    "postgres by URL": lambda: PostgresSink(connection="url", table="t"),
    "delta": lambda: DeltaSink(connection="lake", uri="flights"),
    "registry": lambda: SchemaRegistry(connection="registry"),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_secrets_are_resolved_where_they_are_used(
    make: Any, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remove_secrets(monkeypatch, tmp_path)
    made = make()  # It needs no secret.
    file.unlink()
    pickled = pickle.dumps(made)
    write_connections(tmp_path, monkeypatch)
    again = pickle.loads(pickled)
    assert again == made
    assert hash(again) == hash(made) if isinstance(made, SchemaRegistry) else replace(again) == made
    assert SECRET in used(again)
    assert SECRET.encode() not in pickled + pickle.dumps(again)
    assert SECRET not in repr(again)
    remove_secrets(monkeypatch, tmp_path)
    with pytest.raises(InvalidOption, match=r"(THE_\w+ .*is not set|url.*cannot be read.*) on .*all executors"):
        used(again)


def test_explicit_parameters_add_to_the_connection() -> None:
    sink = PostgresSink(connection="warehouse", conninfo="application_name=board user=me", table="t")
    assert conninfo_to_dict(sink._login) == {
        "host": "127.0.0.1",
        "port": "1",
        "dbname": "flights",
        "user": "me",
        "password": SECRET,
        "application_name": "board",
    }
    delta = DeltaSink(connection="lake", uri="board/flights", storage_options={"timeout": "5s"})
    assert delta.uri == "s3://bucket/tables/board/flights"
    assert delta._target.storage_options == {"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": SECRET, "timeout": "5s"}
    registry = SchemaRegistry(connection="registry", settings={"timeout": "3"})
    assert registry.configuration()["timeout"] == 3
    assert registry.url == "http://127.0.0.1:1"


def test_a_table_of_a_local_connection_has_the_path_that_hadoop_and_spark_print() -> None:
    lake = DeltaConnection("lake", "/data")
    assert DeltaSink(connection=lake, uri="file:/data/flights").uri == "/data/flights"
    assert DeltaSink(connection=lake, uri="./board:1/flights").uri == "/data/board:1/flights"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PostgresSink(connection="warehouse", conninfo="host=other", table="t"), "Option 'host' contradicts"),
        (
            lambda: PostgresSink(connection="warehouse", conninfo="password=other-22", table="t"),
            "'password' contradicts",
        ),
        (
            lambda: PostgresSink(connection="warehouse", conninfo="hostaddr=192.0.2.1", table="t"),
            "'hostaddr' selects a server",
        ),
        (lambda: PostgresSink(connection="url", conninfo="host=other", table="t"), "Option 'host' selects a server"),
        (lambda: PostgresSink(connection="url", conninfo="user=you", table="t")._login, "Option 'user' contradicts"),
        (
            lambda: DeltaSink(connection="lake", uri="t", storage_options={"aws_endpoint_url": "http://other"}),
            "Option 'aws_endpoint_url' selects a server",
        ),
        (lambda: PostgresSink(connection="warehouse", conninfo="'", table="t"), "Option 'conninfo' cannot be parsed"),
        (lambda: PostgresSink(connection="warehose", table="t"), "Did you mean 'warehouse'?"),
        (lambda: PostgresSink(connection="prod", table="t"), "of type kafka, but type postgres is required"),
        (lambda: PostgresSink(table="t"), "Option 'conninfo' is empty"),
        (
            lambda: DeltaSink(connection="lake", uri="t", storage_options={"AWS_SECRET_ACCESS_KEY": "other-22"}),
            "Option 'AWS_SECRET_ACCESS_KEY' contradicts connection 'lake'",
        ),
        (lambda: DeltaSink(connection="lake", uri="s3://other/t"), "is outside the location of connection 'lake'"),
        (lambda: DeltaSink(connection="lake", uri="../t"), "is outside the location"),
        (lambda: DeltaSink(connection="lake", uri="a/../../t"), "is outside the location"),
        (lambda: DeltaSink(connection="lake", uri="/t"), "is outside the location"),
        (lambda: DeltaSink(connection="lake", uri=""), "is outside the location"),
        (lambda: DeltaSink(connection="lake", uri="file:/t"), "The table '/t' is outside the location"),
        (lambda: DeltaSink(connection="lake", uri="dbfs:/t"), "uri has the scheme 'dbfs:' without a host"),
        (lambda: DeltaSink(connection="lake", uri="file:t"), "uri has a relative path after the scheme 'file:'"),
        (lambda: DeltaSink(connection="warehouse", uri="t"), "type delta is required here. Use one of: lake."),
        (lambda: SchemaRegistry("http://other:1", connection="registry"), "Option 'url' contradicts"),
        (
            lambda: SchemaRegistry(connection="registry", settings={"basic.auth.user.info": "other-22"}),
            "Option 'basic.auth.user.info' contradicts connection 'registry'",
        ),
        (lambda: SchemaRegistry(connection="lake"), "type schema-registry is required"),
    ],
)
def test_what_contradicts_or_is_missing_is_rejected(make: Any, message: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        make()
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "other-22" not in str(raised.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('settings={pasword="hunter22"}', "libpq has no parameter 'pasword'"),
        ('conninfo="host=db nonsense"', "Key 'conninfo' of connection 'c' cannot be parsed by libpq"),
        ('conninfo="host=db sslmode=maybe"', "has an invalid sslmode"),
    ],
)
def test_a_connection_that_libpq_rejects(file: Path, table: str, message: str) -> None:
    file.write_text(f'[connections.c]\ntype="postgres"\n{table}')
    with pytest.raises(InvalidOption) as raised:
        PostgresSink(connection="c", table="t")
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


def test_an_error_of_the_server_has_no_secret() -> None:
    for name in ("warehouse", "url"):
        with pytest.raises(SinkUnreachable) as raised, PostgresSink(connection=name, table="t").open("g"):
            pass
        assert SECRET not in str(raised.value)
