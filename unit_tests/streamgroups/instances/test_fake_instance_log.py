"""The topic of an instance in memory has the contract of the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroups.fakes.instance_log import FakeInstanceLog
from streamgroups.instances.entries import Desired
from streamgroups.instances.entry_json import write_entry
from unit_tests.instance_log_contract import InstanceLogContract


class TestFakeInstanceLog(InstanceLogContract):
    @pytest.fixture
    def log(self) -> FakeInstanceLog:
        return FakeInstanceLog()

    @pytest.fixture
    def write_raw(self, log: FakeInstanceLog) -> Callable[[bytes | None, bytes | None], None]:
        return lambda key, value: log.records.append((key, value))


class _WrittenMeanwhile(list[tuple[bytes | None, bytes | None]]):
    """Another thread writes a record while the first one is read."""

    def __getitem__(self, place: Any) -> Any:
        if len(self) == 1:
            self.append(write_entry(Desired("late", True, 2)))
        return super().__getitem__(place)


def test_a_record_that_is_written_during_a_read_is_read_next() -> None:
    log = FakeInstanceLog(_WrittenMeanwhile([write_entry(Desired("late", True, 1))]))
    reader = log.reader()
    assert reader.read_to_end(1) == [Desired("late", True, 1)]
    assert reader.read_to_end(1) == [Desired("late", True, 2)]
