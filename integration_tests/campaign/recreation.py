"""The input topic is deleted and created again while the queries run. Used by ``campaign.cluster_faults``.

A batch that was planned before can read records of the new topic (``docs/gaps.rst``). So the producer waits until the queries have read
all records of the old topic, and until they have detected the new one. Then each record of both topics is exactly once in the output.
In the history, the partitions of the old topic have another name. Source: SEMANTICS S11; KIP-516.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.renaming import renamed
from integration_tests.campaign.targets import create, patiently
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.history.events import Event, HighWater, Position
from integration_tests.history.outputs_read import now_ms
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Cause, Gaps
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

#: Longer than the metadata refreshes after which a query detects a new topic id (5 s each).
_NOTICED_S = 20.0
_READ_S = 300.0


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

    def recreate(self, paused: Callable[[], AbstractContextManager[None]], history: CampaignHistory) -> None:
        """Recreates the topic, while the producer waits.

        Args:
            paused: pauses the producer for the duration of its block.
            history: the history of the campaign.

        Raises:
            AssertionError: if the queries do not read the old topic to its end, or none detects the new topic.
        """
        with paused():
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
            self.deleted.append(DeletedTopic(deleted_ms, now_ms(), self._renamed(last, name)))
            places = history.inputs.places
            places.update({it: (self._renamed(tp, name), n) for it, (tp, n) in places.items()})
            history.convert = self.convert

    def convert(self, event: Event) -> Event | None:
        """An event with the name of the topic at its time. ``None``: it is left out.

        Positions between the deletion and the new records are of either topic. The output does not show how far the new topic is written.
        """
        for i, it in enumerate(self.deleted, 1):
            if event.time_ms < it.recreated_ms:
                is_unclear = isinstance(event, Position) and event.time_ms >= it.deleted_ms
                return None if is_unclear else self._with_earlier(self._renamed(event, f"{self._topic}.{i}"), i - 1)
        return None if isinstance(event, HighWater) and self.deleted else self._with_earlier(event, len(self.deleted))

    def _renamed(self, value: Any, name: str) -> Any:
        """An event, a position or a partition with another name for the topic."""
        return renamed(value, lambda tp: replace(tp, topic=name) if tp.topic == self._topic else tp)

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
        gaps = {p: Gaps.decode(entry).newest for p, entry in entries.items() if p < PARTITIONS}
        return sum(any(it.cause is Cause.RECREATED for it in found) for found in gaps.values())
