"""The ledger in memory keeps the contract of the port."""

from __future__ import annotations

import pytest

from streamgroups.fakes import FakeLedger
from unit_tests.ledger_contract import LedgerContract


class InMemory:
    """See :class:`unit_tests.ledger_contract.Outside`."""

    def __init__(self) -> None:
        self.ledger: FakeLedger[str] = FakeLedger("billing")

    @property
    def visible(self) -> list[str]:
        return self.ledger.written


class TestLedger(LedgerContract):
    @pytest.fixture
    def outside(self) -> InMemory:
        return InMemory()
