"""Tools for the tests of group cursors: positions of messages, and an instance in a separate process that can be
stopped or killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import streamgroups as sg
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.waits import wait_until

#: The broker detects failed members after six seconds; BROKER_PROPERTIES configures the other protocol.
SETTINGS = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": "6000"},
    "consumer": {"group.protocol": "consumer"},
}


def places(messages: Iterable[sg.cursors.Message]) -> list[tuple[int, int]]:
    """Partition and offset of each message."""
    return [(m.partition, m.offset) for m in messages]


def values(messages: Iterable[sg.cursors.Message]) -> list[str]:
    """The values of messages, without the padding of :func:`streamgroups_testkit.queries.produce`."""
    return [(m.value or b"").decode().rstrip(".") for m in messages]


def read_all(cursors: sg.cursors.GroupCursors, cursor: str) -> tuple[list[sg.cursors.Message], str]:
    """Reads until no message is available."""
    found: list[sg.cursors.Message] = []
    while True:
        messages, cursor = cursors.get_messages(cursor)
        found += messages
        if not messages:
            return found, cursor


def holders(cursors: sg.cursors.GroupCursors, stream: str, group: str) -> dict[str, list[int]]:
    """The partitions of each live instance, including instances without partitions."""
    described = cursors.get_group(stream, group)
    held: dict[str, list[int]] = {name: [] for name in described.instances}
    for p in described.partitions:
        if p.instance is not None:
            held[p.instance].append(p.partition)
    return held


def wait_for_sizes(cursors: sg.cursors.GroupCursors, stream: str, group: str, sizes: list[int]) -> dict[str, list[int]]:
    """Waits until the instances of a group have these numbers of partitions; returns the assignment."""
    found: list[dict[str, list[int]]] = [{}]

    def balanced() -> bool:
        found[0] = holders(cursors, stream, group)
        return sorted(map(len, found[0].values())) == sorted(sizes)

    wait_until(balanced, f"instances of {group} have {sizes} partitions: {found[0]}", timeout_s=30)
    return found[0]


def stamped(bootstrap: str, topic: str, partition: int, times_ms: list[int]) -> None:
    """Writes messages with these timestamps, which are also their values."""
    producer = ordered_producer(bootstrap)
    for time_ms in times_ms:
        producer.produce(topic, value=str(time_ms), partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


class InstanceProcess:
    """One instance in a separate process, which serves requests one by one."""

    def __init__(self, bootstrap: str, settings: dict[str, str], **create: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.cursors", json.dumps([bootstrap, settings, create])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == {"ready": True}

    def get(self, limit: int) -> list[str]:
        """Values of the next messages."""
        found: list[str] = self.send("get", limit)["values"]
        return found

    def send(self, *request: object) -> dict[str, Any]:
        """Sends one request; the response has ``error`` and ``text`` if it was rejected."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def signal(self, number: signal.Signals) -> None:
        """Pauses, resumes or kills it."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Lets its program end without a call of ``close``."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        """Kills it with ``kill -9``; does nothing after its end."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


def _respond(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _serve() -> None:
    bootstrap, settings, create = json.loads(sys.argv[1])
    cursors = sg.cursors.GroupCursors(bootstrap, settings)
    cursor = cursors.create_group_cursor(**create)
    _respond({"ready": True})
    for line in sys.stdin:
        try:
            match json.loads(line):
                case ["get", limit]:
                    messages, cursor = cursors.get_messages(cursor, limit)
                    answer: dict[str, Any] = {"values": values(messages)}
                case ["commit"]:
                    cursor = cursors.consumer_commit(cursor)
                    answer = {}
                case _:
                    raise ValueError(line)
        except Exception as e:
            answer = {"error": type(e).__name__, "text": str(e)}
        _respond(answer)


if __name__ == "__main__":
    _serve()
