"""When a rejected login ends the requests of a running query, without a broker."""

from __future__ import annotations

import doctest
from types import SimpleNamespace

import pytest

from streamgroups import login_outage
from streamgroups.errors import BrokerUnreachable, LoginRejected
from streamgroups_kafka.admin import rejected_login
from streamgroups_kafka.admin.rejected_login import RejectedLogin
from streamgroups_kafka.client.config import ClientConfig

OUTAGE = BrokerUnreachable("The topics could not be read: no broker responded.", remedy="Check the address.")
REJECTION = LoginRejected("The cluster could not be read: authentication failed.", remedy="Check the password.")


class Login(RejectedLogin):
    """A login with a decision of the brokers that the test makes."""

    def __init__(self, protocol: str = "SASL_SSL", servers: str = "kafka:9092") -> None:
        self.now_s, self.checks, self.are_all = 0.0, 0, True
        self.found: LoginRejected | None = REJECTION
        config = ClientConfig((("security.protocol", protocol), ("bootstrap.servers", servers)))
        super().__init__(config, lambda: self.now_s)

    def _seen(self) -> tuple[LoginRejected | None, bool]:
        self.checks += 1
        return self.found, self.are_all


@pytest.mark.parametrize("module", [login_outage, rejected_login])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


def test_a_rejection_is_retried_like_an_outage_and_then_returned() -> None:
    login = Login()
    for now_s in (0, 7, 14.9):
        login.now_s = now_s
        error = login.judged(OUTAGE)
        assert (type(error), error.what, error.remedy) == (BrokerUnreachable, REJECTION.what, REJECTION.remedy)
    login.now_s = 15
    assert login.judged(OUTAGE) is REJECTION


def test_a_login_that_is_accepted_meanwhile_begins_another_outage() -> None:
    login = Login()
    login.judged(OUTAGE)
    login.now_s = 14
    # No broker responds, or another one accepts the login.
    login.found = None
    assert login.judged(OUTAGE) is OUTAGE
    login.found = REJECTION
    login.now_s = 28
    assert login.judged(OUTAGE).retriable
    login.now_s = 43
    assert login.judged(OUTAGE) is REJECTION


def test_a_rejection_of_yesterday_has_no_effect() -> None:
    login = Login()
    login.judged(OUTAGE)
    login.now_s = 86_400
    assert login.judged(OUTAGE).retriable


def test_a_login_is_not_rejected_by_all_while_another_broker_is_away() -> None:
    login = Login()
    login.are_all = False
    assert (login.first_rejection(), login.rejection()) == (REJECTION, None)
    for now_s in (0, 15):
        login.now_s = now_s
        assert login.judged(OUTAGE) is OUTAGE


def test_a_rejection_of_one_connection_is_an_outage_if_a_new_client_is_accepted() -> None:
    """A broker that requires a new login ends a connection with its rejection (KIP-368)."""
    login = Login()
    login.found = None
    error = login.judged(REJECTION)
    assert (type(error), error.what, error.retriable) == (BrokerUnreachable, REJECTION.what, True)


def test_the_start_after_a_rejected_token_has_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ClientConfig, "tokens", SimpleNamespace(rejected=lambda: calls.append("rejected")))
    login = Login()
    login.first_rejection()
    login.found = None
    login.first_rejection()
    assert calls == ["rejected"]


def test_a_client_without_a_login_is_not_checked() -> None:
    login = Login("PLAINTEXT")
    assert login.judged(OUTAGE) is OUTAGE
    assert login.checks == 0


def test_the_rejection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    # The clients of one cluster share a log, which limits its lines.
    Login(servers="logged:9092").judged(OUTAGE)
    assert REJECTION.what in caplog.text
