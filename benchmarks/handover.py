"""The time without a reader of a partition during a handover: a member joins, is killed, or stops.

A family of ``benchmarks.command``. Two members of one group in separate processes share eight partitions with a steady
load. The time begins with the request of the second member to join, with the ``kill -9``, or with the shutdown of the
member. It ends with the first record that the new owner has read of a partition that changed its owner.

The peer is two plain confluent-kafka consumers with the same session timeout and assignment, twice: with the heartbeat
interval of librdkafka, and with the default of streamgroups. The ratio is to the faster one. Spark's own source has no
groups. Source: KIP-429, cooperative rebalancing.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.bench import Bench, environment
from benchmarks.figures import Cell, Missing, Row, S, compare, median_of
from benchmarks.sources import SPARK, STREAMGROUPS
from benchmarks.timed_topics import PARTITIONS, TimedSpec, key_of, write_timed
from benchmarks.workload import SteadyLoad, create
from streamgroups.groups.history import Kind
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.history_file import read_history

CONSUMERS = "confluent-kafka consumers"
#: With the heartbeat interval of streamgroups.
PROMPT_CONSUMERS = "confluent-kafka consumers, same heartbeat"
WITHOUT_STATE = "without state"
_PER_S = 1_000
_SESSION_MS = 6_000
#: The timeout for the start of Spark on a busy machine.
_RETRY_TIMEOUT_S = 180
_BY_THE_MEMBER = {"joining": Kind.JOINING, "assigned": Kind.ASSIGNED}
#: The seconds of one handover, by its cause.
Times = Mapping[str, float]
_CAUSES = {
    "assigned": "handover, a member joins: until it has partitions",
    "join": "handover, a member joins: until it has read",
    "kill": f"handover, kill -9: until read by another ({_SESSION_MS // 1000} s are the session timeout)",
    "stop": "handover, a member stops: until read by another",
}


def handover(bench: Bench) -> Iterator[Row]:
    """Each cause of a handover, once per round."""
    runs: dict[str, Callable[[], Times]] = {
        STREAMGROUPS: partial(_round, bench, "query"),
        CONSUMERS: partial(_round, bench, "consumer"),
        PROMPT_CONSUMERS: partial(_round, bench, "prompt-consumer"),
    }
    found = bench.race("handover", runs, bench.scale.handover_rounds)
    for cause, what in _CAUSES.items():
        figures: dict[str, Cell] = {
            name: cell if isinstance(cell, Missing) else median_of([times[cause] for times in cell])
            for name, cell in found.items()
        }
        figures[SPARK] = Missing(f"{SPARK}: it joins no group, so nothing is handed over", is_failure=False)
        yield from compare(what, S, figures, own=STREAMGROUPS, alternatives=(CONSUMERS, PROMPT_CONSUMERS))


class _Member:
    """A member in a separate process.

    Args:
        kind: ``query``, ``state``, ``consumer``, or ``prompt-consumer`` with the heartbeat interval of a query.
        name: its ``client.id``.
        directory: the directory of its files.
        group, topic, bootstrap: its group, topic and bootstrap servers.
    """

    def __init__(self, kind: str, name: str, directory: Path, group: str, topic: str, bootstrap: str) -> None:
        self.name = name
        self._group = group
        self._diary, self._history = directory / f"{name}.diary", directory / "history"
        self._log_path = directory / f"{name}.log"
        session = {"session.timeout.ms": str(_SESSION_MS), "client.id": name}
        self._is_query = kind in ("query", "state")
        common = {"diary": str(self._diary)}
        self._config: dict[str, Any]
        if self._is_query:
            options = {f"kafka.{key}": value for key, value in session.items()}
            options |= {"kafka.bootstrap.servers": bootstrap, "group.id": group, "subscribe": topic}
            options |= {"startingOffsets": "earliest"}
            files = {"checkpoint": str(directory / f"checkpoint-{name}"), "history": str(self._history)}
            self._config = {**common, **files, "options": options, "has_state": kind == "state"}
        else:
            settings = {
                **session,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "partition.assignment.strategy": "cooperative-sticky",
            }
            if kind == "prompt-consumer":
                own = ClientConfig.from_options({"bootstrap.servers": bootstrap}).for_member(group)
                settings["heartbeat.interval.ms"] = own["heartbeat.interval.ms"]
            self._config = {**common, "settings": settings, "topic": topic}
        self._log: IO[bytes] = self._log_path.open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.handover_member",
                "query" if self._is_query else "consumer",
                json.dumps(self._config),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **environment(), "SPARK_LOCAL_DIRS": str(directory / "spark")},
            start_new_session=True,
        )

    def kill(self) -> float:
        """Kills all its processes with ``kill -9``; does nothing after its end. Returns the time."""
        at_s = time.time()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()
        return at_s

    def request_stop(self) -> None:
        """Stops it with SIGTERM; it records the time when it begins to leave."""
        self._process.terminate()

    def recorded_s(self, what: str) -> float | None:
        """The time of the first event of this kind."""
        if what in _BY_THE_MEMBER and self._is_query:
            # The member in the source records the event in its own process.
            kind = _BY_THE_MEMBER[what]
            events = read_history(self._history) if self._history.exists() else []
            own = (e for e in events if e.member == self.name and e.kind is kind)
            return next((e.time_ms / 1000 for e in own if e.offsets or kind is Kind.JOINING), None)
        return next((line["at_s"] for line in self._lines() if line["what"] == what), None)

    def first_read_s(self, partitions: set[int], after_s: float) -> float | None:
        """The time of its first read from one of these partitions since then."""
        reads = (line for line in self._lines() if line["what"] == "read" and line["at_s"] >= after_s)
        return next((line["at_s"] for line in reads if partitions & set(line["partitions"])), None)

    def require_alive(self) -> None:
        """Raises an error with its output if it has ended."""
        if self._process.poll() is not None:
            lines = self._log_path.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"{self.name} ended: {lines[-1] if lines else 'it printed nothing'}")

    def _lines(self) -> list[dict[str, Any]]:
        if not self._diary.exists():
            return []
        return [json.loads(line) for line in self._diary.read_text().splitlines(keepends=True) if line.endswith("\n")]


def handover_with_state(bench: Bench, keys: int) -> Iterator[Row]:
    """The same with a state, compared with queries without a state over the same records.

    Args:
        bench: the environment.
        keys: the number of keys of each partition, with a state each.
    """
    runs: dict[str, Callable[[], Times]] = {
        STREAMGROUPS: partial(_round, bench, "state", keys),
        WITHOUT_STATE: partial(_round, bench, "query", keys),
    }
    found = bench.race("handover with state", runs, bench.scale.handover_rounds)
    for cause, what in _CAUSES.items():
        figures: dict[str, Cell] = {
            name: cell if isinstance(cell, Missing) else median_of([times[cause] for times in cell])
            for name, cell in found.items()
        }
        yield from compare(f"{what}, {keys:,} keys with state in each partition", S, figures, own=STREAMGROUPS)


def _round(bench: Bench, kind: str, keys: int = 0) -> Times:
    """One member, a second, the kill of the first, a third, the stop of the third.

    Args:
        bench: the environment.
        kind: the kind of the members.
        keys: the number of keys of each partition that the topic contains before; 0 for an empty topic without keys.
    """
    group = f"handover-{uuid.uuid4().hex[:8]}"
    topic, directory = group, bench.directory / group
    directory.mkdir()
    if keys:
        write_timed(bench.bootstrap, TimedSpec(topic, windows=1, window_records=keys * PARTITIONS, keys=keys))
    else:
        create(bench.bootstrap, topic, PARTITIONS)
    key = partial(key_of, keys=keys) if keys else None
    admin = AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0})
    load = SteadyLoad(bench.bootstrap, topic, partitions=PARTITIONS, per_s=_PER_S, key=key)
    with load, ExitStack() as stack:

        def start(name: str) -> _Member:
            member = _Member(kind, name, directory, group, topic, bench.bootstrap)
            stack.callback(member.kill)
            return member

        first = start("first")
        _settled(admin, group, [first])
        second = start("second")
        held = _settled(admin, group, [first, second])
        joined_s = _soon(lambda: second.recorded_s("joining"), "the second joins", second)
        assigned = _soon(lambda: second.recorded_s("assigned"), "the second has partitions", second) - joined_s
        joined = _soon(lambda: second.first_read_s(held["second"], joined_s), "the second reads", second) - joined_s

        killed_s = first.kill()
        killed = _soon(lambda: second.first_read_s(held["first"], killed_s), "the second takes over", second) - killed_s

        third = start("third")
        held = _settled(admin, group, [second, third])
        third.request_stop()
        left_s = _soon(lambda: third.recorded_s("leaving"), "the third leaves")
        left = _soon(lambda: second.first_read_s(held["third"], left_s), "the second takes over again", second) - left_s
    return {"assigned": assigned, "join": joined, "kill": killed, "stop": left}


def _settled(admin: AdminClient, group: str, members: list[_Member]) -> dict[str, set[int]]:
    """Waits until the group is stable with these members and an even share of partitions each; returns the
    assignment.
    """
    names = {member.name for member in members}

    def shares() -> dict[str, set[int]] | None:
        try:
            described = admin.describe_consumer_groups([group])[group].result(10)
        except (KafkaException, concurrent.futures.TimeoutError):
            # A new cluster may have no coordinator of the group yet.
            return None
        held = {
            member.client_id: {tp.partition for tp in member.assignment.topic_partitions}
            for member in described.members
        }
        even = all(len(partitions) == PARTITIONS // len(names) for partitions in held.values())
        return held if described.state == ConsumerGroupState.STABLE and set(held) == names and even else None

    held: dict[str, set[int]] = _soon(shares, f"a stable group of {', '.join(sorted(names))}", *members)
    now_s = time.time()
    for member in members:
        _soon(partial(member.first_read_s, held[member.name], now_s), f"{member.name} reads", member)
    return held


def _soon(found: Callable[[], Any], what: str, *members: _Member) -> Any:
    """Waits until the call returns a value.

    Raises:
        TimeoutError: if it does not return one in time.
        RuntimeError: if a required member has ended.
    """
    deadline_s = time.monotonic() + _RETRY_TIMEOUT_S
    while (answer := found()) is None:
        for member in members:
            member.require_alive()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {_RETRY_TIMEOUT_S} s: {what}")
        time.sleep(0.05)
    return answer
