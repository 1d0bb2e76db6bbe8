"""S1, G11, G12: members that join, leave and are killed at random, under continuous load.

The random part takes 8 seconds; ``STREAMGROUPS_CHAOS_S=300`` extends it to five minutes. The seed is constant, or the
value of ``STREAMGROUPS_SEED``. With ``STREAMGROUPS_SEED=random`` it depends on the clock and is printed. More than five
minutes need ``-o faulthandler_timeout=...``, which otherwise ends the run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import Load
from streamgroups_testkit.queries import (
    QueryProcess,
    all_records,
    arrived_records,
    read_histories,
    shared_options,
    uncommitted_records,
)
from streamgroups_testkit.reading import committed_offsets, describe_group, end_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 8
DURATION_S = float(os.environ.get("STREAMGROUPS_CHAOS_S", "8"))

#: The time outside of the random part: the start, reading to the end, and two minutes for each wait.
pytestmark = pytest.mark.timeout(DURATION_S + 600)


class Crowd:
    """Two to four queries at a time, in one group."""

    def __init__(self, directory: Path, options: dict[str, str], choose: random.Random) -> None:
        self._directory, self._options, self._choose = directory, options, choose
        self.live: list[QueryProcess] = []
        self._all: list[QueryProcess] = []
        self.names: list[str] = []
        #: The members that were killed or stopped before all records were read.
        self.gone: list[str] = []
        self.reported: list[str] = []

    def join(self) -> None:
        name = f"m{len(self.names)}"
        self.names.append(name)
        self._all.append(QueryProcess(self._directory, name, self._options))
        self.live.append(self._all[-1].start())
        self.reported.append(f"{name} joins")

    def act(self) -> None:
        """Starts, stops or kills a random member, so that two to four members run."""
        actions = [self.join] * (len(self.live) < 4) + [self.kill, self.leave] * (len(self.live) > 2)
        self._choose.choice(actions)()

    def kill(self) -> None:
        member = self.live.pop(self._choose.randrange(len(self.live)))
        member.kill()
        self.gone.append(member.name)
        self.reported.append(f"{member.name} is killed")

    def leave(self) -> None:
        member = self.live.pop(self._choose.randrange(len(self.live)))
        member.wait_until_joining()
        member.stop()
        self.gone.append(member.name)
        self.reported.append(f"{member.name} leaves")

    def wait_for_progress(self) -> None:
        before = {member.name: member.batches() for member in self.live}
        wait_until(lambda: any(m.batches() > before[m.name] for m in self.live), f"progress after {self.reported}", 120)

    def end(self) -> None:
        for member in self._all:
            member.kill()


@LONG
@EITHER_PROTOCOL
def test_nothing_lost_one_owner(
    kafka: Broker, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    required = os.environ.get("STREAMGROUPS_SEED", "20130101")
    seed = time.time_ns() % 1_000_000 if required == "random" else int(required)
    print(f"STREAMGROUPS_SEED={seed}")  # noqa: T201
    topic = new_topic(PARTITIONS)
    options = shared_options(bootstrap, group, topic, protocol)
    crowd = Crowd(tmp_path, options, random.Random(seed))
    try:
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=1_000):
            crowd.join()
            crowd.join()
            for member in list(crowd.live):
                member.wait_for_batches(1)
            until_s = time.monotonic() + DURATION_S
            while time.monotonic() < until_s:
                crowd.act()
                # The remaining members must read records before the next change.
                crowd.wait_for_progress()
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(
            lambda: committed_offsets(bootstrap, group, topic) == ends, f"all is committed after {crowd.reported}", 120
        )
        wait_until(
            lambda: agrees(kafka, group, crowd), f"Kafka's own tool agrees after {crowd.reported}", 120, interval_s=2
        )
        while crowd.live:
            crowd.leave()
    finally:
        crowd.end()
    found, events = arrived_records(tmp_path), read_histories(tmp_path)
    missing = all_records(topic, ends) - set(found)
    assert not missing, (
        f"lost {len(missing)} of {sum(ends.values())}: {sorted(missing)[:5]}, seed {seed}, {crowd.reported}"
    )
    assert not overlaps(ownership_epochs(events)), f"seed {seed}, {crowd.reported}"
    allowed = uncommitted_records(events, *crowd.gone)
    twice = {record for record, times in found.items() if times > 1}
    assert twice <= allowed, f"seed {seed}, {crowd.reported}: {sorted(twice - allowed)[:5]}"
    regressed = commits_that_go_back([e for e in events if e.kind is Kind.COMMITTED])
    assert not regressed, f"seed {seed}: {regressed[:3]}"


def agrees(kafka: Broker, group: str, crowd: Crowd) -> bool:
    """Whether ``kafka-consumer-groups.sh --describe`` shows a live member as owner of each partition, and no lag."""
    rows = describe_group(kafka, group)
    live = {member.name for member in crowd.live}
    return len(rows) == PARTITIONS and all(row["CLIENT-ID"] in live and row["LAG"] == "0" for row in rows)


def commits_that_go_back(commits: list[Event]) -> list[str]:
    """Commits with a lower offset than an earlier commit of the same partition."""
    furthest: dict[TopicPartition, int] = {}
    found = []
    for event in commits:
        for tp, next_offset in event.offsets.items():
            if next_offset < furthest.get(tp, 0):
                found.append(f"{tp}: {furthest[tp]} -> {next_offset}")
            furthest[tp] = max(furthest.get(tp, 0), next_offset)
    return found
