"""The queries of ``docker/cluster.yaml`` run on the executors of its workers, and one worker is killed.

Needs Docker with Compose, a wheel in ``dist``, and the images of the file or those of the environment variables that it
reads; skipped with the reason otherwise. Source: docs/deploy.rst; X2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.compose_cluster import ComposeCluster, address_of, compose_cluster, why_unavailable
from integration_tests.counted_flights import PARTITIONS, Flights, hours_in
from integration_tests.tiers import LONG
from streamgroups_testkit.reading import (
    committed_offsets,
    end_offsets,
    read_committed,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until
from unit_tests.requirements import without

#: A run of its own: the programs in the containers use neither the reader nor the broker of the other tests.
pytestmark = [LONG, pytest.mark.alone, pytest.mark.timeout(900)]
FLIGHTS = Flights(40_000)
#: Spark reads more than 15,000 records in several tasks.
HALF = FLIGHTS.count // 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[ComposeCluster]:
    """The cluster, with a topic that contains the first half of the flights."""
    reason = why_unavailable()
    if reason is not None:
        without("cluster", reason)
    with compose_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create_topic(admin, "flights", PARTITIONS, {"retention.ms": "-1"})
        create_topic(admin, "delays", PARTITIONS)
        FLIGHTS.write(cluster.bootstrap, "flights", 0, HALF)
        yield cluster


def wait_until_all_is_read(cluster: ComposeCluster, query: str) -> None:
    """Waits until the group with the name of the query has committed the end of the topic."""
    ends = end_offsets(cluster.bootstrap, "flights", PARTITIONS)

    def is_read() -> bool:
        cluster.check(query)
        return committed_offsets(cluster.bootstrap, query, "flights") == ends

    wait_until(is_read, f"{query} has read all flights", 240, 1)


def wait_for_a_held_task(cluster: ComposeCluster, query: str) -> dict[str, Any]:
    """An executor with a task in progress."""
    found: list[dict[str, Any]] = []

    def is_held() -> bool:
        cluster.check(query)
        found[:] = [it for it in cluster.executors(query) if it["isActive"] and it["activeTasks"]]
        return bool(found)

    wait_until(is_held, "an executor has a task", interval_s=0.5)
    return found[0]


def test_doctor_finds_no_problem_on_the_executors_of_both_workers(cluster: ComposeCluster) -> None:
    assert "2 executors, on " in cluster.compose("--profile", "doctor", "run", "--rm", "-T", "doctor")


def test_X2_a_worker_is_killed_and_each_flight_is_counted_once(cluster: ComposeCluster) -> None:
    cluster.start_query("hours")
    wait_until_all_is_read(cluster, "hours")
    workers = cluster.workers()
    used = {address_of(it) for it in cluster.executors("hours") if it["totalTasks"]}
    assert used == set(workers), "the executors of both workers have run tasks"

    # A task in a paused container does not end, so the kill comes in the middle of a batch.
    cluster.docker("pause", *workers.values())
    FLIGHTS.write(cluster.bootstrap, "flights", HALF)
    killed = address_of(wait_for_a_held_task(cluster, "hours"))
    cluster.docker("kill", workers.pop(killed))
    cluster.docker("unpause", *workers.values())

    wait_until_all_is_read(cluster, "hours")
    FLIGHTS.close_windows(cluster.bootstrap, "flights")
    wait_until_all_is_read(cluster, "hours")
    assert hours_in(cluster.database) == FLIGHTS.hours()
    assert {address_of(it) for it in cluster.executors("hours") if it["isActive"]} == set(workers)

    cluster.compose("stop", "hours")
    assert cluster.exit_code_of("hours") == 143
    # The killed worker starts again with the command that has started the cluster.
    cluster.compose("up", "--detach", "--wait", *cluster.services)
    cluster.wait_for_workers(2)


def test_flights_are_copied_once_and_monitored(cluster: ComposeCluster) -> None:
    cluster.start_query("flights")
    wait_until_all_is_read(cluster, "flights")
    wait_until_no_transaction_is_open(cluster.bootstrap, "delays")
    produced, copied = (read_committed(cluster.bootstrap, topic) for topic in ("flights", "delays"))
    assert Counter((it.key, it.value) for it in copied) == Counter((it.key, it.value) for it in produced)
    if "prometheus" in cluster.services:
        wait_until(lambda: targets(cluster) == {"groups": "up", "queries": "up"}, "Prometheus reaches both targets")
    if "grafana" in cluster.services:
        wait_until(lambda: cluster.get("GRAFANA", "/api/search?type=dash-db"), "Grafana has the dashboard")
    cluster.compose("stop", "flights")
    assert cluster.exit_code_of("flights") == 143


def targets(cluster: ComposeCluster) -> dict[str, str]:
    """The health of each target of Prometheus, by its job."""
    found = cluster.get("PROMETHEUS", "/api/v1/targets")["data"]["activeTargets"]
    return {it["labels"]["job"]: it["health"] for it in found}
