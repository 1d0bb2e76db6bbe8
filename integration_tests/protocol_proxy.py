"""A proxy in front of the nodes of a cluster. It understands the framing of Kafka's protocol, and loses, drops, cuts, delays or
duplicates what its rules select (``protocol_rules``).

Used by tests and by the campaigns. The proxy has one listener for each node, and rewrites the addresses of nodes in responses. So a
client that connects to the proxy sends no request to a node directly. The nodes can restart on their ports meanwhile. Source: Kafka's
protocol guide: a message has its size, then the API key, the version and the correlation id of a request, or the correlation id of a
response. The responses of a connection have the order of their requests.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from integration_tests.protocol_rules import Action, ApiKey, AppliedRule, Rules
from unit_tests.frames import end, frames, send_frame

_DESCRIBE_CLUSTER = 60
#: The responses with addresses of nodes. Those of Produce and Fetch have them in tagged fields, if a leader has moved.
_WITH_ADDRESSES = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, _DESCRIBE_CLUSTER)
_CONNECT_S = 10.0


@dataclass(slots=True)
class _Sent:
    """A request whose response is expected.

    Args:
        key: its API key.
        correlation_id: the number that the response repeats.
        duplicate: the rule, if this is the second copy of a request.
    """

    key: int
    correlation_id: bytes
    duplicate: AppliedRule | None = None


class ProtocolProxy:
    """Forwards the connections of clients to the nodes of a cluster.

    Args:
        bootstrap: the addresses of all nodes, separated by commas. They are the addresses that the nodes advertise.
    """

    def __init__(self, bootstrap: str) -> None:
        self._nodes = [(host, int(port)) for host, _, port in (it.rpartition(":") for it in bootstrap.split(","))]
        #: The rules, with counts of their actions.
        self.rules = Rules()
        self._lock, self._open = threading.Lock(), set[_Connection]()
        self.is_closed = threading.Event()

    def __enter__(self) -> ProtocolProxy:
        self._listeners = [socket.create_server((host, 0)) for host, _ in self._nodes]
        addresses = [(node[0], it.getsockname()[1]) for node, it in zip(self._nodes, self._listeners, strict=True)]
        #: The addresses for clients.
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
        # The host of an address is followed by its port. The host and so the length stay the same.
        self._rewritten = {_address(*node): _address(*own) for node, own in zip(self._nodes, addresses, strict=True)}
        for listener, node in zip(self._listeners, self._nodes, strict=True):
            threading.Thread(target=self._accept, args=(listener, node), daemon=True).start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            self.is_closed.set()
        for listener in self._listeners:
            end(listener)
            listener.close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            connection.end()

    def _accept(self, listener: socket.socket, node: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client, node), daemon=True).start()

    def _serve(self, client: socket.socket, node: tuple[str, int]) -> None:
        """Forwards a connection until one of its sides ends. Without its node, it ends at once."""
        with client:
            try:
                server = socket.create_connection(node, _CONNECT_S)
            except OSError:
                return
            with server:
                server.settimeout(None)
                for it in (client, server):
                    it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = _Connection(client, server, self.rules, self._rewritten, self.is_closed)
                with self._lock:
                    if self.is_closed.is_set():
                        return
                    self._open.add(connection)
                try:
                    connection.run()
                finally:
                    with self._lock:
                        self._open.discard(connection)


class _Connection:
    """One connection of a client to a node. Three threads serve it: one forwards requests, one receives responses, and one sends
    them at their time.
    """

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        rules: Rules,
        rewritten: dict[bytes, bytes],
        is_closed: threading.Event,
    ) -> None:
        self._client, self._server, self._rules, self._rewritten = client, server, rules, rewritten
        self._is_closed = is_closed
        #: The requests without a response, in order.
        self._sent: deque[_Sent] = deque()
        #: The responses with their times. ``None`` ends the connection.
        self._responses: queue.Queue[tuple[float, bytes] | None] = queue.Queue()

    def run(self) -> None:
        """Forwards both directions until one of them ends."""
        others = [threading.Thread(target=it, daemon=True) for it in (self._receive_responses, self._send_responses)]
        for thread in others:
            thread.start()
        with suppress(OSError):
            self._forward_requests()
        self.end()
        for thread in others:
            thread.join()
        for it in self._sent:
            if it.duplicate is not None:
                self._rules.has_failed(it.duplicate)

    def end(self) -> None:
        """Ends both sides of the connection."""
        end(self._client)
        end(self._server)

    def _forward_requests(self) -> None:
        for frame in frames(self._client):
            (key,), correlation_id = struct.unpack(">h", frame[:2]), frame[4:8]
            rule = self._rules.requested(key)
            if rule is not None and rule.rule.action is Action.CUT:
                self._rules.has_happened(rule, key)
                return
            # The broker can respond at once.
            self._sent.append(_Sent(key, correlation_id))
            if rule is not None:
                self._sent.append(_Sent(key, correlation_id, rule))
            for _ in range(1 if rule is None else 2):
                send_frame(self._server, frame)

    def _receive_responses(self) -> None:
        try:
            with suppress(OSError):
                for frame in frames(self._server):
                    if not self._has_response(frame):
                        break
        finally:
            self._responses.put(None)

    def _has_response(self, frame: bytes) -> bool:
        """Schedules a response, unless a rule prevents it. Returns whether the connection stays open."""
        sent = self._request_of(frame)
        if sent.duplicate is not None:
            self._rules.has_happened(sent.duplicate, sent.key)
            return True
        rule, due_s = self._rules.responded(sent.key), time.monotonic()
        if rule is not None:
            self._rules.has_happened(rule, sent.key)
            if rule.rule.action is Action.LOSE:
                return False
            if rule.rule.action is Action.DROP:
                return True
            due_s += rule.rule.delay_ms / 1_000
        self._responses.put((due_s, self._with_own_addresses(sent.key, frame)))
        return True

    def _request_of(self, response: bytes) -> _Sent:
        """The request of a response. A request to produce without acknowledgments has no response."""
        while True:
            sent = self._sent.popleft()
            if sent.correlation_id == response[:4]:
                return sent
            if sent.duplicate is not None:
                self._rules.has_failed(sent.duplicate)

    def _send_responses(self) -> None:
        with suppress(OSError):
            while (response := self._responses.get()) is not None:
                due_s, frame = response
                if (wait_s := due_s - time.monotonic()) > 0:
                    self._is_closed.wait(wait_s)
                send_frame(self._client, frame)
        self.end()

    def _with_own_addresses(self, key: int, frame: bytes) -> bytes:
        if key in _WITH_ADDRESSES:
            for address, own in self._rewritten.items():
                frame = frame.replace(address, own)
        return frame


def _address(host: str, port: int) -> bytes:
    return host.encode() + struct.pack(">i", port)
