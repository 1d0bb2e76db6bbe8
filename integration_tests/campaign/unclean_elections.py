"""Unclean leader elections that truncate the input topic behind the positions of the group. Used by ``campaign.cluster_faults``.

A partition has two replicas. The follower is killed, and the group reads and writes records that the leader alone has. Then the leader is
killed, and the follower returns: its log ends before the positions. So the next records have the offsets of records that the group has
read. Every second election happens while all queries are frozen, until the new log has grown past their positions: only its leader epochs
show the truncation (KIP-320). The queries record the gap, and continue at the offset of the truncation (``onDataLoss=skip``).

Before the election the producer pauses until all records are read. So each record of both logs is exactly once in the output. In the
history, the partitions have another name until their gap. Source: SEMANTICS S7; ``unclean.leader.election.enable``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.renaming import renamed
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.campaign.zombies import Freezable, frozen
from integration_tests.history.events import Acknowledged, Event, HighWater, Position
from integration_tests.history.outputs_read import now_ms
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Cause, Gaps
from streamgroups.partitions import TopicPartition
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

UNCLEAN_ELECTION = "unclean-election"
#: The number of brokers. The third one has no replica of a partition, so the controllers have a majority without its leader.
N_NODES = 3
#: The replicas of the partitions: each two brokers have one partition at least.
_REPLICAS = [[1 + p % N_NODES, 1 + (p + 1) % N_NODES] for p in range(PARTITIONS)]
#: A record is acknowledged if one replica has it.
_CONFIG = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
#: The number of records in each partition that only its leader has.
_N_ALONE = 50
_TIMEOUT_S = 180.0
#: The observer reads positions some time before it records them.
_OBSERVED_MS = 5_000


class Paused(Protocol):
    """Pauses the producer for the duration of its block."""

    def __call__(self, *, with_new_producer: bool = False) -> AbstractContextManager[None]: ...


def create_with_two_replicas(bootstrap: str, topic: str) -> None:
    """Creates the topic. The brokers join their cluster one after the other."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, replica_assignment=_REPLICAS, config=_CONFIG)
    patiently(lambda: admin.create_topics([new])[topic].result(30))


@dataclass(frozen=True, slots=True)
class Truncation:
    """A partition whose log was truncated.

    Args:
        begun_ms: when the election began, in milliseconds since the epoch. All earlier records were read.
        detected_ms: when a query detected it.
        old: the name of the log before it in the history.
        position: the position of the group, which is the end of that log.
        end_offset: the end of the log after the election.
    """

    begun_ms: int
    detected_ms: int
    old: TopicPartition
    position: int
    end_offset: int


class UncleanElections:
    """Truncates partitions of a topic.

    Args:
        kafka: the brokers.
        group: the group.
        topic: its topic, of :func:`create_with_two_replicas`.
        members: the members of the group.
        committed: returns the committed offsets.
        ends: returns the end offsets.
        see_to_all: starts the members that are not running.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        group: str,
        topic: str,
        members: Sequence[Freezable],
        committed: Callable[[], Mapping[int, int]],
        ends: Callable[[], Mapping[int, int]],
        see_to_all: Callable[[], bool],
    ) -> None:
        self._kafka, self._group, self._topic, self._members = kafka, group, topic, members
        self._committed, self._ends, self._see_to_all = committed, ends, see_to_all
        self._n = 0
        #: The truncations of each partition, the oldest first.
        self.done: dict[TopicPartition, list[Truncation]] = {}

    def elect(self, paused: Paused, history: CampaignHistory) -> None:
        """Truncates the partitions of two brokers.

        Args:
            paused: pauses the producer.
            history: the history of the campaign.

        Raises:
            AssertionError: if no log is truncated before the position of the group.
            NotInTime: if the queries do not read to the end before the election, or do not record the gap.
        """
        of_both, leader, follower = self._chosen()
        self._kafka.kill_node(follower)
        self._until(lambda: self._in_sync(of_both) == {leader}, f"node {leader} alone has {of_both}")
        alone = {p: n + _N_ALONE for p, n in self._ends().items() if p in of_both}
        self._until(lambda: _has_reached(self._ends(), alone), f"records that only node {leader} has")
        is_past, self._n = self._n % 2 == 1, self._n + 1
        with ExitStack() as stack:
            with paused(with_new_producer=True):
                self._until(lambda: _has_reached(self._committed(), self._ends()), f"all of {self._topic} is read")
                history.inputs.flush()
                positions = {p: n for p, n in self._committed().items() if p in of_both}
                begun_ms = now_ms()
                self._name_old_logs(history, begun_ms, positions)
                if is_past:
                    for member in self._members:
                        stack.enter_context(frozen(member))
                self._kafka.kill_node(leader)
                self._kafka.restart_node(follower)
                wait_until(lambda: self._leaders(of_both) == {follower}, f"node {follower} leads {of_both}", _TIMEOUT_S)
                ends = self._ends()
                self._kafka.restart_node(leader)
                assert all(ends[p] < n for p, n in positions.items()), f"{ends} are not before {positions}"
                if not is_past:
                    self._until_detected(begun_ms, positions)
            if is_past:
                grown = {p: n + _N_ALONE for p, n in positions.items()}
                wait_until(lambda: _has_reached(self._ends(), grown), f"the new logs have {grown}", _TIMEOUT_S, 0.5)
        detected_ms = self._until_detected(begun_ms, positions)
        for p, n in positions.items():
            tp = TopicPartition(self._topic, p)
            found = Truncation(begun_ms, detected_ms[p], self._old_name(tp), n, ends[p])
            self.done.setdefault(tp, []).append(found)
        history.convert = self.convert
        settled_ms = max(detected_ms.values()) + _OBSERVED_MS
        self._until(lambda: now_ms() > settled_ms, "an observed position of the new logs")

    def _chosen(self) -> tuple[list[int], int, int]:
        """The partitions of two brokers, which are in sync, with the leader and the follower of the first one."""
        pair = _REPLICAS[self._n % N_NODES]
        of_both = [p for p, replicas in enumerate(_REPLICAS) if {*replicas} == {*pair}]
        self._until(lambda: all(self._in_sync([p]) == {*pair} for p in of_both), f"both replicas of {of_both}")
        (leader,) = self._leaders(of_both[:1])
        (follower,) = {*pair} - {leader}
        return of_both, leader, follower

    def _name_old_logs(self, history: CampaignHistory, begun_ms: int, positions: Mapping[int, int]) -> None:
        """Gives the records so far the names of their logs, with the last position in each of them."""
        last = {TopicPartition(self._topic, p): n for p, n in self._committed().items()}
        history.record(Position(begun_ms - 1, "observer", self._group, last))
        places = history.inputs.places
        for value, (tp, n) in list(places.items()):
            if tp.topic == self._topic and tp.partition in positions:
                places[value] = self._old_name(tp), n

    def _old_name(self, tp: TopicPartition) -> TopicPartition:
        return replace(tp, topic=f"{self._topic}.{len(self.done.get(tp, ())) + 1}")

    def _until_detected(self, begun_ms: int, positions: Mapping[int, int]) -> dict[int, int]:
        """Waits until the gaps are recorded. Returns the time of each of them, by partition."""
        self._until(lambda: self._detected(begun_ms).keys() >= positions.keys(), f"gaps at {dict(positions)}")
        return self._detected(begun_ms)

    def _detected(self, begun_ms: int) -> dict[int, int]:
        entries = patiently(
            partial(committed_metadata, self._kafka.bootstrap_servers, gaps_group_of(self._group), self._topic)
        )
        gaps = {p: Gaps.decode(entry).newest for p, entry in entries.items()}
        return {
            p: min(it.time_ms for it in new)
            for p, of_partition in gaps.items()
            if (new := [it for it in of_partition if it.cause is Cause.TRUNCATED and it.time_ms >= begun_ms])
        }

    def convert(self, event: Event) -> Event | None:
        """An event with the names of the logs at its time. ``None``: it is left out.

        The positions between an election and its detection are of either log. The output does not show how far a new log is written.
        """
        if isinstance(event, HighWater):
            first_ms = min((it.begun_ms for found in self.done.values() for it in found), default=event.time_ms + 1)
            return renamed(event, partial(self._log_at, event)) if event.time_ms < first_ms else None
        if isinstance(event, Position):
            unclear = ((it.begun_ms, it.detected_ms + _OBSERVED_MS) for found in self.done.values() for it in found)
            if any(begun_ms <= event.time_ms <= end_ms for begun_ms, end_ms in unclear):
                return None
            ended = [it for found in self.done.values() for it in found if it.detected_ms < event.time_ms]
            earlier = {it.old: it.position for it in ended}
            now: Position = renamed(event, partial(self._log_at, event))
            return replace(now, offsets={**earlier, **now.offsets})
        found: Event = renamed(event, partial(self._log_at, event))
        return found

    def _log_at(self, event: Event, tp: TopicPartition) -> TopicPartition:
        """The name of the log of a partition at an event. A new record is of the new log before a query detects it."""
        for it in self.done.get(tp, ()):
            if event.time_ms < (it.begun_ms if isinstance(event, Acknowledged) else it.detected_ms):
                return it.old
        return tp

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits while the members run."""
        wait_until(lambda: self._see_to_all() and condition(), what, _TIMEOUT_S, 0.5)

    def _in_sync(self, partitions: Sequence[int]) -> set[int]:
        return {node for p in partitions for node in self._described().get(p, (0, ()))[1]}

    def _leaders(self, partitions: Sequence[int]) -> set[int]:
        return {self._described().get(p, (0, ()))[0] for p in partitions}

    def _described(self) -> dict[int, tuple[int, Sequence[int]]]:
        """The leader and the in-sync replicas of each partition; nothing while no broker responds."""
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers, "log_level": 0})
        try:
            found = admin.list_topics(self._topic, timeout=5).topics[self._topic].partitions
        except KafkaException:
            return {}
        return {p: (it.leader, it.isrs) for p, it in found.items()}


def _has_reached(offsets: Mapping[int, int], targets: Mapping[int, int]) -> bool:
    """Whether the offsets are at their targets, or after them.

    >>> _has_reached({0: 5, 1: 5}, {0: 5}), _has_reached({0: 5}, {0: 5, 1: 1})
    (True, False)
    """
    return all(offsets.get(p, 0) >= n for p, n in targets.items())
