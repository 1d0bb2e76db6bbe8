"""A socket that cannot connect, or whose session ends, is closed at once, not when the garbage collector finds it."""

from __future__ import annotations

import gc
import socket
import threading
import warnings

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig


def _unclosed(config: dict[str, str]) -> list[str]:
    """The warnings of one attempt to connect that fails."""
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(BrokerUnreachable):
            AdminSession(ClientConfig.from_options(config), timeout_s=0.4)
        gc.collect()
    return [str(w.message) for w in warned]


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
