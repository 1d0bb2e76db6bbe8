"""O1: 200 groups of 100 partitions are listed and described in under a second, start included, in a bounded number of requests,
and sooner than by Kafka's own tool."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from integration_tests.harness import Broker, produce
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin_session import AdminSession
from streamgroups_kafka.command_config import command_config
from streamgroups_kafka.groups_admin import KafkaGroupAdmin
from streamgroups_kafka.topics_admin import KafkaTopicAdmin

GROUPS, PARTITIONS = 200, 100
LIMIT_S = 1.0
COMMAND = [sys.executable, "-c", "from streamgroups.cli import main; main()"]


@pytest.fixture(scope="module")
def crowded() -> Iterator[EmbeddedKafka]:
    """A broker of its own: groups of other tests would be listed too."""
    with EmbeddedKafka() as kafka:
        kafka.run_tool("topics", "--create", "--topic", "t", "--partitions", str(PARTITIONS))
        produce(kafka.bootstrap_servers, "t", 10 * PARTITIONS, partitions=PARTITIONS)
        session = AdminSession(command_config(kafka.bootstrap_servers), timeout_s=30)
        offsets = {TopicPartition("t", p): Committed(5) for p in range(PARTITIONS)}
        for n in range(GROUPS):
            assert KafkaGroupAdmin(session).alter_offsets(f"group-{n:03}", offsets) == {}
        session.close()
        yield kafka


def took_s(run: Callable[[], object]) -> float:
    """The best of three: other work on the machine only ever adds."""
    times = []
    for _ in range(3):
        started_s = time.monotonic()
        run()
        times.append(time.monotonic() - started_s)
    return min(times)


def streamgroups(kafka: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "groups", *arguments, "--bootstrap-server", kafka.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["list"], ["--list"]),
        (["describe", "group-007"], ["--describe", "--group", "group-007"]),
        (["describe", "--all-groups"], ["--describe", "--all-groups"]),
    ],
    ids=["list", "describe one", "describe all"],
)
def test_under_a_second_and_sooner_than_kafkas_tool(crowded: EmbeddedKafka, ours: list[str], theirs: list[str]) -> None:
    ours_s = took_s(lambda: streamgroups(crowded, *ours))
    theirs_s = took_s(lambda: crowded.run_tool("consumer-groups", *theirs))
    assert ours_s < LIMIT_S
    assert ours_s < theirs_s


def test_all_of_them_in_a_dozen_requests(crowded: EmbeddedKafka) -> None:
    result = streamgroups(crowded, "describe", "--all-groups", "-o", "json", "--verbose")
    described = json.loads(result.stdout)["groups"]
    assert [len(g["partitions"]) for g in described] == [PARTITIONS] * GROUPS
    assert {(g["lag"], g["state"]) for g in described} == {(5 * PARTITIONS, "Empty")}
    assert int(result.stderr.split()[0]) <= 12


def test_the_number_of_requests_does_not_grow_with_groups_or_partitions(crowded: EmbeddedKafka) -> None:
    def requests(groups: int) -> int:
        config = command_config(crowded.bootstrap_servers)
        session = AdminSession(config)
        ids = [f"group-{n:03}" for n in range(groups)]
        KafkaGroupAdmin(session).describe_groups(ids)
        committed = KafkaGroupAdmin(session).committed_offsets(ids)
        KafkaTopicAdmin(session, config).bounds({tp for offsets in committed.values() for tp in offsets})
        session.close()
        return session.requests.total()

    assert requests(1) == requests(GROUPS)
