"""The Python code of the documents runs, page by page, on a broker with Spark.

The blocks of a page run in order, with common names. A page that begins with names of the reader, such as ``flights``,
has a prelude here that defines them.
"""

from __future__ import annotations

import base64
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf import descriptor_pb2
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.schema_registry import FakeSchemaRegistry
from streamgroups_testkit.spark_sessions import ROCKSDB, STATE_STORE
from unit_tests.documents import PAGES, Block, blocks

#: Pages whose code does not run here, with the reason.
NOT_HERE = {
    "broker.rst": "it starts further brokers; test_embedded_broker does the same",
    "checkpoints.rst": "it reads the checkpoint of another query; test_checkpoints_are_copied does the same",
    "connections.rst": "it needs logins; test_connections does the same",
    "containers.rst": "it needs Docker; test_containers does the same",
    "demo.rst": "it reads the files of the demo; test_the_demo runs it",
    "pipelines.rst": "it needs a run of a pipeline; test_pipelines runs its files and commands",
    "processors.rst": "it needs the file of the page; test_processors does the same with this file",
    "savepoint-recipes.rst": "test_the_recipes_of_savepoints runs it",
    "savepoints.rst": "it needs a group with states; test_savepoints_api does the same",
    "security.rst": "it needs AWS; test_tokens does the same with an issuer of its own",
    "source.rst": "it needs the jars of Spark's sink; test_asynchronous_progress_tracking does the same",
    "testkit.rst": "test_testkit runs it",
    "tutorial.rst": "test_the_tutorials runs it",
    "tutorial-dead-letters.rst": "test_the_tutorials runs it",
    "windows-exactly-once.rst": "test_the_tutorials runs it",
}
_READ = """
    numbers = itertools.count()
    def read(topic, **options):
        # Each program has its own group.
        given = {{"group.id": f"{page}-{{topic}}-{{next(numbers)}}", "subscribe": topic}}
        given["kafka.bootstrap.servers"] = "localhost:9092"
        return spark.readStream.format("streamgroups").options(**given, **options).load()
"""
#: Stops the queries that ``sg.supervise`` runs on a page when they have made progress.
_STOP = """
    import threading
    def stop_queries(spark, ended):
        while not ended.wait(0.2):
            for query in spark.streams.active:
                if query.recentProgress:
                    query.stop()
    ended = threading.Event()
    threading.Thread(target=stop_queries, args=(spark, ended), daemon=True).start()
"""
#: Names that a page uses before its first block. ``read`` opens a stream of a topic.
PRELUDES = {
    "README.rst": _STOP,
    "cursors.rst": "",
    "dead-letters.rst": "",
    "decoding.rst": """
        from pathlib import Path
        from google.protobuf import descriptor_pb2
        fields = '[{"name": "airport", "type": "string"}, {"name": "delay", "type": "int"}]'
        Path("flight.avsc").write_text(f'{{"type": "record", "name": "Flight", "fields": {fields}}}')
        files = descriptor_pb2.FileDescriptorSet()
        board = files.file.add(name="board.proto", package="board", syntax="proto3")
        board.message_type.add(name="Flight").field.add(name="airport", number=1, type=9)
        Path("board.desc").write_bytes(files.SerializeToString())
        delays = read("delays").selectExpr("key", "'JFK' AS airport", "1 AS delay")
        """,
    "dedup.rst": "",
    "delta.rst": "",
    "event-time.rst": """
        flights = read("flights", membership="exclusive")
        trades = read("trades", membership="exclusive")
        prices = read("prices", membership="exclusive").selectExpr("*", "timestamp + interval 1 hour AS valid_until")
        query = read("orders").writeStream.format("noop").option("checkpointLocation", "/data/recorded").start()
        """,
    "functions.rst": """
        import pandas as pd
        def parse(flights):
            return pd.DataFrame([json.loads(value) for value in flights["value"]], index=flights.index)
        def enrich(flight):
            return {"country": "US"}
        """,
    "groups-cli.rst": """
        recorded = read("flights", historyDir="/data/flight-board/history").writeStream.format("noop")
        recorded = recorded.option("checkpointLocation", "/data/flight-board/checkpoint").trigger(availableNow=True)
        assert recorded.start().awaitTermination(60)
        """,
    "metrics.rst": "",
    "migration.rst": """
        from pathlib import Path
        Path("options.json").write_text('{"subscribe": "flights", "startingOffsets": "earliest"}')
        """,
    "notebooks.rst": "",
    "postgres.rst": """
        import pyarrow as pa
        from streamgroups.partitions import OffsetRange, TopicPartition
        records = pa.record_batch({"flight": ["UA1545"], "day": [1], "delay": [4]})
        token, ranges, first = "batch_1", [OffsetRange(TopicPartition("flights", 0), 0, 1)], {TopicPartition("flights", 0): 0}
        """,
    "side-effects.rst": """
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        import threading
        class Payments(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200 if self.headers["Idempotency-Key"] else 400)
                self.end_headers()
            def log_message(self, format, *args):
                pass
        server = ThreadingHTTPServer(("127.0.0.1", 0), Payments)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        payments = f"http://127.0.0.1:{server.server_address[1]}/charges"
        orders = read("orders")
        """,
    "sinks.rst": "",
    "state.rst": """
        import pyarrow as pa
        import pyarrow.compute as pc
        flights = read("flights")
        def count(state, records, time):
            new = records.group_by("key").aggregate([([], "count_all")]).rename_columns(["key", "n"])
            counts = pa.concat_tables([state, new]).group_by("key").aggregate([("n", "sum")])
            counts = counts.rename_columns(["key", "n"])
            return counts, counts
        def averages(state, records, time):
            return state, state.select(["key", "average"])
        """,
    "supervision.rst": _STOP,
    "windows.rst": """
        columns = "*", "timestamp AS ts", "CAST(key AS STRING) AS carrier", "1 AS delay"
        flights = read("flights", membership="exclusive").selectExpr(*columns)
        sessions = read("orders").selectExpr("*", "timestamp AS started", "timestamp AS ended", "1.0 AS kilowatts")
        sink = sg.KafkaSink(bootstrap_servers="localhost:9092", topic="counts")
        options = {"kafka.bootstrap.servers": "localhost:9092", "group.id": "windows", "subscribe": "flights"}
        """,
}
#: Queries that run the last DataFrames of a page which starts none.
AFTER = {
    "decoding.rst": 'flights.writeStream.format("noop").option("checkpointLocation", "/data/decoded").start()',
    "functions.rst": """
        for name, df in (("prices", prices), ("enriched", enriched)):
            df.writeStream.format("noop").option("checkpointLocation", "/data/" + name).start()
        """,
}
#: Text that a test cannot run as it is.
REPLACED = (
    (r"query\.awaitTermination\(\w*\)", "query.processAllAvailable()"),
    # An iteration over a group has no end.
    (r"in (cursors\.messages\(.*\)):", r"in itertools.islice(\1, 3):"),
    (r"^spark\.stop\(\)", "ended.set()"),
    (r"port=9309", "port=0"),
    (r"s3://bucket", "/data/bucket"),
    (r'"https://payments\.example/charges"', "payments"),
)
TOPICS = {
    "arrivals": 2,
    "charges": 2,
    "counts": 4,
    "dead-letters": 1,
    "delays": 4,
    "departures": 2,
    "flights": 4,
    "orders": 2,
    "orders-once": 2,
    "payments": 2,
    "prices": 2,
    "trades": 2,
}
#: Names that a later block of a page uses, if it does not continue the block before it.
BEFORE = {
    "README.rst": {1: "ended.set()"},
    "cursors.rst": {
        1: 'cursors = sg.cursors.GroupCursors("localhost:9092"); cursors.update_group("flights", "billing", sg.cursors.TRIM_HORIZON)'
    },
    "event-time.rst": {
        8: 'prices = read("prices", membership="exclusive", includeWatermark="true").withColumn("valid_until", F.col("timestamp"))'
    },
    "side-effects.rst": {1: 'orders = read("orders")'},
    "state.rst": {1: 'flights = read("flights")'},
    "supervision.rst": {
        1: "ended.clear(); threading.Thread(target=stop_queries, args=(spark, ended), daemon=True).start()",
        2: 'ended.set(); departures = read("departures")',
    },
}


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> None:
    """The topics of the documents, each with some records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
    for future in created.values():
        future.result(30)
    producer = ordered_producer(bootstrap)
    for topic in TOPICS.keys() - {"charges", "counts", "dead-letters", "delays", "orders-once"}:
        for i in range(400):
            producer.produce(topic, key=f"k{i % 5}", value=f'{{"airport": "JFK", "delay": {i}}}')
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The URL of a schema registry with the schemas of the documents."""
    fields = '[{"name": "airport", "type": "string"}, {"name": "delay", "type": "int"}]'
    with FakeSchemaRegistry() as registry:
        for subject in ("flights-value", "delays-value"):
            registry.add(subject, f'{{"type": "record", "name": "Flight", "fields": {fields}}}')
        arrival = descriptor_pb2.FileDescriptorProto(name="arrivals.proto", package="board", syntax="proto3")
        arrival.message_type.add(name="Arrival").field.add(name="airport", number=1, type=9)
        registry.add("arrivals-value", base64.b64encode(arrival.SerializeToString()).decode(), "PROTOBUF")
        yield registry.url


@pytest.fixture
def queries(spark: SparkSession, bootstrap: str) -> Iterator[None]:
    """Windows by Spark's state need its RocksDB store, as their pages state. Stops the queries of a page.

    Pages use the same groups for different programs, so the groups of earlier pages are deleted.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    unused = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(30).valid
    if unused:
        for deleted in admin.delete_consumer_groups([it.group_id for it in unused]).values():
            # Another test may have started a member of its group.
            with suppress(KafkaException):
                deleted.result(30)
    spark.conf.set(STATE_STORE, ROCKSDB)
    yield
    spark.conf.unset(STATE_STORE)
    for query in spark.streams.active:
        query.stop()


def test_every_page_with_code_runs_or_has_a_reason() -> None:
    pages = {page.name for page in PAGES if list(blocks(page))}
    assert pages == PRELUDES.keys() | NOT_HERE.keys()


#: Pages whose features have other tests with Spark, and which start many queries.
_LONG_PAGES = {
    "dead-letters.rst",
    "decoding.rst",
    "dedup.rst",
    "event-time.rst",
    "functions.rst",
    "notebooks.rst",
    "side-effects.rst",
    "sinks.rst",
    "state.rst",
    "supervision.rst",
    "windows.rst",
}


@pytest.mark.parametrize("page", [pytest.param(it, marks=LONG) if it in _LONG_PAGES else it for it in PRELUDES])
def test_the_code_of_a_page_runs(
    page: str,
    spark: SparkSession,
    bootstrap: str,
    postgres: str,
    tmp_path: Path,
    topics: None,
    queries: None,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Some pages write files.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program.py", str(tmp_path / "checkpoint")])
    names: dict[str, object] = {"__name__": "__main__", "spark": spark, "sg": sg}

    def run(code: str, source: str) -> None:
        for pattern, replacement in REPLACED:
            code = re.sub(pattern, replacement, code, flags=re.MULTILINE)
        code = code.replace("localhost:9092", bootstrap).replace("postgresql://board@db.example/airport", postgres)
        code = code.replace("http://localhost:8081", registry)
        # A relative path would be one of the JVM, which runs in another directory.
        code = re.sub(r'"(?:/data|/tmp|checkpoints)/', f'"{tmp_path}/', code)
        exec(compile(code, source, "exec"), names)

    run("import itertools\nfrom pyspark.sql import functions as F\n", "imports")
    run(dedent(_READ.format(page=page)) + dedent(PRELUDES[page]), f"the prelude of {page}")
    # Generated pages without code can have the same name.
    (path,) = (path for path in PAGES if path.name == page and list(blocks(path)))
    for i, block in enumerate(blocks(path)):
        if before := BEFORE.get(page, {}).get(i):
            run(before, f"before {block}")
        run(block.code, str(block))
    run(dedent(AFTER.get(page, "")), f"the queries of {page}")
    _finish(spark, block)
    # Clients that the page has left open would outlive the broker, and a thread the session.
    if isinstance(ended := names.get("ended"), threading.Event):
        ended.set()
    names.clear()


def _finish(spark: SparkSession, block: Block) -> None:
    """All queries of the page read their topics without an error."""
    for query in spark.streams.active:
        query.processAllAvailable()
        assert query.exception() is None, block
