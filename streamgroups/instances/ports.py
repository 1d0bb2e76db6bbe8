"""The topic of an instance, as the manager, the workers and the commands use it.

``streamgroups_kafka.instances`` implements it on a cluster, and :class:`streamgroups.fakes.instance_log.FakeInstanceLog` in
memory. One suite of tests verifies both. Source: :mod:`streamgroups.instances`; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamgroups.instances.entries import Entry
from streamgroups.instances.instance_state import InstanceState


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record of the topic that is not an entry.

    Args:
        offset: its offset.
        why: the reason.
    """

    offset: int
    why: str


class EntryReader(Protocol):
    """Reads the entries of an instance from the start, in their order. Used by one thread."""

    @property
    def state(self) -> InstanceState:
        """The state after the entries that were read."""
        ...

    @property
    def rejected(self) -> Sequence[RejectedRecord]:
        """The last records that are not entries. They are skipped."""
        ...

    def read_to_end(self, timeout_s: float) -> list[Entry]:
        """Reads all entries that are committed when it is called.

        Args:
            timeout_s: how long to wait, in seconds.

        Returns:
            The new entries.

        Raises:
            BrokerUnreachable: if the end is not reached in time.
            DataLoss: if the topic was recreated or truncated after its entries were read.
            StreamGroupsError: if the broker rejects a request.
        """
        ...

    def poll(self, timeout_s: float) -> list[Entry]:
        """Reads new entries. Returns at once with them, and otherwise after the timeout.

        Args:
            timeout_s: how long to wait for a new entry, in seconds.

        Raises:
            DataLoss: as :meth:`read_to_end`.
            StreamGroupsError: if the broker rejects a request.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class EntryWriter(Protocol):
    """Writes entries. Used by one thread."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Writes entries in their order, and waits for the acknowledgement of all replicas.

        Raises:
            FencedMember: if another manager has replaced this one. Its entries are not written.
            BrokerUnreachable: if no broker acknowledges them in time. They can have been written.
            StreamGroupsError: if the broker rejects one.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class InstanceLog(Protocol):
    """The topic of an instance."""

    def create(self) -> bool:
        """Creates the topic if it does not exist, and checks its settings.

        Returns:
            Whether it was created.

        Raises:
            InvalidOption: if it exists with other settings.
        """
        ...

    def check(self) -> None:
        """Checks that the topic exists with the required settings.

        Raises:
            UnknownTopic: if it does not exist.
            InvalidOption: if it has other settings.
        """
        ...

    def reader(self) -> EntryReader:
        """Opens a reader."""
        ...

    def writer(self) -> EntryWriter:
        """Opens the writer of a command or of a worker."""
        ...

    def manager(self) -> EntryWriter:
        """Opens the writer of the manager, whose entries are written as a whole or not at all. It fences earlier ones."""
        ...
