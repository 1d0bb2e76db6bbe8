"""A socket that cannot connect, or whose session ends, is closed at once, not when the garbage collector finds it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from kafka.errors import KafkaError

from streamgroups.errors import BrokerUnreachable
from streamgroups_kafka.admin import connection
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.connection_settings import admin_settings
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.logs import client_log
from streamgroups_testkit.waits import wait_until


def _unclosed(config: dict[str, str]) -> list[str]:
    """The warnings of one attempt to connect that fails."""
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(BrokerUnreachable):
            AdminSession(ClientConfig.from_options(config), timeout_s=0.4)
        gc.collect()
    return [str(w.message) for w in warned]


def test_an_invalid_name_of_a_host_is_an_unreachable_broker(caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig.from_options({"bootstrap.servers": "kafka..internal:9092"})
    with pytest.raises(BrokerUnreachable, match="unknown host"):
        AdminSession(config, timeout_s=1.0)
    assert "DNS Resolution failure" in caplog.text


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_rejected_connection_leaves_no_socket(protocol: str) -> None:
    assert _unclosed({"bootstrap.servers": "127.0.0.1:1", "security.protocol": protocol}) == []


def test_a_failed_handshake_leaves_no_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        answering = threading.Thread(target=hang_up)
        answering.start()
        try:
            port = server.getsockname()[1]
            assert _unclosed({"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}) == []
        finally:
            server.shutdown(socket.SHUT_RDWR)
            answering.join()


def test_a_handshake_in_progress_at_the_end_of_the_session_leaves_no_socket() -> None:
    # The server accepts connections and sends nothing.
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert _unclosed({"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}) == []


def test_a_handshake_without_a_response_ends() -> None:
    """Requests wait for it, also those of a session that was connected before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = {"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "security.protocol": "SSL"}
        settings = admin_settings(ClientConfig.from_options(config), timeout_s=0.3)
        network = connection._Network(settings, client_log("unreachable:9092"))
        manager = connection._CountingManager(network, Counter(), settings)
        network.start()
        try:
            connecting = manager.bootstrap_async(300)
            wait_until(lambda: connecting.is_done, "the attempt ends", timeout_s=10)
            assert isinstance(connecting.exception, KafkaError)
        finally:
            manager.close()
            network.close()


def test_a_host_that_does_not_respond_does_not_use_the_whole_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [it.getsockname()[1] for it in (mute, other)]
        choices = itertools.cycle(ports)

        def chosen(brokers: Sequence[Any]) -> Any:
            port = next(choices)
            return next(it for it in brokers if it.port == port)

        monkeypatch.setattr("kafka.net.manager.random.choice", chosen)
        config = {"bootstrap.servers": ",".join(f"127.0.0.1:{it}" for it in ports)}
        with pytest.raises(BrokerUnreachable):
            AdminSession(ClientConfig.from_options(config), timeout_s=0.4)
        other.settimeout(5)
        other.accept()[0].close()


def test_a_slow_diagnosis_does_not_delay_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed = threading.Event()

    def why_not(*_: object) -> connection._Diagnosis:
        diagnosed.wait(10)
        return connection._Diagnosis(
            BrokerUnreachable("The host does not respond.", remedy="Check it."), is_final=False
        )

    monkeypatch.setattr(connection, "_why_not", why_not)
    monkeypatch.setattr(connection, "_RETRY_TIMEOUT_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [it.getsockname()[1] for it in (mute, other)]
        choices = itertools.chain(ports, itertools.repeat(ports[1]))

        def chosen(brokers: Sequence[Any]) -> Any:
            port = next(choices)
            return next(it for it in brokers if it.port == port)

        def accept() -> None:
            other.settimeout(5)
            other.accept()[0].close()
            diagnosed.set()

        monkeypatch.setattr("kafka.net.manager.random.choice", chosen)
        accepting = threading.Thread(target=accept)
        accepting.start()
        config = {"bootstrap.servers": ",".join(f"127.0.0.1:{it}" for it in ports)}
        with pytest.raises(BrokerUnreachable, match=r"could not be reached.*The host does not respond"):
            AdminSession(ClientConfig.from_options(config), timeout_s=0.8)
        accepting.join()
    assert diagnosed.is_set()


class _Cluster:
    """The metadata of kafka-python, which contains a broker after the next request only."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def broker_metadata(self, node_id: int) -> object | None:
        return node_id if node_id in self.known else None

    async def refresh_metadata(self) -> None:
        self.known.add(4)


def test_a_broker_that_returns_is_found_at_once() -> None:
    class Manager:
        cluster = _Cluster()

        def throttled_s(self, node_id: int) -> float:
            return 0.0

        async def send(self, request: str, node_id: int, request_timeout_ms: int | None = None) -> tuple[str, bool]:
            return request, node_id in self.cluster.known

    session = AdminSession.__new__(AdminSession)
    session._manager = Manager()  # type: ignore[assignment]
    assert asyncio.run(session.send("groups", 4)) == ("groups", True)
    session._manager.cluster.known.clear()
    assert asyncio.run(session.send_all({4: "groups"})) == {4: ("groups", True)}
