"""The topic of an instance in memory has the contract of the real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroups.fakes.instance_log import FakeInstanceLog
from unit_tests.instance_log_contract import InstanceLogContract


class TestFakeInstanceLog(InstanceLogContract):
    @pytest.fixture
    def log(self) -> FakeInstanceLog:
        return FakeInstanceLog()

    @pytest.fixture
    def write_raw(self, log: FakeInstanceLog) -> Callable[[bytes | None, bytes | None], None]:
        return lambda key, value: log.records.append((key, value))
