"""What ``streamgroups doctor`` makes of a cluster."""

from __future__ import annotations

import pytest

from streamgroups.doctor.check_results import CheckResult, State, worst
from streamgroups.doctor.cluster_checks import Broker, Cluster, ClusterUnreachable, judge_cluster

HERE = Broker(1, "kafka-1:9092")
WEEK = 10_080


def about(subject: str, of: Cluster) -> list[CheckResult]:
    return [result for result in judge_cluster(of) if result.about == subject]


def test_a_healthy_cluster() -> None:
    results = judge_cluster(Cluster("abc", (HERE, Broker(2, "kafka-2:9092"), Broker(3, "kafka-3:9092")), WEEK))
    assert worst(results) is State.OK
    assert {result.about: result.in_use for result in results} == {"cluster": "3 brokers", "offsets": "7 days"}


def test_no_broker() -> None:
    (result,) = judge_cluster(ClusterUnreachable("No broker can be reached.", "Start it."))
    assert (result.state, result.what, result.remedy) == (State.PROBLEM, "No broker can be reached.", "Start it.")


def test_a_broker_that_advertises_an_unreachable_address() -> None:
    answering, away = about("cluster", Cluster("abc", (HERE, Broker(2, "inside:9092", "unknown host")), WEEK))
    assert (answering.state, answering.in_use) == (State.OK, "2 brokers")
    assert "inside" not in answering.what
    assert away.state is State.PROBLEM
    assert "Broker 2 advertises inside:9092, which is not reachable: unknown host." in away.what
    assert "advertised.listeners" in away.remedy


def test_when_no_advertised_address_can_be_reached_nothing_else_is_reported() -> None:
    results = judge_cluster(Cluster("abc", (Broker(1, "inside:9092", "unknown host"),), WEEK))
    assert [(result.about, result.state) for result in results] == [("cluster", State.PROBLEM)]


def test_a_server_that_was_given_and_is_silent() -> None:
    silent, _ = about("cluster", Cluster("abc", (HERE,), WEEK, (("kafka-9:9092", "connection refused"),)))
    assert silent.state is State.WARNING
    assert "kafka-9:9092" in silent.what
    assert "connection refused" in silent.what


@pytest.mark.parametrize(
    ("minutes", "state", "in_use", "message"),
    [
        (WEEK, State.OK, "7 days", "without members"),
        (4320, State.OK, "3 days", "without members"),
        (4319, State.WARNING, "4319 minutes", "long weekend"),
        (60, State.WARNING, "60 minutes", "long weekend"),
        (None, State.WARNING, None, "No broker returned its settings to this user"),
    ],
)
def test_retention(minutes: int | None, state: State, in_use: str | None, message: str) -> None:
    (result,) = about("offsets", Cluster("abc", (HERE,), minutes))
    assert (result.state, result.in_use) == (state, in_use)
    assert message in result.what
    assert bool(result.remedy) == (state is not State.OK)
