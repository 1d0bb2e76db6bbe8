"""Rebalance storms: other consumers of the group that join and leave while the queries run. Used by ``campaign.cluster_faults``.

They are plain consumers without a commit. So no record is read by them only: the next owner of a partition begins at the offset that
a query has committed. Source: KIP-429, KIP-848, KIP-345; SEMANTICS S1, G11, G12.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamgroups_testkit.waits import wait_until

#: The duration of a storm, and the time between two changes of the group.
STORM_S, _CHANGE_S = 20.0, 2.0
_CHANGES = ("join", "join", "leave", "join", "leave", "leave")
#: At least this many changes must give partitions to a visitor: each visitor that joins takes part in a rebalance.
MIN_REBALANCES = 4
#: The next owner of the partitions of a member that a duplicate has fenced needs no longer than this.
_DUPLICATE_S = 60.0
#: The broker rejects a duplicate of a live member (KIP-848), or fences one of both (classic).
_REJECTED = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED, KafkaError._FATAL, 111)


class Visitor:
    """A consumer that is a member of the group, and that reads and commits nothing.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic.
        protocol: its protocol: ``classic`` or ``consumer``.
        name: the client id.
        instance_id: the ``group.instance.id``; empty without static membership.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str, name: str, instance_id: str = "") -> None:
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if protocol == "classic":
            # The strategy and the session timeout of the members.
            self._config |= {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6_000}
        self._config |= {"group.instance.id": instance_id} if instance_id else {}
        self._topic, self._stopped = topic, threading.Event()
        #: How often it has received partitions, and the errors that the broker has sent to it.
        self.n_assigned, self.errors = 0, list[int]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def join(self) -> None:
        """Joins the group."""
        self._thread.start()

    def leave(self) -> None:
        """Leaves the group. A static member stays a member until its session times out."""
        self._stopped.set()
        self._thread.join(60)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        # It fetches nothing: the queries need the processors.
        consumer.pause(partitions)
        self.n_assigned += bool(partitions)

    def _run(self) -> None:
        consumer = Consumer(self._config)
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned)
            while not self._stopped.is_set():
                message = consumer.poll(0.1)
                error = message.error() if message is not None else None
                if error is not None:
                    self.errors.append(error.code())
        except KafkaException as e:
            self.errors.append(e.args[0].code())
        finally:
            consumer.close()


class Storms:
    """Storms of one group.

    Args:
        new_visitor: creates a visitor with a client id and a ``group.instance.id``.
        see_to_all: starts the queries that are not running.
    """

    def __init__(self, new_visitor: Callable[[str, str], Visitor], see_to_all: Callable[[], bool]) -> None:
        self._new_visitor, self._see_to_all = new_visitor, see_to_all
        #: The rebalances in which visitors have received partitions.
        self.n_rebalances = 0

    def storm(self, duration_s: float = STORM_S) -> None:
        """Changes the members of the group every two seconds: a visitor joins or leaves, at most two at a time.

        Raises:
            AssertionError: if the visitors took part in fewer rebalances than :data:`MIN_REBALANCES`.
        """
        visitors, present = list[Visitor](), list[Visitor]()
        changes, until_s = cycle(_CHANGES), time.monotonic() + duration_s
        try:
            while time.monotonic() < until_s:
                if next(changes) == "join":
                    visitors.append(self._new_visitor(f"visitor-{len(visitors)}", ""))
                    visitors[-1].join()
                    present.append(visitors[-1])
                else:
                    present.pop(0).leave()
                time.sleep(_CHANGE_S)
                self._see_to_all()
        finally:
            for it in present:
                it.leave()
        n = sum(it.n_assigned for it in visitors)
        assert n >= MIN_REBALANCES, f"no storm: {len(visitors)} visitors received partitions only {n} times"
        self.n_rebalances += n

    def duplicate(self, instance_id: str) -> None:
        """Joins with the ``group.instance.id`` of a running query. The broker fences one of both members.

        Raises:
            AssertionError: if the broker accepts both, and none receives an error or partitions.
        """
        visitor = self._new_visitor(instance_id, instance_id)
        visitor.join()
        try:
            wait_until(
                lambda: self._see_to_all() and (visitor.n_assigned or set(visitor.errors) & set(_REJECTED)),
                f"a duplicate of {instance_id} has fenced it, or is fenced (errors {visitor.errors})",
                _DUPLICATE_S,
            )
        finally:
            visitor.leave()
        self.n_rebalances += visitor.n_assigned
