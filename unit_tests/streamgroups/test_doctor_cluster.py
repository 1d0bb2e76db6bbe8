"""What ``streamgroups doctor`` makes of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.doctor.check_results import Finding, State, worst
from streamgroups.doctor.cluster import (
    METADATA_BYTES,
    PROTOCOLS,
    RETENTION,
    Broker,
    Cluster,
    ClusterUnreachable,
    OffsetsTopic,
    Supported,
    judge_cluster,
    release_of,
)

V4_1 = Supported({9: 9, 68: 1}, {"metadata.version": 27}, {"metadata.version": 27, "group.version": 1})
V4_2 = replace(V4_1, features={"metadata.version": 29})
V3_9 = Supported({9: 9}, {"metadata.version": 21}, {"metadata.version": 21})
SETTINGS = {RETENTION: "10080", METADATA_BYTES: "4096", PROTOCOLS: "classic,consumer"}


def cluster(*supported: Supported | None, **changes: object) -> Cluster:
    brokers = tuple(Broker(number, f"kafka-{number}:9092", "", result) for number, result in enumerate(supported, 1))
    return replace(Cluster("abc", brokers, OffsetsTopic(50, 0, 3), SETTINGS), **changes)  # type: ignore[arg-type]


def about(subject: str, of: Cluster) -> list[Finding]:
    return [finding for finding in judge_cluster(of) if finding.about == subject]


def test_a_healthy_cluster() -> None:
    findings = judge_cluster(cluster(V4_1, V4_1, V4_1))
    assert worst(findings) is State.OK
    assert {finding.about: finding.in_use for finding in findings} == {
        "cluster": "3 brokers",
        "kafka": "4.1",
        "groups": "classic, consumer",
        "offsets": "7 days",
    }


def test_no_broker() -> None:
    (finding,) = judge_cluster(ClusterUnreachable("No broker can be reached.", "Start it."))
    assert (finding.state, finding.what, finding.remedy) == (State.PROBLEM, "No broker can be reached.", "Start it.")


def test_a_broker_that_advertises_an_unreachable_address() -> None:
    brokers = (Broker(1, "kafka-1:9092", "", V4_1), Broker(2, "inside:9092", "unknown host"))
    answering, away = about("cluster", cluster(brokers=brokers))
    assert (answering.state, answering.in_use) == (State.OK, "2 brokers")
    assert "inside" not in answering.what
    assert away.state is State.PROBLEM
    assert "Broker 2 advertises inside:9092, which is not reachable: unknown host." in away.what
    assert "advertised.listeners" in away.remedy


def test_when_no_advertised_address_can_be_reached_nothing_else_is_reported() -> None:
    findings = judge_cluster(cluster(brokers=(Broker(1, "inside:9092", "unknown host"),)))
    assert [(finding.about, finding.state) for finding in findings] == [("cluster", State.PROBLEM)]


def test_a_server_that_was_given_and_is_silent() -> None:
    silent, _ = about("cluster", cluster(V4_1, silent_servers=(("kafka-9:9092", "connection refused"),)))
    assert silent.state is State.WARNING
    assert "kafka-9:9092" in silent.what
    assert "connection refused" in silent.what


@pytest.mark.parametrize(
    ("supported", "state", "in_use", "message"),
    [
        ((V4_1,), State.OK, "4.1", "metadata.version is 27."),
        ((None,), State.OK, None, "could not be read"),
        ((V4_1, None), State.OK, "4.1", "metadata.version is 27."),
        ((V4_1, V4_2), State.WARNING, "4.1, 4.2", "different releases. All of them support the features of 4.1"),
        ((V4_2,), State.OK, "4.2", "metadata.version is 27, of release 4.1: some features are disabled"),
        ((Supported({9: 8}, {}, {}),), State.OK, None, "The release is unknown"),
        ((Supported({9: 6}, {}, {}),), State.PROBLEM, "before 2.5", "older than Kafka 2.5"),
    ],
)
def test_releases(supported: tuple[Supported | None, ...], state: State, in_use: str | None, message: str) -> None:
    (finding,) = about("kafka", cluster(*supported))
    assert (finding.state, finding.in_use) == (state, in_use)
    assert message in finding.what


def test_every_level_belongs_to_a_release_and_none_goes_back() -> None:
    releases = [release_of(level) for level in range(7, 31)]
    assert releases == sorted(releases)
    assert set(releases) == {f"3.{minor}" for minor in range(3, 10)} | {f"4.{minor}" for minor in range(4)}


@pytest.mark.parametrize(
    ("supported", "settings", "in_use", "message"),
    [
        (V4_1, SETTINGS, "classic, consumer", "Both values of"),
        (V4_1, None, "classic, consumer", "Both values of"),
        (
            V4_1,
            {**SETTINGS, PROTOCOLS: "classic"},
            "classic",
            "group.coordinator.rebalance.protocols does not contain it",
        ),
        (V3_9, SETTINGS, "classic", "Kafka 4.0 supports it"),
        (replace(V4_1, finalized={"metadata.version": 27}), SETTINGS, "classic", "--feature group.version=1"),
        (None, SETTINGS, "classic", "could not be read"),
    ],
)
def test_group_protocols(
    supported: Supported | None, settings: dict[str, str] | None, in_use: str, message: str
) -> None:
    (finding,) = about("groups", cluster(supported, settings=settings))
    assert (finding.state, finding.in_use) == (State.OK, in_use)
    assert message in finding.what


@pytest.mark.parametrize(
    ("settings", "state", "in_use", "message"),
    [
        (SETTINGS, State.OK, "7 days", "without members"),
        ({RETENTION: "4320"}, State.OK, "3 days", "without members"),
        ({RETENTION: "4319"}, State.WARNING, "4319 minutes", "long weekend"),
        ({RETENTION: "60"}, State.WARNING, "60 minutes", "long weekend"),
        ({METADATA_BYTES: "1000"}, State.WARNING, None, "1000 bytes"),
        (None, State.WARNING, None, "cannot read the settings of the brokers"),
        ({}, State.WARNING, None, "No broker returned its settings"),
    ],
)
def test_settings(settings: dict[str, str] | None, state: State, in_use: str | None, message: str) -> None:
    (finding,) = about("offsets", cluster(V4_1, settings=settings))
    assert (finding.state, finding.in_use) == (state, in_use)
    assert message in finding.what
    assert bool(finding.remedy) == (state is not State.OK)


@pytest.mark.parametrize(
    ("topic", "brokers", "state", "message"),
    [
        (OffsetsTopic(50, 2, 3), 3, State.PROBLEM, "2 of 50 partitions of __consumer_offsets have no leader"),
        (OffsetsTopic(50, 0, 1), 3, State.WARNING, "one replica on 3 brokers"),
    ],
)
def test_where_groups_live(topic: OffsetsTopic, brokers: int, state: State, message: str) -> None:
    _, finding = about("offsets", cluster(*[V4_1] * brokers, offsets_topic=topic))
    assert finding.state is state
    assert message in finding.what


@pytest.mark.parametrize("topic", [None, OffsetsTopic(8, 0, 1)])
def test_one_replica_on_one_broker_is_all_there_can_be(topic: OffsetsTopic | None) -> None:
    assert [finding.state for finding in about("offsets", cluster(V4_1, offsets_topic=topic))] == [State.OK]
