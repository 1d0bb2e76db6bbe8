"""Zombies of a campaign: queries that sleep at a named point, longer than every timeout, and then continue.

Used by ``integration_tests.campaign.faults``. All processes of a query are stopped with SIGSTOP while one of them is at the
point. They continue when the group has removed the member, the others own all partitions, have applied a reset, if the
turn has one, and have committed past all positions of the zombie. A member reaches some points only while a reset is
applied or partitions change their owner. The zombies of the campaign cause both. Source: SEMANTICS F1-F3, G8, X2-X4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.campaign.resets import RequestedResets
from integration_tests.campaign.targets import all_advance
from integration_tests.campaign.windows import PARTITIONS
from streamgroups_testkit.waits import wait_until

#: Longer than the session timeout of 6 s and the lock timeout of ``dying/sitecustomize.py``.
FROZEN_S = 12.0
#: The other members own all partitions within this time, also on a busy machine.
_TIMEOUT_S = 240.0


class Freezable(Protocol):
    """A member whose processes can be stopped."""

    name: str

    def processes(self) -> list[psutil.Process]: ...


@contextmanager
def frozen(member: Freezable) -> Iterator[None]:
    """Stops all processes of a member for the duration of the block."""
    processes = member.processes()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


class Zombies:
    """Freezes members until the group continues without them.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic; the left one of a join.
        members: the members.
        see_to_all: starts the members that are not running.
        resets: requests resets of the group.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        members: Sequence[Freezable],
        see_to_all: Callable[[], bool],
        resets: RequestedResets,
    ) -> None:
        self._bootstrap, self._group, self._topic, self._members = bootstrap, group, topic, members
        self._see_to_all, self._resets = see_to_all, resets
        self._n = 0

    def freeze(self, member: Freezable) -> None:
        """Freezes a member until the others own its partitions."""
        with frozen(member):
            self._until_others_have_all(member)

    def freeze_while_others_commit(self, member: Freezable, *, with_reset: bool) -> None:
        """Freezes a member until the others have committed past its positions.

        Args:
            member: the member, with a process at a point.
            with_reset: whether to request a reset, which they apply.
        """
        began_s = time.monotonic()
        with frozen(member):
            self._until_others_have_all(member)
            if with_reset:
                self._resets.request()
            self.until_applied()
            self._until_all_advance()
            wait_until(lambda: time.monotonic() - began_s > FROZEN_S, f"{member.name} sleeps longer than each timeout")

    def until_applied(self) -> None:
        """Waits until the group has applied the last reset."""
        self._wait_until(self._resets.is_applied, f"group {self._group} has applied the reset")

    def rebalance(self, is_reached: Callable[[], object]) -> None:
        """Freezes a member until the others own its partitions, or a member reaches a point.

        The others then receive its partitions, and release them when it returns.
        """
        self._see_to_all()
        self._n += 1
        member = self._members[self._n % len(self._members)]
        with frozen(member):
            self._wait_until(
                lambda: is_reached() or (member.name not in (owners := self._owners()) and _all_owned(owners)),
                f"{member.name} is missed, or the point is reached",
            )

    def until_all_own(self) -> None:
        """Waits until each member has committed offsets of partitions."""
        self._wait_until(
            lambda: self._owners().keys() == {it.name for it in self._members} and _all_owned(self._owners()),
            f"all members of {self._group} own partitions",
        )
        self._until_all_advance()

    def _until_others_have_all(self, member: Freezable) -> None:
        self._wait_until(lambda: member.name not in self._owners(), f"{member.name} is missed")
        self._wait_until(lambda: _all_owned(self._owners()), f"the others have all partitions of {self._group}")

    def _until_all_advance(self) -> None:
        before = self._resets.committed()
        self._wait_until(
            lambda: all_advance(before, self._resets.committed()),
            f"group {self._group} commits offsets of all partitions",
        )

    def _wait_until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: self._see_to_all() and condition(), what, _TIMEOUT_S)

    def _owners(self) -> dict[str, int]:
        """The number of partitions of the topic of each member, without those that a fault has added."""
        # A new client for each call. After a failure of the coordinator, an existing client can use the wrong broker
        # for minutes.
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        try:
            found = admin.describe_consumer_groups([self._group])[self._group].result(30).members
        except (KafkaException, TimeoutError):
            # The coordinator of the group can be unavailable for a moment.
            return dict.fromkeys((it.name for it in self._members), 0)
        return {
            member.client_id: sum(
                it.topic == self._topic and it.partition < PARTITIONS for it in member.assignment.topic_partitions
            )
            for member in found
        }


def _all_owned(owners: dict[str, int]) -> bool:
    return sum(owners.values()) == PARTITIONS
