"""The native reader without a broker: its rejections, the connections that it keeps, and the decoding of names."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.errors import InvalidOption
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka import native
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.read import native_fetcher
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.read.native_fetcher import NativeFetcher, WarmClients
from unit_tests.requirements import without

#: No broker listens there; a client is created anyway.
NOWHERE = (("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0"))


@pytest.fixture(scope="module")
def extension() -> Any:
    status = native.status()
    if not status.available:
        without("native", status.reason)
    return importlib.import_module("streamgroups_kafka._native")


def test_a_missing_extension_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", None)
    native.status.cache_clear()
    native._uses_native.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert not native.uses_native("reader")
            assert not native.uses_native("reader")
        assert len(caplog.records) == 1
        assert "a C compiler" in caplog.text
        with pytest.raises(InvalidOption, match="STREAMGROUPS_READER requires the native reader"):
            native._uses_native("reader", "native")
    finally:
        native.status.cache_clear()
        native._uses_native.cache_clear()


def test_an_extension_of_another_version_is_not_used(extension: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(extension, "INTERFACE")
    found = native.status.__wrapped__()
    assert (found.available, found.reason) == (False, "The extension belongs to another version of streamgroups.")


def test_another_reader_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="STREAMGROUPS_READER is 'fast'"):
        native._uses_native("reader", "fast")


def test_a_library_that_is_not_librdkafka(extension: Any) -> None:
    with pytest.raises(OSError, match="loaded already"):
        extension.load("/lib/libc.so.6")


def test_a_setting_that_librdkafka_rejects(extension: Any) -> None:
    with pytest.raises(extension.NativeError, match=r"fetch\.min\.bytes"):
        extension.Client([("fetch.min.bytes", "many")])


@pytest.mark.parametrize(
    ("ranges", "fields", "error"),
    [
        ([("t", -1, 0, 1)], [0], ValueError),
        ([("t", 0, -5, 1)], [0], ValueError),
        ([("t", 0, 0)], [0], TypeError),
        ([("t", 0, 0, 1)], [8], ValueError),
        ([("t", 0, 0, 1)], list(range(8)) * 2, ValueError),
        ([("t", 0, 0, 1)], ["key"], TypeError),
    ],
)
def test_a_reading_that_makes_no_sense(extension: Any, ranges: list[Any], fields: list[Any], error: type) -> None:
    client = extension.Client(NOWHERE)
    with pytest.raises(error):
        client.start(ranges, fields, 10, 10)
    client.close()


def test_a_closed_client(extension: Any) -> None:
    client = extension.Client(NOWHERE)
    client.close()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.fill(0)


def test_a_token(extension: Any) -> None:
    expires_at_ms = time.time_ns() // 1_000_000 + 60_000
    plain = extension.Client(NOWHERE)
    with pytest.raises(extension.NativeError, match="OAUTHBEARER"):
        plain.set_token("abc", expires_at_ms, "ann", [])
    plain.close()
    oauth = (("security.protocol", "sasl_plaintext"), ("sasl.mechanism", "OAUTHBEARER"))
    client = extension.Client((*NOWHERE, *oauth))
    client.set_token("abc", expires_at_ms, "ann", ["pool", "p-1"])
    client.set_token("def", expires_at_ms, "", [])
    for rejected in (("abc", 1, "ann", []), ("abc", expires_at_ms, "ann", ["auth", "x"])):
        with pytest.raises(extension.NativeError) as raised:
            client.set_token(*rejected)
        assert "abc" not in str(raised.value)
    for malformed in (
        ("abc", expires_at_ms, "ann", [1]),
        ("abc", expires_at_ms, "ann", ()),
        ("abc", "soon", "ann", []),
    ):
        with pytest.raises(TypeError):
            client.set_token(*malformed)
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.set_token("abc", expires_at_ms, "ann", [])


def test_one_thread_at_a_time(extension: Any) -> None:
    client = extension.Client(NOWHERE)
    client.start([("t", 0, 0, 10)], [0], 10, 1000)
    rejected = threading.Event()
    deadline_s = time.monotonic() + 10

    def use() -> None:
        while not rejected.is_set() and time.monotonic() < deadline_s:
            try:
                client.fill(20)
            except RuntimeError:
                rejected.set()

    other = threading.Thread(target=use)
    other.start()
    use()
    other.join()
    assert rejected.is_set()
    client.close()


def test_an_empty_batch(extension: Any) -> None:
    import pyarrow as pa

    settings = ReadSettings(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}), "g")
    schema = pa.schema(list(COLUMNS.items()))
    fetcher = NativeFetcher([OffsetRange(TopicPartition("t", 0), 0, 5)], schema, settings)
    batch = fetcher.take()
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema == schema
    fetcher.close()
    with pytest.raises(ValueError, match="closed"):
        fetcher.take()


def test_a_few_clients_are_kept_and_not_for_long(extension: Any) -> None:
    warm = WarmClients(most=2, idle_s=3_600)
    first = warm.take(NOWHERE, {})
    warm.release(NOWHERE, first, {})
    assert warm.take(NOWHERE, {}) is first
    warm.release(NOWHERE, first, {})
    for name in ("a", "b"):
        config = (*NOWHERE, ("client.id", name))
        warm.release(config, warm.take(config, {}), {})
    assert len(warm) == 2
    with pytest.raises(ValueError, match="closed"):
        first.stop()
    warm.close_idle()
    assert len(warm) == 2
    hasty = WarmClients(most=2, idle_s=0)
    client = hasty.take(NOWHERE, {})
    hasty.release(NOWHERE, client, {})
    hasty.close_idle()
    assert len(hasty) == 0
    with pytest.raises(ValueError, match="closed"):
        client.stop()
    warm.close()
    assert len(warm) == 0


#: The clients of the first process are also those of the third one, which cannot close them.
_FORKS = """
import os, signal, sys
from streamgroups_kafka import native
native.status()
from streamgroups_kafka.read.native_fetcher import WARM
config = (("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0"))
client = WARM.take(config, {})
client.start([("flights", 0, 0, 10)], [0], 10, 10)
WARM.release(config, client, {})
del client
child = os.fork()
if child == 0:
    signal.alarm(20)
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(10)
        os._exit(len(WARM))
    os._exit(os.waitpid(grandchild, 0)[1] != 0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def test_a_second_fork_leaves_the_clients_alone(extension: Any) -> None:
    forks = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKS]
    assert (
        subprocess.run(forks, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False).returncode == 0
    )


def test_S11_a_kept_client_is_not_used_for_a_recreated_topic(extension: Any) -> None:
    """It has fetched records of the earlier topic, behind the ranges that were read."""
    warm = WarmClients(most=2, idle_s=3_600)
    client = warm.take(NOWHERE, {"flights": "id-1"})
    warm.release(NOWHERE, client, {"flights": "id-1"})
    of_gates: dict[str, str | None] = {"gates": "id-9"}
    assert warm.take(NOWHERE, of_gates) is client
    assert of_gates == {"gates": "id-9", "flights": "id-1"}
    warm.release(NOWHERE, client, of_gates)
    for ids in ({"flights": "id-2"}, {"flights": None}, {"gates": "id-8"}):
        other = warm.take(NOWHERE, ids)
        assert other is not client
        other.close()
    assert warm.take(NOWHERE, {"flights": "id-1", "gates": "id-9", "new": None}) is client
    client.close()


@pytest.mark.parametrize("logs", [{"flights": None}, {"flights": "id-1", TopicPartition("flights", 0): None}])
def test_S11_a_client_of_an_unknown_log_is_not_kept(extension: Any, logs: dict[Any, Any]) -> None:
    """Nothing would show that its records are those of the same topic, and of the same history of the log."""
    warm = WarmClients(most=2, idle_s=3_600)
    client = warm.take(NOWHERE, logs)
    warm.release(NOWHERE, client, logs)
    assert len(warm) == 0
    with pytest.raises(ValueError, match="closed"):
        client.stop()


def test_S7_a_kept_client_is_not_used_after_a_change_of_the_leader(extension: Any) -> None:
    """It has fetched records that an unclean election may have replaced."""
    warm, p0, p1 = WarmClients(most=2, idle_s=3_600), TopicPartition("flights", 0), TopicPartition("flights", 1)
    client = warm.take(NOWHERE, {p0: 5})
    warm.release(NOWHERE, client, {p0: 5})
    for logs in ({p0: 6}, {p0: None}, {p1: 2, p0: 4}):
        other = warm.take(NOWHERE, logs)
        assert other is not client
        other.close()
    assert warm.take(NOWHERE, {p0: 5, p1: 2}) is client
    client.close()


def test_a_configuration_that_cannot_be(extension: Any) -> None:
    with pytest.raises(KafkaException, match=r"fetch\.min\.bytes") as raised:
        WarmClients().take((("fetch.min.bytes", "many"),), {})
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    # A combination that librdkafka rejects when it creates the client.
    with pytest.raises(KafkaException, match=r"session\.timeout\.ms") as raised:
        WarmClients().take((("max.poll.interval.ms", "1000"), ("session.timeout.ms", "2000")), {})
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


def test_an_unknown_error_of_a_broker_keeps_its_code(extension: Any) -> None:
    with pytest.raises(KafkaException) as raised, native_fetcher._kafka_exceptions():
        raise extension.NativeError(-1, "unknown")
    assert raised.value.args[0].code() == KafkaError.UNKNOWN
