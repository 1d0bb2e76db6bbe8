"""X7: calls to another system in ``foreachBatch``, as ``docs/side-effects.rst`` describes: a batch that fails in between its
calls repeats them with the same keys and contents, also if a function is nondeterministic.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets

N, FAILS_AFTER = 30, 20


@dataclass
class Payments:
    """Another system. It stores the bodies of all requests by their ``Idempotency-Key``."""

    bodies: dict[str, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/charges"

    @property
    def requests(self) -> int:
        return sum(map(len, self.bodies.values()))


@pytest.fixture
def payments() -> Iterator[Payments]:
    system = Payments()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with system.lock:
                system.bodies.setdefault(self.headers["Idempotency-Key"], []).append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        system.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield system
        server.shutdown()
        serving.join()


def post(url: str, key: str, body: str) -> None:
    """One request of the outbox."""
    request = urllib.request.Request(url, body.encode(), {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=10):
        pass


@contextmanager
def failing() -> Iterator[None]:
    with pytest.raises(StreamingQueryException, match="the process fails"):
        yield


def run(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def orders(spark: SparkSession, bootstrap: str, topic: str, group: str) -> DataFrame:
    """Charges with an id that each evaluation computes again."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "group.id": group}
    records = spark.readStream.format("streamgroups").options(**options, startingOffsets="earliest").load()
    charge = F.to_json(F.struct(F.col("value").cast("string").alias("order"), F.expr("uuid()").alias("charge_id")))
    return records.select("topic", "partition", "offset", charge.alias("body"))


def test_X7_each_key_has_one_content(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    payments: Payments,
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    checkpoint, fails = str(tmp_path / "charging"), [True]

    def send(records: DataFrame, batch: sg.side_effects.StableBatch) -> None:
        for row in records.toLocalIterator():
            post(payments.url, row.idempotency_key, row.body)
            if fails[0] and payments.requests == FAILS_AFTER:
                raise RuntimeError("the process fails")

    charging = sg.side_effects.stable_batches(send, checkpoint=checkpoint, location=str(tmp_path / "stable"))
    charges = orders(spark, bootstrap, topic, group).writeStream.foreachBatch(charging)
    with failing():
        run(charges.option("checkpointLocation", checkpoint))
    fails[0] = False
    run(charges.option("checkpointLocation", checkpoint))
    assert payments.requests == N + FAILS_AFTER
    assert len(payments.bodies) == N
    assert {key: bodies for key, bodies in payments.bodies.items() if len(set(bodies)) > 1} == {}
    assert sorted(int(json.loads(body)["order"].rstrip(".")) for body, *_ in payments.bodies.values()) == list(range(N))
    assert committed_offsets(bootstrap, group, topic) == {0: N // 2, 1: N // 2}


@pytest.mark.long
def test_X7_a_topic_between_two_queries_is_a_stable_input(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    payments: Payments,
) -> None:
    """The first query writes the results of its nondeterministic function once; the second one only reads them."""
    topic, charges = new_topic(2), new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=charges)
    rows = orders(spark, bootstrap, topic, group).select(F.col("body").alias("value"))
    run(sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / "computing")))
    fails = [True]

    def send(records: DataFrame, batch_id: int) -> None:
        for row in records.toLocalIterator():
            key = sg.side_effects.idempotency_key("charging", row.topic, row.partition, row.offset)
            post(payments.url, key, row.value.decode())
            if fails[0] and payments.requests == FAILS_AFTER:
                raise RuntimeError("the process fails")

    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": charges,
        "group.id": f"{group}-charging",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    committed = spark.readStream.format("streamgroups").options(**options).load()
    writer = committed.writeStream.foreachBatch(send).option("checkpointLocation", str(tmp_path / "charging"))
    with failing():
        run(writer)
    fails[0] = False
    run(writer)
    assert payments.requests == N + FAILS_AFTER
    assert len(payments.bodies) == N
    assert {key: bodies for key, bodies in payments.bodies.items() if len(set(bodies)) > 1} == {}
