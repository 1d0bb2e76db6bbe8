"""Required tests are not skipped, and tests that hang fail."""

from __future__ import annotations

import pytest

from unit_tests.examples import TIMES
from unit_tests.requirements import REQUIRE, without


def test_no_test_hangs_indefinitely(pytestconfig: pytest.Config) -> None:
    # A run with more random examples gives each test more time.
    assert 0 < float(pytestconfig.getini("timeout")) <= (300 if TIMES == 1 else 3600)
    assert pytestconfig.getini("faulthandler_exit_on_timeout"), "what a signal does not interrupt ends all the same"


def test_what_is_missing_is_skipped_and_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no compiler"):
        without("native", "no compiler")
    monkeypatch.setenv(REQUIRE, "parity")
    with pytest.raises(pytest.skip.Exception, match="no compiler"):
        without("native", "no compiler")
    monkeypatch.setenv(REQUIRE, " parity, native")
    with pytest.raises(pytest.fail.Exception, match="requires native: no compiler"):
        without("native", "no compiler")


def test_a_misspelt_requirement_is_no_requirement_that_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "parity,nativ")
    with pytest.raises(ValueError, match="contains nativ; possible are parity, native, containers"):
        without("native", "no compiler")
