"""O3: the polls of ``sg.reports.MetricsListener``, and their connections to the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import pytest

from streamgroups.errors import BrokerUnreachable, LoginRejected
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.monitoring.monitor import WatchedGroup
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_spark.ops import cluster_poller
from streamgroups_spark.ops.cluster_poller import ClusterPoller, Connection, connector


class FakeConnections:
    """Connections with five requests each.

    Args:
        errors: the error of each poll; ``None`` for a poll that succeeds.
    """

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self.events: list[str] = []

    def connect(self) -> Connection:
        self.events.append("connect")
        return Connection(self._poll, lambda: 5, self._close)

    def _poll(self, _group_ids: Collection[str]) -> Sequence[WatchedGroup]:
        self.events.append("poll")
        error = self._errors.pop(0)
        if error is not None:
            raise error
        return ()

    def _close(self) -> None:
        self.events.append("close")
        raise OSError("The socket is closed already.")


@pytest.mark.parametrize("error", [LoginRejected("x"), BrokerUnreachable("x"), ValueError("hunter2")])
def test_after_a_failed_poll_the_next_one_connects_again(error: Exception) -> None:
    connections = FakeConnections(None, error, None, None)
    poller = ClusterPoller(connections.connect, interval_s=3600)
    failures = [poller._polls.refresh() for _ in range(4)]
    assert [it is not None for it in failures] == [False, True, False, False]
    assert "hunter2" not in str(failures)
    assert connections.events == ["connect", "poll", "poll", "close", "connect", "poll", "poll"]


def test_requests_of_earlier_connections_are_counted() -> None:
    poller = ClusterPoller(FakeConnections(None, BrokerUnreachable("x"), None).connect, interval_s=3600)
    requests = []
    for _ in range(3):
        poller._polls.refresh()
        (metric,) = [it for it in poller.metrics() if it.name == "streamgroups_requests"]
        requests.append(metric.samples[0].value)
    assert requests == [5, 5, 10]


class FakeSession:
    """A connection to a cluster in memory that stops responding, while other connections to it work."""

    def __init__(self, _config: ClientConfig) -> None:
        self.requests = Counter(Fetch=1)
        self.cluster = FakeCluster(FakeClock(1_000_000))
        self.cluster.create_topic("flights", 1)
        self.cluster.commit("board", {TopicPartition("flights", 0): 0})

    def admin(self, *_: object) -> FakeAdmin:
        return FakeAdmin(self.cluster)

    def close(self) -> None:
        self.cluster.reachable = False


def test_a_new_connection_keeps_the_samples_of_lag_states(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[FakeSession] = []

    def connect(config: ClientConfig) -> FakeSession:
        sessions.append(FakeSession(config))
        return sessions[-1]

    monkeypatch.setattr(cluster_poller, "AdminSession", connect)
    monkeypatch.setattr(cluster_poller, "KafkaGroupAdmin", FakeSession.admin)
    monkeypatch.setattr(cluster_poller, "KafkaTopicAdmin", FakeSession.admin)
    poller = ClusterPoller(connector(ClientConfig(()), window_ms=60_000), interval_s=3600)
    poller.poll_soon(frozenset({"board"}))
    assert poller._polls.refresh() is None
    sessions[0].cluster.reachable = False
    assert isinstance(poller._polls.refresh(), BrokerUnreachable)
    assert poller._polls.refresh() is None
    (partition,) = poller.groups["board"].partitions
    assert (len(partition.samples), len(sessions)) == (2, 2)
