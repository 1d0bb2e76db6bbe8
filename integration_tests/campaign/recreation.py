"""The input topic is deleted and created again while the queries run. Used by ``campaign.cluster_faults``.

A batch that was planned before can read records of the new topic (``docs/gaps.rst``). So the producer waits until the queries have read
all records of the old topic, and until they have detected the new one. Then each record of both topics is exactly once in the output.
In the history, the partitions of the old topic have another name. Source: SEMANTICS S11; KIP-516.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.targets import create, patiently
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.history.events import Event, HighWater
from integration_tests.history.outputs_read import now_ms
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Cause, Gaps
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

#: Longer than the metadata refreshes after which a query detects a new topic id (5 s each).
_NOTICED_S = 20.0
_READ_S = 300.0


class Gate:
    """Stops the producer of a campaign between two portions of its records: the function of its keys waits.

    Args:
        portion: the number of records of a portion. The producer has the acknowledgements of a portion before the next one.
        key_of: the key of a record.
    """

    def __init__(self, portion: int, key_of: Callable[[int], str] = str) -> None:
        self._portion, self._key_of = portion, key_of
        self._open, self._waiting = threading.Event(), threading.Event()
        self._open.set()

    def key_of(self, number: int) -> str:
        """The key of a record, when the gate is open."""
        if number % self._portion == 0 and not self._open.is_set():
            self._waiting.set()
            self._open.wait()
        return self._key_of(number)

    def close(self) -> None:
        """Returns when the producer waits.

        Raises:
            AssertionError: if it does not arrive.
        """
        self._waiting.clear()
        self._open.clear()
        assert self._waiting.wait(90), "the producer has not reached the gate"

    def open(self) -> None:
        """Lets the producer continue."""
        self._open.set()


def renamed(event: Any, topic: str, name: str) -> Any:
    """An event, an offset or a range with another name for a topic.

    >>> renamed({TopicPartition("in", 1): 7}, "in", "in.1")
    {TopicPartition(topic='in.1', partition=1): 7}
    """
    if isinstance(event, TopicPartition):
        return replace(event, topic=name) if event.topic == topic else event
    if isinstance(event, OffsetRange):
        return replace(event, topic_partition=renamed(event.topic_partition, topic, name))
    if isinstance(event, Mapping):
        return {renamed(tp, topic, name): n for tp, n in event.items()}
    if isinstance(event, tuple):
        return tuple(renamed(it, topic, name) for it in event)
    if isinstance(event, Event):
        values = {it.name: getattr(event, it.name) for it in fields(event)}
        changed = {n: renamed(v, topic, name) for n, v in values.items() if not isinstance(v, str | int | None)}
        return replace(event, **changed)
    return event


class Recreations:
    """Recreates the topic of a group.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic.
        committed: returns the committed offsets.
        ends: returns the end offsets.
        see_to_all: starts the queries that are not running.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        committed: Callable[[], Mapping[int, int]],
        ends: Callable[[], Mapping[int, int]],
        see_to_all: Callable[[], bool],
    ) -> None:
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._committed, self._ends, self._see_to_all = committed, ends, see_to_all
        #: When the producer continued with each new topic, in milliseconds since the epoch.
        self._times_ms: list[int] = []
        #: How many partitions had a recorded gap by their new topic.
        self.n_noticed = 0

    def recreate(self, gate: Gate, history: CampaignHistory) -> None:
        """Recreates the topic, while the producer waits.

        Raises:
            AssertionError: if the queries do not read the old topic to its end, or none detects the new topic.
        """
        gate.close()
        try:
            wait_until(
                lambda: self._see_to_all() and self._ends().items() <= self._committed().items(),
                f"all of {self._topic} is read before it is deleted",
                _READ_S,
                1.0,
            )
            patiently(self._delete)
            create(self._bootstrap, self._topic)
            began_s = time.monotonic()
            wait_until(
                lambda: self._see_to_all() and self._noticed() and time.monotonic() - began_s > _NOTICED_S,
                f"a query detects the new topic {self._topic}",
                _READ_S,
                1.0,
            )
            self.n_noticed += self._noticed()
            assert not any(self._ends().values()), f"{self._topic} is not a new topic"
            history.inputs.flush()
            self._times_ms.append(now_ms())
            name = self._name(len(self._times_ms))
            places = history.inputs.places
            places.update({it: (renamed(tp, self._topic, name), n) for it, (tp, n) in places.items()})
            history.convert = self.convert
        finally:
            gate.open()

    def convert(self, event: Event) -> Event | None:
        """An event with the name of the topic at its time. The output does not show how far the new topic is written, so later
        observations of it are left out.
        """
        for i, time_ms in enumerate(self._times_ms, 1):
            if event.time_ms < time_ms:
                found: Event = renamed(event, self._topic, self._name(i))
                return found
        return None if isinstance(event, HighWater) and self._times_ms else event

    def _name(self, number: int) -> str:
        return f"{self._topic}.{number}"

    def _delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        admin.delete_topics([self._topic])[self._topic].result(30)
        wait_until(lambda: self._topic not in admin.list_topics(timeout=10).topics, f"{self._topic} is deleted")

    def _noticed(self) -> int:
        """The number of partitions whose gap by a new topic is recorded. Kafka has deleted the gaps of the old topic."""
        entries = patiently(partial(committed_metadata, self._bootstrap, gaps_group_of(self._group), self._topic))
        gaps = {p: Gaps.parse(entry).newest for p, entry in entries.items() if p < PARTITIONS}
        return sum(any(it.cause is Cause.RECREATED for it in found) for found in gaps.values())
