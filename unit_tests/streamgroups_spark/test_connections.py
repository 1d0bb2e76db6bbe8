"""Option ``connection`` of source and sink, and ``KafkaSink(connection=)``: readers and writers travel without secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from streamgroups.dlq.limits import LetterLimits
from streamgroups.errors import InvalidOption
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_spark.bridge.pickled_ledger import pickled_ledger
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals.pickle_checks import shipped_class
from streamgroups_spark.internals.private_spark import pickled, unpickled
from streamgroups_spark.sinks.exactly_once import KafkaSink
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, has_same_database, letter_table
from streamgroups_spark.sinks.sink_options import parse_sink
from streamgroups_spark.source.readers import RejectedStream
from streamgroups_spark.source.source_options import parse
from unit_tests.connections_file import SECRET, write_connections

READ = {"subscribe": "flights", "group.id": "board"}
NAMES = ("prod", "plain", "properties")
VALUE = StructType().add("value", "binary")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_connections(tmp_path, monkeypatch)


def source(options: dict[str, str], **attributes: Any) -> StreamGroupsDataSource:
    return shipped_class(StreamGroupsDataSource, attributes)(options)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
def test_what_spark_pickles_has_no_secret(name: str) -> None:
    reading = source({**READ, "connection": name})
    sink_options = {"connection": name, "topic": "out", "checkpointLocation": "/c", "group.id": "g"}
    made: list[Any] = [
        reading.streamReader(VALUE),
        source({**READ, "connection": name}).reader(VALUE),
        parse(reading.options, streaming=True),
        parse_sink(sink_options),
        LetterOutput(parse_sink(sink_options), LetterLimits(), ("g",), True),
        KafkaSink(connection=name, topic="out"),
    ]
    for it in made:
        assert not isinstance(it, RejectedStream)
        assert SECRET.encode() not in pickled(it)
        assert SECRET not in repr(it)
    assert unpickled(pickled(made[2])).client.get("sasl.password") == SECRET
    assert unpickled(pickled(made[3])).client.get("sasl.password") == SECRET
    assert SECRET.encode() not in pickled_ledger(PostgresSink(connection="warehouse", table="t"), ["g"])


@pytest.mark.parametrize("where", ["settings", "file"])
def test_an_explicit_client_id_replaces_that_of_the_connection(tmp_path: Path, file: Path, where: str) -> None:
    text = '[connections.c]\ntype="kafka"\nbootstrap-servers="a:1"\n'
    if where == "settings":
        text += 'settings={"client.id"="shared"}'
    else:
        (tmp_path / "client.properties").write_text("client.id=shared\n")
        text += f'command-config="{tmp_path / "client.properties"}"'
    file.write_text(text)
    options = {**READ, "connection": "c"}
    assert parse(options, streaming=True).client.get("client.id") == "shared"
    own = parse({**options, "kafka.client.id": "own"}, streaming=True).client
    assert own.get("client.id") == "own"
    assert unpickled(pickled(own)).get("client.id") == "own"


def test_a_registration_names_the_file_of_the_program(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUPS_CONFIG", "/missing.toml")
    options = {**READ, "connection": "prod"}
    rejected = source(options).streamReader(StructType())
    assert isinstance(rejected, RejectedStream)
    with pytest.raises(InvalidOption, match=r"Connection 'prod' does not exist in /missing.toml"):
        rejected.initialOffset()
    assert "key" in str(source(options, connections_file=str(file)).schema())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse({**READ, "connection": "prdo"}, streaming=True), "Did you mean 'prod'?"),
        (lambda: parse({**READ, "connection": "lake"}, streaming=True), "of type delta, but type kafka is required"),
        (
            lambda: parse({**READ, "connection": "prod", "kafka.bootstrap.servers": "a:1"}, streaming=True),
            "Option 'kafka.bootstrap.servers' contradicts connection 'prod'",
        ),
        (
            lambda: parse_sink({"Connection": "prod", "kafka.SASL.Password": "b-secret", "checkpointLocation": "/c"}),
            "Option 'kafka.sasl.password' contradicts connection 'prod'",
        ),
        (lambda: KafkaSink(connection="prdo"), "Did you mean 'prod'?"),
        (lambda: KafkaSink(connection="prod", bootstrap_servers="a:1"), "Option 'kafka.bootstrap.servers' contradicts"),
        (
            lambda: KafkaSink(connection="prod", settings={"sasl.password": "b-secret"}),
            "Option 'kafka.sasl.password' contradicts connection 'prod'",
        ),
        (lambda: KafkaSink(connection="prod", topic=" "), "Option 'topic' is empty"),
        (lambda: KafkaSink(connection="prod", transaction_timeout="9"), "which is not a duration"),
        (lambda: KafkaSink(connection="prod", transaction_timeout="30 days"), "transaction_timeout is 30 days"),
        (lambda: KafkaSink(topic="out"), "Option 'kafka.bootstrap.servers' is missing"),
    ],
)
def test_what_contradicts_or_is_missing_is_rejected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        make()
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "b-secret" not in str(raised.value)


def test_a_sink_can_name_the_server_of_the_file_of_its_connection(file: Path, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=k:9092\n")
    file.write_text(f'[connections.filed]\ntype = "kafka"\ncommand-config = "{properties}"\n')
    KafkaSink(connection="filed", topic="out", bootstrap_servers="k:9092")


def test_a_sink_needs_no_secret_before_its_query_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THE_SECRET")
    sink = KafkaSink(connection="prod", topic="out", settings={"client.id": "mine"})
    assert sink.options == {
        "connection": "prod",
        "kafka.client.id": "mine",
        "topic": "out",
        "includeHeaders": "true",
        "delivery": "exactly-once",
    }
    with pytest.raises(InvalidOption, match="environment variable THE_SECRET"):
        parse_sink(sink.options, streaming=False)


def test_settings_of_the_connection_are_those_of_the_sink(file: Path) -> None:
    file.write_text(
        '[connections.c]\ntype="kafka"\nbootstrap-servers="a:1"\n'
        'settings={"compression.type"="zstd", "transaction.timeout.ms"="9000", "linger.ms"="5"}'
    )
    options = parse_sink({"connection": "c", "topic": "t"}, streaming=False)
    assert options.transaction_timeout_ms == 9000
    assert options.batches.compression.name == "zstd"
    assert options.ignored == ("kafka.linger.ms",)


def test_tables_with_one_connection_are_in_one_database(file: Path) -> None:
    output = PostgresSink(connection="warehouse", table="t")
    letters = letter_table(PostgresSink(connection="warehouse", table="letters"))
    assert (letters.mode, letters.key) == ("upsert", ("id",))
    assert has_same_database(letters, output)
    assert not has_same_database(PostgresSink(connection="url", table="letters"), output)
    assert not has_same_database(replace(letters, conninfo="application_name=x"), output)
