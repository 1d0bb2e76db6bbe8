"""Streaming queries of a test: in separate processes that a test can kill, and the records that they have read.

The output of a query is one file for each finished batch, which lists the records of the batch. A file is written
completely or not at all. So a test can count which records arrived, how often, and from which member.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from streamgroups.groups.audit import uncommitted
from streamgroups.groups.history import Event
from streamgroups_kafka.membership.history_file import read_history
from streamgroups_testkit.waits import wait_until

Record = tuple[str, int, int]


def shared_options(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> dict[str, str]:
    """Options of a shared member with a session timeout of six seconds."""
    # With KIP-848 the broker configures the timeout; see ``broker.BROKER_PROPERTIES``.
    session = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.group.protocol": protocol,
        **session,
    }


def exclusive_options(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> dict[str, str]:
    """The same for a stateful query, which is the only member of its group."""
    return shared_options(bootstrap, group, topic, protocol) | {"membership": "exclusive"}


@dataclass
class Query:
    """A streaming query whose output and history a test reads.

    Args:
        directory: the directory of output, history, checkpoints and logs of all queries of a test.
        name: the name of the member.
        options: the options of the source, including ``kafka.*``.
        trigger: as for ``DataStreamWriter.trigger``; default: as fast as possible.
        batch_delay_s: how long each batch sleeps before its output is written, to hold it in flight.
    """

    directory: Path
    name: str
    options: Mapping[str, str]
    trigger: Mapping[str, object] = field(default_factory=dict)
    batch_delay_s: float = 0.0

    @property
    def output(self) -> Path:
        return self.directory / "output"

    def config(self) -> dict[str, Any]:
        """The configuration for ``query.start_query``."""
        self.output.mkdir(parents=True, exist_ok=True)
        return {
            "name": self.name,
            "output": str(self.output),
            "checkpoint": str(self.directory / f"checkpoint-{self.name}"),
            "options": {
                "kafka.client.id": self.name,
                "historyDir": str(self.directory / "history"),
                **self.options,
            },
            "trigger": dict(self.trigger),
            "batch_delay_s": self.batch_delay_s,
        }

    def log(self) -> str:
        """Its log, for the message of a failed test."""
        raise NotImplementedError

    def check(self) -> None:
        """Fails if the query has failed."""
        raise NotImplementedError

    def batches(self) -> int:
        """The number of batches that have written their output."""
        return sum(1 for _ in self.output.glob(f"{self.name}-*.json"))

    def wait_for_batches(self, least: int, timeout_s: float = 180) -> None:
        """Waits for this number of finished batches with records; fails immediately if the query fails."""

        def done() -> bool:
            self.check()
            return self.batches() >= least

        wait_until(done, f"{least} batches of {self.name}:\n{self.log()}", timeout_s)

    def wait_until_joining(self, timeout_s: float = 180) -> None:
        """Waits until it runs and has sent a request to join the group."""
        record = self.directory / "history"
        wait_until(lambda: list(record.glob(f"{self.name}-*.jsonl")), f"{self.name} is up:\n{self.log()}", timeout_s)


@dataclass
class QueryProcess(Query):
    """A streaming query in a separate process group, which a test can kill.

    Args:
        supervised: how often ``sg.supervise`` runs it in succession; 0 runs it without supervision.
    """

    supervised: int = 0
    process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    def start(self) -> QueryProcess:
        """Starts it without waiting."""
        config = self.config() | {"supervised": self.supervised}
        self._log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamgroups_testkit.query_program", json.dumps(config)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes: driver, JVM and stream runner."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kills all its processes with ``kill -9``."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
        if self._log is not None:
            self._log.close()

    def stop(self, timeout_s: float = 60) -> None:
        """Stops the query with SIGTERM and waits for its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout_s) == 0, self.log()
        assert self._log is not None
        self._log.close()

    def log(self) -> str:
        """The end of its output."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-6000:]

    def check(self) -> None:
        """Fails if its process has ended."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} died:\n{self.log()}"

    def wait_for_end(self, timeout_s: float = 120) -> int:
        """Waits until it ends by itself; returns its exit code."""
        assert self.process is not None
        return self.process.wait(timeout_s)


def arrived_records(directory: Path) -> Counter[Record]:
    """How often each record, by topic, partition and offset, arrived in a finished batch of any query."""
    found: Counter[Record] = Counter()
    for path in (directory / "output").glob("*.json"):
        batch = json.loads(path.read_text(encoding="utf-8"))
        for topic, partition, offset in batch["records"]:
            found[topic, partition, offset] += 1
    return found


def read_histories(directory: Path) -> list[Event]:
    """The events of all members of a test, in order of time."""
    return read_history(directory / "history")


def all_records(topic: str, ends: Mapping[int, int]) -> set[Record]:
    """Every record of a topic, from its end offsets, if it has no gaps."""
    return {(topic, p, offset) for p, end in ends.items() for offset in range(end)}


def uncommitted_records(events: list[Event], *ended: str) -> set[Record]:
    """The records that may be read again: uncommitted records of ended members, and lost or reset ranges.

    Args:
        events: the histories of all members.
        ended: the members that the test killed, froze or stopped.

    Raises:
        AssertionError: if a member released a partition without a commit of the records that it had read.
    """
    left = uncommitted(events)
    broken = [found for found in left if found.ended == "released"]
    assert not broken, f"handed over before it was committed: {broken[:3]}"
    return {
        (found.offsets.topic_partition.topic, found.offsets.topic_partition.partition, offset)
        for found in left
        if found.ended in ("lost", "moved") or found.member in ended
        for offset in range(found.offsets.next_offset, found.offsets.end_offset)
    }
