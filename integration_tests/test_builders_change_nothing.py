"""A call that builds a query has no effect before ``start()``: brokers receive requests of metadata only, and checkpoint,
topics, ledgers, tables and the formats of the session stay as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.declared_flights import connections, file_text
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.tiers import LONG
from streamgroups_spark.ops.processor_names import PROCESSORS
from streamgroups_spark.register import register
from streamgroups_spark.sinks import ledger_registry
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed
from unit_tests.request_relay import API_VERSIONS, METADATA, Relay

N = 20
#: Functions that act at the call by their names, and the types of their results.
ACT = {
    "cursors": {"GroupState"},
    "event_time": {"BatchTime", "TimeExplanation", "emit_watermark", "explain_time"},
    "groups": {"DescribedGroup", "describe_group"},
    "ledgers": {"BatchLedger", "LedgerBatch"},
    "reports": {"OwnershipTimeline", "TimeRecorder", "ownership_timeline", "record_time"},
    "savepoints": {
        *("CheckpointRecord", "CommitRecord", "ListedSavepoint", "OperatorRecord", "OutputRecord", "Restored"),
        "SavepointProblem",
    },
    "side_effects": {"StableBatch", "StableBatches"},
    "supervision": {"Failure", "SupervisedRun", "session_active"},
    "": {"register", "supervise", "write"},
}
#: Values without a client, a file or a session.
VALUES = {
    "cursors": {*sg.cursors.CursorType.__members__, "CursorType", "Message"},
    "groups": {"OffsetRange", "TopicPartition"},
    "ledgers": {"LedgerPosition", "LedgerPositions", "LedgerTable"},
    "shapes": {"PythonAggregate"},
    "side_effects": {"idempotency_key"},
}
#: The name of a temporary file of Spark's first batch, which a killed query leaves.
UNSTARTED = ".0.6f5e7f55-0c3c-4f5e-9d5a-6c1b1a6b6a3f.tmp"


class Positions:
    """A table of positions that nothing may read or change."""

    def read(self) -> sg.ledgers.LedgerPositions:
        raise AssertionError

    def update(self, change: Callable[[sg.ledgers.LedgerPositions], sg.ledgers.LedgerPositions]) -> None:
        raise AssertionError


@pytest.fixture
def relay(bootstrap: str) -> Iterator[Relay]:
    """Records the requests to the broker."""
    with closing(Relay(bootstrap)) as relay:
        yield relay


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of a query that was killed before its first batch. Its start removes a file."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / UNSTARTED).write_text("v1")
    return tmp_path / "checkpoint"


def content(directory: Path) -> dict[str, bytes]:
    return {str(it.relative_to(directory)): it.read_bytes() for it in directory.rglob("*") if it.is_file()}


def registered(spark: SparkSession, checkpoint: Path) -> set[str]:
    """The kinds of sinks with a format for this checkpoint in the session."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    digest = hashlib.sha256(str(checkpoint).encode()).hexdigest()[:8]
    kinds = ("postgressink", "deltasink", "kafkasink")
    return {kind for kind in kinds if manager.dataSourceExists(f"streamgroups-{kind}-{digest}")}


def frames(spark: SparkSession, topic: str, options: Mapping[str, str]) -> dict[str, DataFrame]:
    """The result of each function that returns a frame."""
    records = spark.readStream.format("streamgroups").options(**options).load()
    timed = records.withWatermark("timestamp", "1 minute")
    both = {**options, "subscribe": f"{topic},other"}
    pair = spark.readStream.format("streamgroups").options(**both).load().withWatermark("timestamp", "1 minute")
    own = {**options, "membership": "exclusive", "includeWatermark": "true"}
    alone = spark.readStream.format("streamgroups").options(**own).load()
    event_time = sg.with_event_time(alone, "timestamp", watermark_delay="10 seconds")
    decoded = sg.decode(records, sg.schemas.Json("airport string, delay int"))
    on_time, late = sg.event_time.split_late(event_time, "timestamp", window=sg.shapes.tumbling("5 minutes"))
    windowed = sg.windows(
        timed,
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("5 minutes"),
        aggregate={"n": "count(*)"},
        name="counts",
    )
    return {
        "records": records,
        "with_event_time": event_time,
        "on time": on_time,
        "late": late,
        "decode": decoded,
        "encode": sg.encode(decoded, sg.schemas.Json("airport string, delay int")),
        "validate": sg.schemas.validate(records, '{"required": ["airport"]}'),
        "safely": sg.safely(
            records, lambda rows: rows[["value"]], output="price binary", columns=["value"], step="price"
        ),
        "windows": windowed,
        "window_results": sg.shapes.window_results(windowed),
        "dead_letters": sg.event_time.dead_letters(late),
        "stateful": sg.stateful(
            records,
            lambda state, _rows, _time: (state, state),
            by=["key"],
            state="n bigint",
            output="key binary, n bigint",
        ),
        "dedup": sg.dedup(timed, id="key", horizon="1 hour"),
        "join": sg.join(pair, left=topic, right="other", by=["key"], on="timestamp", within="10 minutes"),
        "read_repartitioned": sg.read_repartitioned(
            spark,
            topic=topic,
            by=["airport"],
            columns="airport string",
            options={name: value for name, value in options.items() if name != "subscribe"},
        ),
    }


def objects(bootstrap: str, directory: Path) -> list[Any]:
    """Every other object of the API. Their clients connect at most."""
    registry = sg.schemas.SchemaRegistry(f"http://{bootstrap}")
    with closing(sg.cursors.GroupCursors(bootstrap)) as cursors:
        return [
            cursors,
            registry,
            sg.schemas.Avro(registry=registry, subject="flights-value"),
            sg.schemas.Protobuf(registry=registry, subject="flights-value"),
            sg.shapes.hopping("10 minutes", hop="5 minutes"),
            sg.shapes.session("5 minutes"),
            sg.shapes.python_aggregate(len, "value", returns="bigint"),
            sg.event_time.watermark_header(0),
            sg.reports.MetricsListener(bootstrap_servers=bootstrap),
            sg.savepoints.Savepoints(str(directory / "savepoints"), bootstrap_servers=bootstrap),
            sg.supervision.RestartPolicy(max_failures=3),
            sg.supervision.retry_batches(lambda _rows, _batch: None),
        ]


def declared(
    spark: SparkSession, file: Path, directory: Path, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The rows and the writer of a declared processor, which reads a topic and has another one for its dead letters."""
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(file))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(directory / "processors"))
    # The registration has the path of the file of connections.
    register(spark)
    declaration = directory / "late-flights.yaml"
    declaration.write_text(file_text(*topics))
    return sg.processor(declaration, spark)


def writers(
    records: DataFrame, dead: DataFrame, sinks: Mapping[str, Any], checkpoint: Path, new_topic: str
) -> Iterator[tuple[str, Any]]:
    """Writers of all combinations of sinks."""
    rows, letters = records.select("key", "value"), dead.select("key", "value", "dead_letter")
    for name, sink in sinks.items():
        yield name, sg.exactly_once(rows, sink=sink, checkpoint=str(checkpoint))
        for other, letter_sink in sinks.items():
            if other != name or not isinstance(sink, sg.KafkaSink):
                dead_letters = sg.DeadLetters(sink=letter_sink)
                kind = f"{name} with letters in {other}"
                yield kind, sg.exactly_once(letters, sink=sink, checkpoint=str(checkpoint), dead_letters=dead_letters)
    changed = records.select(F.col("value").cast("string").alias("airport"))
    yield (
        "repartition",
        sg.repartition(changed, by=["airport"], topic=new_topic, partitions=3, checkpoint=str(checkpoint)),
    )


@LONG
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_the_broker_receives_requests_of_metadata_only(
    spark: SparkSession,
    relay: Relay,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    postgres: str,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    topic, output, dead = new_topic(2), new_topic(2), new_topic(1)
    missing = f"by-airport-of-{group}"
    sinks = {
        "Kafka": sg.KafkaSink(bootstrap_servers=relay.bootstrap, topic=output),
        "PostgreSQL": sg.PostgresSink(conninfo=postgres, table="board"),
        "Delta": sg.DeltaSink(uri=str(tmp_path / "table")),
        "dead Kafka": sg.KafkaSink(bootstrap_servers=relay.bootstrap, topic=dead),
    }
    before, ledgers, processors = content(checkpoint), dict(ledger_registry._ledgers._kept), dict(PROCESSORS)
    built: list[Any] = []
    if mode == "shared":
        options = shared_options(relay.bootstrap, group, topic)
        built += frames(spark, topic, options).items()
    else:
        options = exclusive_options(relay.bootstrap, group, topic)
    assert relay.requests == [], "frames send no request"
    if mode == "shared":
        built += objects(relay.bootstrap, tmp_path)
        built += declared(spark, connections(tmp_path, relay.bootstrap, postgres), tmp_path, (topic, dead), monkeypatch)
    records = spark.readStream.format("streamgroups").options(**options).load()
    decoded = sg.decode(records, sg.schemas.Json("airport string"))
    built += writers(records, decoded, sinks, checkpoint, missing)
    assert len(built) > 10
    kinds = Counter(key for key, _ in relay.requests)
    assert kinds.keys() == {METADATA, API_VERSIONS}, kinds
    assert content(checkpoint) == before
    assert registered(spark, checkpoint) == set()
    assert ledger_registry._ledgers._kept == ledgers
    assert processors == PROCESSORS
    assert missing not in admin.list_topics(timeout=10).topics
    assert not (tmp_path / "table").exists()
    with psycopg.connect(postgres) as db:
        assert db.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone() == (0,)


@LONG
def test_a_writer_that_is_not_started_does_not_affect_another_one(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    postgres: str,
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    topic, output = new_topic(2), new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    options = shared_options(bootstrap, group, topic)
    rows = spark.readStream.format("streamgroups").options(**options).load().select("key", "value")
    kafka = sg.KafkaSink(bootstrap_servers=bootstrap, topic=output)
    table = sg.PostgresSink(conninfo=postgres, table="board")
    started = sg.exactly_once(rows, sink=kafka, checkpoint=str(checkpoint))
    # The same checkpoint: the ledger of the second writer must not become that of the first one.
    never = [
        sg.exactly_once(rows, sink=table, checkpoint=str(checkpoint)),
        sg.exactly_once(rows, sink=sg.DeltaSink(uri=str(tmp_path / "table")), checkpoint=str(checkpoint)),
    ]
    run(started)
    assert len(read_committed(bootstrap, output)) == N
    assert sum(committed_offsets(bootstrap, group, topic).values()) == N
    assert not (checkpoint / "offsets" / UNSTARTED).exists(), "start() removes the file of the killed run"
    assert registered(spark, checkpoint) == set()
    assert not (tmp_path / "table").exists()
    assert len(never) == 2


@pytest.mark.parametrize("module", ["", *sg._MODULES])
def test_each_public_object_is_built_here_or_acts_by_its_name(module: str) -> None:
    names: set[str] = set() if module == "errors" else set((getattr(sg, module) if module else sg)._PLACES)
    built = {it for it in names if f"sg.{f'{module}.' if module else ''}{it}(" in Path(__file__).read_text()}
    assert names - built == ACT.get(module, set()) | VALUES.get(module, set())


def test_a_ledger_in_foreach_batch_is_registered_as_long_as_it_is_used(tmp_path: Path, group: str) -> None:
    ledger: Any = sg.ledgers.ledger(group, checkpoint=str(tmp_path / "c"), positions=Positions())
    stable = sg.side_effects.stable_batches(
        lambda _rows, _batch: None, checkpoint=str(tmp_path / "c"), location=str(tmp_path / "s")
    )
    del ledger, stable
    ledger_registry._ledgers._forget_ended()
    assert not any(group in it.group_ids for it in ledger_registry._ledgers._kept.values())
    assert list(tmp_path.iterdir()) == []
