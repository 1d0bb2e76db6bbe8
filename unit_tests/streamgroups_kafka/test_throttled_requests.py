"""A quota of a broker throttles a user: requests wait, and those to other brokers do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.admin import batch_fetch, connection
from streamgroups_kafka.admin.connection import AdminSession, ThrottledError
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_kafka.write.encoder import EncodedBatch

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})


class Network:
    """A network with a clock of its own."""

    now_s = 100.0

    async def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s
        await asyncio.sleep(0)

    def call_soon_with_future(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        return asyncio.ensure_future(coroutine(*args))

    def monotonic(self) -> float:
        return self.now_s


class Manager:
    """Brokers 1 and 2, which throttle the user until these times."""

    def __init__(self, net: Network, until_s: Mapping[int | None, float]) -> None:
        self.net, self.until_s, self.sent = net, until_s, list[tuple[float, int | None]]()

    def throttled_s(self, node_id: int | None) -> float:
        return max(0.0, self.until_s.get(node_id, 0.0) - self.net.now_s)

    def send(self, request: str, node_id: int | None, request_timeout_ms: int | None = None) -> Any:
        self.sent.append((self.net.now_s, node_id))
        response = asyncio.get_running_loop().create_future()
        response.set_result(request)
        return response


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    found = Network()
    monkeypatch.setattr(connection.time, "monotonic", found.monotonic)
    return found


def session_of(manager: Manager, throttle_timeout_s: float) -> AdminSession:
    made: Any = AdminSession.__new__(AdminSession)
    made._manager, made._net, made._throttle_timeout_s, made._config = manager, manager.net, throttle_timeout_s, CONFIG

    async def find(_: object) -> None:
        """All brokers are known."""

    made._find = find
    session: AdminSession = made
    return session


def test_a_request_waits_for_the_end_of_the_throttle_and_others_do_not(network: Network) -> None:
    manager = Manager(network, {1: 140.0})
    found = asyncio.run(session_of(manager, 900).send_all({1: "one", 2: "two"}))
    assert found == {1: "one", 2: "two"}
    assert manager.sent == [(100.0, 2), (140.0, 1)]


def test_a_request_to_any_broker_waits_only_if_all_throttle(network: Network) -> None:
    manager = Manager(network, {None: 103.0})
    assert asyncio.run(session_of(manager, 10).send("metadata")) == "metadata"
    assert manager.sent == [(103.0, None)]


def test_a_longer_throttle_is_named_and_the_other_responses_arrive(network: Network) -> None:
    session = session_of(Manager(network, {1: 145.0}), 30)
    responses, failure = asyncio.run(session.send_each({1: "one", 2: "two"}))
    assert responses == {2: "two"}
    assert isinstance(failure, ThrottledError)
    error = session.translated(failure, "Writing to flights-0")
    assert isinstance(error, BrokerUnreachable)
    assert str(error).startswith(
        "Writing to flights-0: a quota of the broker throttles this user for 45 s more. Try again"
    )
    with pytest.raises(ThrottledError):
        asyncio.run(session.send_all({1: "one", 2: "two"}))


class Brokers:
    """A topic with partition 0 on broker 0 and all others on broker 1, which does not respond to some requests."""

    def __init__(
        self,
        unanswered: int = 0,
        max_request_bytes: int = 100 << 20,
        failure: Exception = kafka.errors.KafkaConnectionError("closed"),  # noqa: B008
    ) -> None:
        self.failure = failure
        self.unanswered, self.max_request_bytes, self.written = unanswered, max_request_bytes, list[int]()

    def once(self, what: str, request: Callable[..., Any], *args: object) -> Any:
        try:
            return asyncio.run(request(*args))
        except kafka.errors.KafkaError as e:
            raise self.translated(e, what) from None

    async def send(self, request: Any, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        if type(request).__name__ == "InitProducerIdRequest":
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)
        partitions = [SimpleNamespace(partition_index=p, leader_id=min(p, 1)) for p in range(20)]
        return SimpleNamespace(topics=[SimpleNamespace(name="flights", error_code=0, partitions=partitions)])

    async def send_each(self, requests: Mapping[int, Any], timeout_s: float | None = None) -> Any:
        responses: dict[int, Any] = {}
        failure = None
        for node in sorted(requests):
            batches = {p.index: p.records for topic in requests[node].topic_data for p in topic.partition_data}
            self.written += batches
            if (node == 1 and self.unanswered) or sum(map(len, batches.values())) > self.max_request_bytes:
                self.unanswered = max(0, self.unanswered - 1)
                failure = self.failure
                continue
            written = [SimpleNamespace(index=it, error_code=0) for it in batches]
            responses[node] = SimpleNamespace(responses=[SimpleNamespace(name="flights", partition_responses=written)])
        return responses, failure

    def translated(self, error: Exception, what: str) -> BrokerUnreachable:
        return BrokerUnreachable(f"{what}: {error}", remedy="Try again.")

    def close(self) -> None:
        """Does nothing."""


def test_X1_batches_that_a_broker_has_acknowledged_are_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(unanswered=2)
    monkeypatch.setattr("streamgroups_kafka.transactions.transaction_requests.AdminSession", lambda *_, **__: brokers)
    writer = TransactionWriter(CONFIG, None)
    assert writer.write("flights", [EncodedBatch(p, 0, 1, 0, b"batch") for p in (0, 1)]) == []
    assert brokers.written == [0, 1, 1, 1]


def test_a_broker_that_never_responds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(unanswered=1_000)
    monkeypatch.setattr("streamgroups_kafka.transactions.transaction_requests.AdminSession", lambda *_, **__: brokers)
    writer = TransactionWriter(CONFIG, None, retry_timeout_s=0.05)
    with pytest.raises(BrokerUnreachable, match="closed"):
        writer.write("flights", [EncodedBatch(p, 0, 1, 0, b"batch") for p in (0, 1)])
    assert brokers.written.count(0) == 1


def test_requests_become_smaller_if_a_broker_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``socket.request.max.bytes`` is smaller than that of Kafka."""
    brokers = Brokers(max_request_bytes=1_000_000)
    monkeypatch.setattr("streamgroups_kafka.transactions.transaction_requests.AdminSession", lambda *_, **__: brokers)
    writer = TransactionWriter(CONFIG, None)
    batches = [EncodedBatch(p, 0, 1, 0, bytes(900_000)) for p in range(1, 20)]
    assert writer.write("flights", batches) == []
    assert brokers.written[-19:] == list(range(1, 20)), "one after the other"
    assert writer._max_request_bytes == 1 << 20


@pytest.mark.parametrize("failure", [kafka.errors.NodeNotReadyError("back-off"), ThrottledError(9)])
def test_other_failures_do_not_make_requests_smaller(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(unanswered=3, failure=failure)
    monkeypatch.setattr("streamgroups_kafka.transactions.transaction_requests.AdminSession", lambda *_, **__: brokers)
    writer = TransactionWriter(CONFIG, None)
    assert writer.write("flights", [EncodedBatch(1, 0, 1, 0, b"batch")]) == []
    assert writer._max_request_bytes == 16 << 20


def test_a_throttled_fetch_has_no_records_and_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leader(Brokers):
        async def send(self, request: Any, node_id: int | None = None, timeout_s: float | None = None) -> Any:
            if type(request).__name__ == "FetchRequest":
                return SimpleNamespace(error_code=0, throttle_time_ms=5_000, responses=[])
            return await super().send(request, node_id, timeout_s)

        def check(self, error_code: int, what: str, **_: object) -> None:
            assert error_code == 0

    monkeypatch.setattr(batch_fetch, "AdminSession", lambda *_, **__: Leader())
    assert list(batch_fetch.fetched_batches(CONFIG, [OffsetRange(TopicPartition("flights", 0), 0, 5)])) == []
