"""O1: 200 groups of 100 partitions are listed and described faster than by Kafka's own tool, with less processor time
and a bounded number of requests.

The benchmark ``groups-command`` measures the durations.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from benchmarks.many_groups import COMMANDS, GROUPS, PARTITIONS, many_groups, our_groups_command
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.properties_file import command_config


@pytest.fixture(scope="module")
def crowded() -> Iterator[EmbeddedKafka]:
    with many_groups() as kafka:
        yield kafka


@dataclass(frozen=True, slots=True)
class Took:
    """The duration of a command in seconds: elapsed time and processor time."""

    wall_s: float
    cpu_s: float


def took(run: Callable[[], object], *, runs: int = 1) -> Took:
    """The minimum of several runs, because other processes on the machine only add time."""
    walls_s: list[float] = []
    cpus_s: list[float] = []
    for _ in range(runs):
        before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls_s.append(time.monotonic() - started_s)
        cpus_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Took(min(walls_s), min(cpus_s))


@pytest.mark.alone
@pytest.mark.parametrize("what", COMMANDS)
def test_sooner_than_kafkas_tool_and_in_less_processor_time(crowded: EmbeddedKafka, what: str) -> None:
    own, other = COMMANDS[what]
    own_time = took(lambda: our_groups_command(crowded, *own), runs=3)
    their_time = took(lambda: crowded.run_tool("consumer-groups", *other))
    assert own_time.wall_s < their_time.wall_s, (own_time, their_time)
    assert own_time.cpu_s < their_time.cpu_s, (own_time, their_time)


def test_all_of_them_in_13_requests(crowded: EmbeddedKafka) -> None:
    result = our_groups_command(crowded, "describe", "--all-groups", "-o", "json", "--verbose")
    described = json.loads(result.stdout)["groups"]
    assert [len(g["partitions"]) for g in described] == [PARTITIONS] * GROUPS
    assert {(g["lag"], g["state"]) for g in described} == {(5 * PARTITIONS, "Empty")}
    assert int(result.stderr.split()[0]) <= 13


def test_the_number_of_requests_does_not_grow_with_groups_or_partitions(crowded: EmbeddedKafka) -> None:
    def requests(groups: int) -> Counter[str]:
        config = command_config(crowded.bootstrap_servers)
        session = AdminSession(config)
        ids = [f"group-{n:03}" for n in range(groups)]
        KafkaGroupAdmin(session).describe_groups(ids)
        committed = KafkaGroupAdmin(session).committed_offsets(ids)
        KafkaTopicAdmin(session, config).bounds({tp for offsets in committed.values() for tp in offsets})
        session.close()
        # kafka-python also sends requests for metadata in the background.
        assert session.requests.pop("Metadata") <= 3
        return session.requests

    assert requests(1) == requests(GROUPS)
