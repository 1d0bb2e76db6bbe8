"""The topic of an instance in memory (:class:`streamgroups.instances.ports.InstanceLog`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamgroups.errors import FencedMember
from streamgroups.instances.entries import Entry
from streamgroups.instances.entry_json import read_entry, write_entry
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.ports import RejectedRecord


@dataclass
class FakeInstanceLog:
    """The topic of an instance. All readers and writers of one object share it.

    Args:
        records: the keys and values of its records. A test can add any.

    >>> from streamgroups.instances.entries import Desired
    >>> log = FakeInstanceLog()
    >>> log.writer().write([Desired("late", True, 1)])
    >>> reader = log.reader()
    >>> reader.read_to_end(1)
    [Desired(processor='late', is_running=True, request=1)]
    """

    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    managers: int = 0
    is_created: bool = False

    def create(self) -> bool:
        """See :meth:`streamgroups.instances.ports.InstanceLog.create`."""
        was_created, self.is_created = self.is_created, True
        return not was_created

    def check(self) -> None:
        """See :meth:`streamgroups.instances.ports.InstanceLog.check`."""

    def reader(self) -> FakeEntryReader:
        """See :meth:`streamgroups.instances.ports.InstanceLog.reader`."""
        return FakeEntryReader(self)

    def writer(self) -> FakeEntryWriter:
        """See :meth:`streamgroups.instances.ports.InstanceLog.writer`."""
        return FakeEntryWriter(self, None)

    def manager(self) -> FakeEntryWriter:
        """See :meth:`streamgroups.instances.ports.InstanceLog.manager`."""
        self.managers += 1
        return FakeEntryWriter(self, self.managers)


@dataclass
class FakeEntryWriter:
    """See :class:`streamgroups.instances.ports.EntryWriter`.

    Args:
        log: the topic.
        epoch: the epoch of a manager; ``None`` for other writers.
    """

    log: FakeInstanceLog
    epoch: int | None

    def write(self, entries: Sequence[Entry]) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.write`."""
        if self.epoch is not None and self.epoch != self.log.managers:
            raise FencedMember("Another manager has started.", remedy="Stop this one.")
        self.log.records += map(write_entry, entries)

    def close(self) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.close`."""


@dataclass
class FakeEntryReader:
    """See :class:`streamgroups.instances.ports.EntryReader`.

    Args:
        log: the topic.
    """

    log: FakeInstanceLog
    state: InstanceState = field(default_factory=InstanceState)
    rejected: list[RejectedRecord] = field(default_factory=list)
    next_offset: int = 0

    def read_to_end(self, timeout_s: float) -> list[Entry]:
        """See :meth:`streamgroups.instances.ports.EntryReader.read_to_end`."""
        del timeout_s
        # Another thread can write meanwhile.
        found, end_offset = [], len(self.log.records)
        for offset in range(self.next_offset, end_offset):
            try:
                entry = read_entry(*self.log.records[offset])
            except ValueError as e:
                self.rejected.append(RejectedRecord(offset, str(e)))
                continue
            found.append(entry)
        self.state = apply(self.state, *found)
        self.next_offset = end_offset
        return found

    def poll(self, timeout_s: float) -> list[Entry]:
        """See :meth:`streamgroups.instances.ports.EntryReader.poll`. It does not wait."""
        return self.read_to_end(timeout_s)

    def close(self) -> None:
        """See :meth:`streamgroups.instances.ports.EntryReader.close`."""
