"""The private facts of kafka-python and librdkafka on which this library depends, as far as they need no broker.

An upgrade can change any of them. The failure of a test names the fact, the version and the modules that depend on it.
``client.private_kafka_python`` lists the classes of kafka-python.
"""

from __future__ import annotations

import inspect
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import confluent_kafka
import kafka
import pytest
from kafka.net.connection import KafkaConnection

from streamgroups_kafka import native
from streamgroups_kafka.client import private_kafka_python as private
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from unit_tests.requirements import without

_KAFKA_PYTHON = f"kafka-python {kafka.__version__}"
_LIBRDKAFKA = f"librdkafka {confluent_kafka.libversion()[0]} of confluent-kafka {confluent_kafka.version()}"
#: The versions of requests that the modules set, and that brokers from 3.0 support.
_VERSIONS = {
    "AddOffsetsToTxnRequest": 3,
    "AddPartitionsToTxnRequest": 3,
    "EndTxnRequest": 3,
    "FindCoordinatorRequest": 4,
    "InitProducerIdRequest": 4,
    "OffsetFetchRequest": 8,
    "ProduceRequest": 9,
    "TxnOffsetCommitRequest": 3,
}

Check: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a client.

    Args:
        client: the client with its version.
        text: the fact.
        modules: the modules of ``streamgroups_kafka`` that depend on it.
        check: raises if it is not true.
    """

    client: str
    text: str
    modules: str
    check: Check


FACTS: list[Fact] = []


def fact(client: str, text: str, modules: str) -> Callable[[Check], Check]:
    """Adds a fact. The name of its function is the name of the test."""

    def add(check: Check) -> Check:
        FACTS.append(Fact(client, text, modules, check))
        return check

    return add


def _arguments(of: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(of).parameters if name != "self"]


@fact(_KAFKA_PYTHON, "a connection manager has these methods with these arguments", "admin.connection")
def connection_manager() -> None:
    manager = private.KafkaConnectionManager
    assert _arguments(manager.__init__)[:1] == ["net"]
    assert _arguments(manager.send) == ["request", "node_id", "request_timeout_ms"]
    assert _arguments(manager.bootstrap_async)[0] == "timeout_ms"
    assert _arguments(manager.run) == ["coro", "args"]
    assert callable(manager.close)
    assert all(callable(getattr(private.NetworkSelector, it)) for it in ("start", "close"))


@fact(
    _KAFKA_PYTHON,
    "a throttled connection of a manager rejects requests until the time of the response",
    "admin.connection",
)
def throttled_connections() -> None:
    net = private.NetworkSelector()
    manager = private.KafkaConnectionManager(net, bootstrap_servers="127.0.0.1:9")
    assert manager._conns == {}
    assert private.throttled_s(None) == 0.0
    connection = KafkaConnection(net, broker_version_data=SimpleNamespace(broker_version=(4, 0)))
    assert private.throttled_s(connection) == 0.0
    connection._maybe_throttle(SimpleNamespace(throttle_time_ms=40_000))
    assert connection.paused == {"throttle"}
    assert 30 < private.throttled_s(connection) <= 40
    connection._throttle_time = 0.0
    connection._maybe_unthrottle()
    assert private.throttled_s(connection) == 0.0
    manager.close()
    net.close()


@fact(_KAFKA_PYTHON, "a selector runs a coroutine at once, and its sleep is awaited", "admin.connection")
def tasks_of_a_selector() -> None:
    net = private.NetworkSelector()

    async def later() -> str:
        await net.sleep(0.01)
        return "slept"

    async def both() -> str:
        return str(await net.call_soon_with_future(later))

    net.start()
    assert net.run(both) == "slept"
    net.stop()
    net.close()


@fact(_KAFKA_PYTHON, "the thread of a selector runs run_forever", "admin.connection")
def thread_of_a_selector() -> None:
    threads = list[threading.Thread]()

    class Recorded(private.NetworkSelector):  # type: ignore[misc]
        def run_forever(self) -> None:
            threads.append(threading.current_thread())
            super().run_forever()

    selector = Recorded()
    selector.start()
    selector.stop()
    selector.close()
    assert [it is threading.main_thread() for it in threads] == [False]


@fact(
    _KAFKA_PYTHON,
    "the settings of a connection contain a proxy, a TLS context, a selector and limits",
    "admin.connection_settings",
)
def settings_of_connections() -> None:
    names = {
        "proxy_url",
        "ssl_context",
        "receive_message_max_bytes",
        "max_in_flight_requests_per_connection",
        "reconnect_backoff_max_ms",
    }
    assert names <= private.KafkaConnectionManager.DEFAULT_CONFIG.keys()
    assert "selector" in private.NetworkSelector.DEFAULT_CONFIG


@fact(
    _KAFKA_PYTHON,
    "a socket class belongs to the schemes of its proxy, resolves names by dns_lookup, and connects by sock_connect",
    "admin.connection_settings",
)
def sockets() -> None:
    assert _arguments(private.KafkaNetSocket.sock_connect) == ["net", "sock", "sockaddr", "timeout_at"]
    assert _arguments(private.KafkaNetSocket.dns_lookup) == ["host", "port", "raise_error"]
    subclasses = {scheme for it in private.KafkaNetSocket.__subclasses__() for scheme in it.SCHEMES}
    assert "socks5" in subclasses


@fact(_KAFKA_PYTHON, "requests have the versions that brokers from 3.0 support", "admin, transactions")
def versions_of_requests() -> None:
    found = {name: getattr(private, name) for name in _VERSIONS}
    outside = {name for name, it in found.items() if not it.min_version <= _VERSIONS[name] <= it.max_version}
    assert not outside


@fact(
    _KAFKA_PYTHON,
    "the builder of record batches writes format 2 with the identity of the producer",
    "write.plain_encoder",
)
def record_batches() -> None:
    builder = private.DefaultRecordBatchBuilder(2, 0, True, 7, 3, 11, 1_000)
    assert builder.append(0, 5, b"key", b"value", [("name", b"v")]) is not None
    batch = bytes(builder.build())
    assert batch[16] == 2
    assert struct.unpack_from(">qhi", batch, 43) == (7, 3, 11)
    assert struct.unpack_from(">I", batch, 17) == (private.calc_crc32c(memoryview(batch)[21:]),)
    assert private.calc_crc32c(b"123456789") == 0xE3069283


@fact(_LIBRDKAFKA, "the metadata of a consumer group has the format CGMDv2", "membership.group_metadata, transactions")
def consumer_group_metadata() -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "board", "log_level": 0})
    try:
        found = ConsumerGroupMetadata.parse(consumer.consumer_group_metadata())
    finally:
        consumer.close()
    assert found == ConsumerGroupMetadata("board", None, "")


@fact(
    _LIBRDKAFKA,
    "the library of the wheel has a path that the native reader can open, with the same version",
    "native, read.native_fetcher",
)
def library_of_the_wheel() -> None:
    status = native.status()
    if not status.available:
        without("native", f"{status.reason} {status.remedy}")
    assert status.librdkafka_version == confluent_kafka.libversion()[0]
    assert status.librdkafka_path is not None
    assert Path(status.librdkafka_path).name.startswith("librdkafka")


@pytest.mark.parametrize("name", sorted({name for it in FACTS for name in it.modules.split(", ")}))
def test_a_module_that_depends_on_a_fact_exists(name: str) -> None:
    assert find_spec(f"streamgroups_kafka.{name}") is not None


@pytest.mark.parametrize("known", FACTS, ids=lambda it: it.check.__name__)
def test_a_fact_of_a_client(known: Fact) -> None:
    try:
        known.check()
    except Exception as e:
        pytest.fail(
            f"{known.client}: this private fact is not true: {known.text}. These modules of streamgroups_kafka depend on it: "
            f"{known.modules}. {type(e).__name__}: {e}",
            pytrace=False,
        )
