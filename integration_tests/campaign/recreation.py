"""The input topic is deleted and created again while the queries run. Used by ``campaign.cluster_faults``.

A batch that was planned before can read records of the new topic (``docs/gaps.rst``). So the producer waits until the queries have read
all records of the old topic, and until they have detected the new one. Then each record of both topics is exactly once in the output.
In the history, the partitions of the old topic have another name. Source: SEMANTICS S11; KIP-516.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.targets import create, patiently
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.history.events import Event, HighWater, Position
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


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted.

    Args:
        deleted_ms: when its deletion began, in milliseconds since the epoch.
        recreated_ms: when the producer continued with the new topic.
        offsets: the last committed offsets, with the name of the topic in the history.
    """

    deleted_ms: int
    recreated_ms: int
    offsets: Mapping[TopicPartition, int]


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
        #: The topics that were deleted, the oldest first.
        self.deleted: list[DeletedTopic] = []
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
            name, committed, deleted_ms = f"{self._topic}.{len(self.deleted) + 1}", self._committed(), now_ms()
            last = {TopicPartition(self._topic, p): n for p, n in committed.items()}
            history.record(Position(deleted_ms - 1, "observer", self._group, last))
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
            self.deleted.append(DeletedTopic(deleted_ms, now_ms(), renamed(last, self._topic, name)))
            places = history.inputs.places
            places.update({it: (renamed(tp, self._topic, name), n) for it, (tp, n) in places.items()})
            history.convert = self.convert
        finally:
            gate.open()

    def convert(self, event: Event) -> Event | None:
        """An event with the name of the topic at its time. ``None``: it is left out.

        Positions between the deletion and the new records are of either topic. The output does not show how far the new topic is written.
        """
        for i, it in enumerate(self.deleted, 1):
            if event.time_ms < it.recreated_ms:
                is_unclear = isinstance(event, Position) and event.time_ms >= it.deleted_ms
                return (
                    None if is_unclear else self._with_earlier(renamed(event, self._topic, f"{self._topic}.{i}"), i - 1)
                )
        return None if isinstance(event, HighWater) and self.deleted else self._with_earlier(event, len(self.deleted))

    def _with_earlier(self, event: Event, n: int) -> Event:
        """A position with those of the first deleted topics, which stay."""
        if not isinstance(event, Position):
            return event
        earlier = {tp: offset for it in self.deleted[:n] for tp, offset in it.offsets.items()}
        return replace(event, offsets={**earlier, **event.offsets}) if earlier else event

    def _delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        admin.delete_topics([self._topic])[self._topic].result(30)
        wait_until(lambda: self._topic not in admin.list_topics(timeout=10).topics, f"{self._topic} is deleted")

    def _noticed(self) -> int:
        """The number of partitions whose gap by a new topic is recorded. Kafka has deleted the gaps of the old topic."""
        entries = patiently(partial(committed_metadata, self._bootstrap, gaps_group_of(self._group), self._topic))
        gaps = {p: Gaps.parse(entry).newest for p, entry in entries.items() if p < PARTITIONS}
        return sum(any(it.cause is Cause.RECREATED for it in found) for found in gaps.values())
