"""While a broker is away its clients log one line in ten seconds, all of them together, through Python's logging."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamgroups.fakes import FakeClock
from streamgroups_kafka.admin import connection
from streamgroups_kafka.admin.connection_settings import admin_settings
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.logs import ClientLog, MemberLog, take_over_logs

#: A member, an admin, a metadata store and a reader of a broker, which then goes away: librdkafka's mock.
ONE_PROCESS = """
import contextlib, threading
import pyarrow as pa
from confluent_kafka import Producer
import streamgroups_kafka.admin.cluster
from streamgroups.errors import StreamGroupsError
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.retry import comes_true
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.read.range_reader import read_ranges

mock = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "0"})
(broker,) = mock.list_topics("t", timeout=30).brokers.values()
config = ClientConfig.from_options({"bootstrap.servers": f"{broker.host}:{broker.port}"})
cluster = KafkaCluster(config, attempts=2, retry_interval_ms=100)
assert comes_true(lambda: "t" in cluster.topics(), 30, every_s=0.05)
store, tp = KafkaMetadataStore(config, retry_timeout_s=1), TopicPartition("t", 0)
settings = MemberSettings("g", "member", config.for_member("g"), lambda: cluster.topics().keys() & {"t"}, refresh_ms=100)
member = KafkaMember(settings, lambda tps: {tp: Owned(0, Origin.STARTING) for tp in tps}, lambda event: None)
member.join(30_000)

def read():
    with contextlib.suppress(StreamGroupsError):
        list(read_ranges([OffsetRange(tp, 0, 10)], pa.schema([("value", pa.binary())]), ReadSettings(config, "g", timeout_ms=2000)))

reading = threading.Thread(target=read)
reading.start()
streamgroups_kafka.admin.cluster.REQUEST_TIMEOUT_S = 0.5
print("AWAY", file=__import__("sys").stderr, flush=True)
del mock
requests = [cluster.check_reachable, lambda: store.read("g", [tp]), lambda: AdminSession(config, timeout_s=1)]
for request in requests:
    with contextlib.suppress(StreamGroupsError):
        request()
log = client_log(config.get("bootstrap.servers"))
assert comes_true(lambda: log._states[""].outage.suppressed > 20, 30, every_s=0.05)
reading.join()
print("DONE", file=__import__("sys").stderr, flush=True)
import os; os._exit(0)
"""


def test_of_one_process() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_PROCESS], capture_output=True, text=True, timeout=120)
    assert "DONE" in done.stderr, done.stderr
    lines = done.stderr.partition("AWAY\n")[2].partition("DONE\n")[0].splitlines()
    assert 1 <= len(lines) <= 3, lines
    assert all(line.startswith("Kafka at 127.0.0.1:") for line in lines), lines


def test_recovery_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(0)
    log = ClientLog("b:9092", clock)
    for _ in range(250):
        log.failed("Connection refused")
        clock.advance(100)
    log.succeeded()
    clock.advance(1_000)
    log.succeeded()
    log.succeeded()
    assert caplog.messages == [
        "Kafka at b:9092: Connection refused",
        "Kafka at b:9092: Connection refused (99 more were not logged)",
        "Kafka at b:9092: Connection refused (99 more were not logged)",
        "Kafka at b:9092: requests succeed again after 26.0 s; 247 failures were not logged",
    ]
    assert {(r.name, r.levelname) for r in caplog.records} == {("streamgroups_kafka.clients", "WARNING")}


def test_lines_of_a_member_have_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    log = MemberLog(ClientLog("b:9092", lambda: 0), lambda text: text.replace("hunter2", "***"))
    for kind in ("FAIL", "FAIL", "CONFWARN", "CONFWARN"):
        log.log(logging.WARNING, "%s [%s] %s", kind, "member", "sent hunter2")
    assert caplog.messages == ["Kafka at b:9092: member: sent ***"] * 2, (
        "once of connections, once of the configuration"
    )


def _log_of_kafka_python(text: str) -> None:
    logging.getLogger("kafka.net.manager").error("Connection failed: %s", text)


def test_kafka_python_speaks_through_it_in_our_threads_only(caplog: pytest.LogCaptureFixture) -> None:
    def log_in_own_thread() -> None:
        take_over_logs(ClientLog("b:9092", lambda: 0))
        _log_of_kafka_python("refused")
        _log_of_kafka_python("refused")

    with ThreadPoolExecutor() as threads:
        threads.submit(log_in_own_thread).result(10)
    _log_of_kafka_python("refused")
    assert caplog.messages == ["Kafka at b:9092: Connection failed: refused", "Connection failed: refused"]


def test_sessions_of_two_clusters_with_one_client_id_log_as_their_own(caplog: pytest.LogCaptureFixture) -> None:
    networks = list[connection._Network]()
    try:
        for servers in ("a:9092", "b:9092"):
            settings = admin_settings(ClientConfig.from_options({"bootstrap.servers": servers}), timeout_s=1)
            networks.append(connection._Network(settings, ClientLog(servers, lambda: 0)))
            networks[-1].start()

        async def disconnected(servers: str) -> None:
            _log_of_kafka_python(servers)

        for network, servers in zip(networks, ("a:9092", "b:9092"), strict=True):
            network.run(disconnected, servers)
    finally:
        for network in networks:
            network.close()
    assert caplog.messages == [f"Kafka at {it}: Connection failed: {it}" for it in ("a:9092", "b:9092")]
