"""The contract of :class:`streamgroups.instances.ports.InstanceLog`, for the fake and for a real broker.

A test module subclasses it and provides the fixtures ``log`` and ``write_raw``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from streamgroups.errors import FencedMember
from streamgroups.instances.entries import Definition, Desired, Entry, Manager, Placement, Removed, Replica
from streamgroups.instances.entry_json import write_entry
from streamgroups.instances.ports import EntryReader, InstanceLog
from streamgroups_testkit.waits import wait_until

LATE = Definition("late", '{"name":"late"}')
STARTED = Desired("late", True, 1)
PLACED = Placement(Replica("late", 0), "w1", 1, 1)


def read_until(reader: EntryReader, count: int) -> list[Entry]:
    """Reads at least some entries. A broker ends a transaction after it has acknowledged its commit."""
    found: list[Entry] = []

    def are_read() -> bool:
        found.extend(reader.read_to_end(10))
        return len(found) >= count

    wait_until(are_read, f"{count} entries are read", timeout_s=30)
    return found


class InstanceLogContract:
    """Readers, writers and managers of one instance."""

    @pytest.fixture
    def reader(self, log: InstanceLog) -> Iterator[EntryReader]:
        log.create()
        with closing(log.reader()) as reader:
            yield reader

    def test_it_is_created_once(self, log: InstanceLog) -> None:
        assert log.create()
        assert not log.create()
        log.check()

    def test_entries_are_read_in_their_order(self, log: InstanceLog, reader: EntryReader) -> None:
        assert reader.read_to_end(10) == []
        with closing(log.writer()) as writer:
            writer.write([LATE, STARTED])
            assert reader.read_to_end(10) == [LATE, STARTED]
            writer.write([Removed("desired", "late")])
            writer.write([Desired("late", True, 2)])
        assert reader.read_to_end(10) == [Removed("desired", "late"), Desired("late", True, 2)]
        assert reader.state.desired == {"late": Desired("late", True, 2)}
        with closing(log.reader()) as other:
            other.read_to_end(10)
            assert other.state == reader.state

    def test_it_is_followed(self, log: InstanceLog, reader: EntryReader) -> None:
        with closing(log.writer()) as writer:
            writer.write([LATE])
        found = list[Entry]()
        while not found:
            found = reader.poll(0.5)
        assert found == [LATE]
        assert reader.poll(0) == []

    def test_records_that_are_no_entries_are_skipped(
        self, log: InstanceLog, reader: EntryReader, write_raw: Callable[[bytes | None, bytes | None], None]
    ) -> None:
        write_raw(b"desired/late", b'{"v":1,"running":"yes","request":1}')
        write_raw(b"\xff", b"{}")
        write_raw(None, None)
        with closing(log.writer()) as writer:
            writer.write([STARTED])
        assert reader.read_to_end(10) == [STARTED]
        assert [it.offset for it in reader.rejected] == [0, 1, 2]
        assert reader.rejected[0].why == "'yes' is neither true nor false"

    def test_the_entries_of_a_manager_are_read_together(self, log: InstanceLog, reader: EntryReader) -> None:
        with closing(log.manager()) as manager:
            for number in (1, 2):
                manager.write([PLACED, Manager(number + 1, number, 0, 0, 6_000, 1)])
        assert [type(it) for it in read_until(reader, 4)] == [Placement, Manager] * 2

    def test_a_second_manager_fences_the_first(self, log: InstanceLog, reader: EntryReader) -> None:
        with closing(log.manager()) as first:
            first.write([PLACED])
            with closing(log.manager()) as second:
                with pytest.raises(FencedMember, match="Another manager"):
                    first.write([Placement(Replica("late", 0), "w2", 2, 1)])
                with pytest.raises(FencedMember, match="Another manager"):
                    first.write([Placement(Replica("late", 0), "w2", 2, 1)])
                second.write([Placement(Replica("late", 0), "w3", 3, 1)])
        assert read_until(reader, 2) == [PLACED, Placement(Replica("late", 0), "w3", 3, 1)]
        assert reader.state.placements[Replica("late", 0)].worker == "w3"

    def test_a_large_definition_is_written(self, log: InstanceLog, reader: EntryReader) -> None:
        large = Definition("late", '{"name":"late","x":"' + "y" * 400_000 + '"}')
        assert len(write_entry(large)[1] or b"") > 400_000
        with closing(log.writer()) as writer:
            writer.write([large])
        assert reader.read_to_end(10) == [large]
